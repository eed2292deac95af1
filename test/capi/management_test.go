// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"k8s.io/client-go/util/cert"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-k8s/slipway/test/capi/management"
	"github.com/slipway-k8s/slipway/test/capi/provider"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	managementName = "management"
	controllerDir  = "/opt/capi"
	adminPath      = "/etc/kubernetes/admin.conf"
	apiPort        = 6443
)

// managed makes the management cluster: `slipway up` on a bare machine, and Cluster API's controllers beside it.
func (s *suite) managed() {
	s.Helper()
	node, err := s.lab.StartNode(s.Context(), nodes.NodeSpec{Name: managementName, Bare: true})
	if err != nil {
		s.Fatal(err)
	}
	s.management = node
	s.Cleanup(func() {
		if s.Failed() {
			s.explain()
		}
	})
	version := s.lab.KubernetesVersion()
	s.try(node.InstallSlipway())
	s.try(node.ConfigurePods())
	s.try(node.CopyIn(s.lab.Bundles[version], "/opt/slipway/bundle.tar"))
	s.try(node.WriteFile("/root/up.yaml", []byte(node.InitConfig(version, "")), 0o600))
	s.must("slipway", "up", "--config", "/root/up.yaml", "--bundle", "/opt/slipway/bundle.tar", "--schedulable")
	kubeconfig, err := node.ReadFile(adminPath)
	s.try(err)
	s.config, s.client = s.connect(kubeconfig)
	s.runsControllers()
	s.provides()
}

func (s *suite) try(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// runsControllers starts the released controllers on the management cluster's machine, each as a unit.
func (s *suite) runsControllers() {
	s.Helper()
	source, err := management.Source(s.Context(), pinned)
	s.try(err)
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	s.try(err)
	crds, err := management.CRDs(source, certificate)
	s.try(err)
	s.applies(crds...)
	s.try(s.management.WriteFile(controllerDir+"/certs/tls.crt", certificate, 0o644))
	s.try(s.management.WriteFile(controllerDir+"/certs/tls.key", key, 0o600))
	built := s.TempDir()
	s.try(management.Build(s.Context(), pinned, built))
	for _, c := range management.Controllers {
		path := filepath.Join(controllerDir, c.Name)
		s.try(s.management.CopyIn(filepath.Join(built, c.Name), path))
		s.must(slices.Concat([]string{
			"systemd-run", "--unit=capi-" + c.Name, "--property=Restart=always", "--setenv=KUBECONFIG=" + adminPath, path,
		}, c.Args(controllerDir+"/certs"))...)
	}
	for _, c := range management.Controllers {
		s.eventually("the controller "+c.Name+" is ready", machineLimit, func() error { return s.answers(c.HealthPort()) })
	}
	webhooks, err := management.Webhooks(source, certificate)
	s.try(err)
	s.applies(webhooks...)
}

// answers asks a controller whether it's ready.
func (s *suite) answers(port int) error {
	c := http.Client{Timeout: pollEvery, Transport: &http.Transport{DialContext: s.lab.Dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/readyz", s.management.IP(), port), nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", res.Status)
	}
	return nil
}

// applies creates objects, or leaves those that exist.
func (s *suite) applies(objects ...client.Object) {
	s.Helper()
	for _, object := range objects {
		s.try(client.IgnoreAlreadyExists(s.client.Create(s.Context(), object)))
	}
}

// provides runs the infrastructure provider in this process until the test ends.
func (s *suite) provides() {
	s.Helper()
	path := filepath.Join(s.TempDir(), "provider.yaml")
	s.try(os.WriteFile(path, provider.CRDs, 0o600))
	s.try(s.management.CopyIn(path, "/root/provider.yaml"))
	s.must("kubectl", "--kubeconfig="+adminPath, "apply", "-f", "/root/provider.yaml")
	s.must("kubectl", "--kubeconfig="+adminPath, "wait", "--for=condition=Established", "--timeout=5m", "-f", "/root/provider.yaml")

	manager, err := ctrl.NewManager(s.config, ctrl.Options{Scheme: s.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	s.try(err)
	balancer := provider.NewBalancer(strconv.Itoa(apiPort), s.lab.Dial)
	endpoint := clusterv1.APIEndpoint{Host: provider.Gateway, Port: apiPort}
	s.try((&provider.ClusterReconciler{Client: manager.GetClient(), Balancer: balancer, Endpoint: endpoint}).SetupWithManager(manager))
	s.try((&provider.MachineReconciler{Client: manager.GetClient(), Machines: s.lab}).SetupWithManager(manager))
	listener, err := s.lab.Listen(strconv.Itoa(apiPort))
	s.try(err)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- balancer.Serve(ctx, listener) }()
	go func() { ended <- manager.Start(ctx) }()
	s.Cleanup(func() {
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				s.Errorf("the provider: %v", err)
			}
		}
	})
}
