// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"context"
	"slices"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-k8s/slipway/test/bundles"
	"github.com/slipway-k8s/slipway/test/capi/provider"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	program        = "../../bin/slipway"
	older          = "1.36"
	managementName = "management"
	adminPath      = "/etc/kubernetes/admin.conf"
	controllerDir  = "/opt/capi"
	bundlePath     = "/opt/slipway/bundle.tar"
)

// scenario is a management cluster in the lab, and the cluster that it manages.
type scenario struct {
	*suite
	lab        *provider.Lab
	management *nodes.Node
	succeeded  map[string]bool // the Machines on which cloud-init has ended without an error
}

// openScenario returns a scenario without machines. It goes at the test's end.
func openScenario(t *testing.T) *scenario {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	lab := &provider.Lab{Lab: openLab(t), Bundles: map[string]string{}}
	s := &scenario{suite: &suite{T: t, dial: lab.Dial}, lab: lab, succeeded: map[string]bool{}}
	s.try(lab.Down(t.Context())) // left by an interrupted run
	t.Cleanup(s.down)
	return s
}

// newScenario makes the management cluster: `slipway up` on a bare machine, and Cluster API's controllers beside it.
func newScenario(t *testing.T) *scenario {
	t.Helper()
	s := openScenario(t)
	defer t.Cleanup(s.explain) // the last cleanup is the first to run, so the provider and the balancer still do
	for _, minor := range []string{"", older} {
		s.lab.Bundles[s.lab.VersionOf(minor)] = s.bundle(minor, "", older)
	}
	kubeconfig := s.goesUp()
	s.config, s.client = s.connect(kubeconfig)
	s.runsControllers(machine{s}, kubeconfig)
	s.provides(s.lab, s.balances(s.lab))
	return s
}

func (s *scenario) down() {
	if used, err := s.lab.ProcessorTime(); err == nil {
		s.Logf("the machines used %.0fs of processor time", used.Seconds())
	}
	if err := s.lab.Down(context.Background()); err != nil {
		s.Error(err)
	}
}

// goesUp makes the management cluster's only node, and returns its administrator's kubeconfig.
func (s *scenario) goesUp() []byte {
	s.Helper()
	node, err := s.lab.StartNode(s.Context(), nodes.NodeSpec{Name: managementName, Bare: true})
	s.try(err)
	s.management = node
	version := s.lab.KubernetesVersion()
	s.try(node.InstallSlipway())
	s.try(node.ConfigurePods())
	s.try(node.CopyIn(s.lab.Bundles[version], bundlePath))
	s.try(node.WriteFile("/root/up.yaml", []byte(node.InitConfig(version, "")), 0o600))
	_, err = node.Output(s.Context(), "slipway", "up", "--config", "/root/up.yaml", "--bundle", bundlePath, "--schedulable")
	s.try(err)
	kubeconfig, err := node.ReadFile(adminPath)
	s.try(err)
	return kubeconfig
}

// machine is the management cluster's, for controllers beside its API server.
type machine struct{ *scenario }

func (m machine) install(dir string) string {
	m.Helper()
	m.try(m.management.CopyIn(dir, controllerDir))
	return controllerDir
}

func (m machine) address() string { return m.management.IP() }

func (m machine) start(name, kubeconfig, program string, args ...string) {
	m.Helper()
	_, err := m.management.Output(m.Context(), slices.Concat([]string{
		"systemd-run", "--unit=" + name, "--property=Restart=always", "--property=RestartSec=5", "--property=StartLimitIntervalSec=0",
		"--setenv=KUBECONFIG=" + kubeconfig, program,
	}, args)...)
	m.try(err)
}

// bundle makes a bundle of a minor version of Kubernetes. Its etcd and CoreDNS are the newest's, as Slipway chooses those by its
// own version. It also has kube-proxy of the versions in use: Cluster API changes kube-proxy's version on all machines at once, after
// it has replaced the control plane.
func (s *scenario) bundle(minor string, used ...string) string {
	s.Helper()
	list, err := bundles.Older(s.Context(), s.lab.Lab, minor)
	s.try(err)
	for _, other := range used {
		more, err := bundles.List(s.Context(), s.lab.Lab, other)
		s.try(err)
		for _, p := range more.Parts {
			if bundles.IsImage(p, "kube-proxy") && !list.Has(p.Type, p.Name) {
				list.Parts = append(list.Parts, p)
			}
		}
	}
	into, err := bundles.Create(s.Context(), program, list, s.TempDir())
	s.try(err)
	return into
}
