// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pkg/errors"
	"k8s.io/client-go/util/cert"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-k8s/slipway/test/capi/management"
	"github.com/slipway-k8s/slipway/test/capi/provider"
)

const (
	pinned      = "controllers" // the module with Cluster API
	apiPort     = 6443
	answerLimit = 10 * time.Second
)

// host is where a management cluster's API server runs, and so its controllers.
type host interface {
	// install puts the files of a directory there, and returns their directory.
	install(dir string) string
	// start runs a program with a kubeconfig until the test ends.
	start(name, kubeconfig, program string, args ...string)
	// address is where the program's ports are.
	address() string
}

// unit is a controller's name in systemd.
func unit(c management.Controller) string { return "capi-" + c.Name }

// runsControllers starts the released controllers beside the API server.
func (s *suite) runsControllers(h host, kubeconfig []byte) {
	s.Helper()
	source, err := management.Source(s.Context(), pinned)
	s.try(err)
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	s.try(err)
	crds, err := management.CRDs(source, certificate)
	s.try(err)
	s.creates(crds...)

	dir := s.TempDir()
	s.try(management.Build(s.Context(), pinned, dir))
	for name, data := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "kubeconfig": kubeconfig} {
		s.try(os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	dir = h.install(dir)
	for _, c := range management.Controllers {
		h.start(unit(c), filepath.Join(dir, "kubeconfig"), filepath.Join(dir, c.Name), c.Args(dir)...)
	}
	for _, c := range management.Controllers {
		s.eventually("the controller "+c.Name+" is ready", machineLimit, func() error { return s.isReady(h, c) })
	}
	webhooks, err := management.Webhooks(source, certificate)
	s.try(err)
	s.creates(webhooks...)
}

func (s *suite) isReady(h host, controller management.Controller) error {
	c := http.Client{Timeout: answerLimit, Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}}
	url := "http://" + net.JoinHostPort(h.address(), strconv.Itoa(controller.HealthPort())) + "/readyz"
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return nil
}

// provides runs the infrastructure provider in this process until the test ends.
func (s *suite) provides(machines provider.Machines, balancer provider.Balancer) {
	s.Helper()
	s.creates(s.documents(provider.CRDs)...)
	again := true // another test of this process may have had controllers of the same names
	manager, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: s.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &again},
	})
	s.try(err)
	endpoint := clusterv1.APIEndpoint{Host: provider.Gateway, Port: apiPort}
	s.try((&provider.ClusterReconciler{Client: manager.GetClient(), Balancer: balancer, Endpoint: endpoint}).SetupWithManager(manager))
	s.try((&provider.MachineReconciler{Client: manager.GetClient(), Machines: machines}).SetupWithManager(manager))
	s.beside("the provider", manager.Start)
}

// balances spreads the connections to the cluster's endpoint until the test ends.
func (s *suite) balances(lab *provider.Lab) provider.Balancer {
	s.Helper()
	port := strconv.Itoa(apiPort)
	listener, err := lab.Listen(port)
	s.try(err)
	balancer := provider.NewBalancer(port, lab.Dial)
	s.beside("the balancer", func(ctx context.Context) error { return balancer.Serve(ctx, listener) })
	return balancer
}

// beside runs a part of the test until its end. If the part ends earlier, the next wait fails.
func (s *suite) beside(what string, part func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := part(ctx)
		if ctx.Err() == nil {
			s.mu.Lock()
			s.ended = errors.Errorf("%s has ended: %v", what, err)
			s.mu.Unlock()
		}
		ended <- err
	}()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v", what, err)
		}
	})
}

func (s *suite) early() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}
