// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pkg/errors"
)

// TestProbeEtcd: an etcd client reaches a control plane's etcd as the controllers do, by a port that the API server forwards.
func TestProbeEtcd(t *testing.T) {
	s := openScenario(t)
	defer t.Cleanup(s.explain)
	s.lab.Bundles[s.lab.KubernetesVersion()] = s.bundle("")
	s.goesUp()
	etcdctl, err := s.lab.Program(t.Context(), "etcdctl")
	s.try(err)
	s.try(s.management.CopyIn(etcdctl, "/usr/local/bin/etcdctl"))
	machine{s}.start("forward", adminPath, "kubectl", "port-forward", "--namespace=kube-system", "pod/etcd-"+managementName, "12379:2379")
	const pki = "/etc/kubernetes/pki/etcd/"
	s.eventually("etcd answers", machineLimit, func() error {
		out, err := s.management.Output(t.Context(), "etcdctl", "--endpoints=https://127.0.0.1:12379", "--cacert="+pki+"ca.crt",
			"--cert="+pki+"healthcheck-client.crt", "--key="+pki+"healthcheck-client.key", "member", "list")
		if err == nil && !strings.Contains(out, managementName) {
			err = errors.Errorf("its members are %q", out)
		}
		return err
	})
}

// TestProbeJinja: cloud-init writes the bootstrap data's files as parse expects.
func TestProbeJinja(t *testing.T) {
	s := openScenario(t)
	defer t.Cleanup(s.explain)
	bundle := filepath.Join(t.TempDir(), "bundle.tar")
	s.try(os.WriteFile(bundle, nil, 0o600)) // nothing uses it
	version := s.lab.KubernetesVersion()
	s.lab.Bundles[version] = bundle
	data, err := os.ReadFile("testdata/bootstrap/first-control-plane.yaml")
	s.try(err)
	data, _, _ = bytes.Cut(data, []byte("\nruncmd:\n"))
	const name = "probe-1"
	_, err = s.lab.Boot(t.Context(), name, version, data)
	s.try(err)
	node, err := s.lab.Node(name)
	s.try(err)
	s.eventually("cloud-init ends", machineLimit, func() error {
		ended, faults := bootResult(node)
		if len(faults) > 0 {
			t.Fatalf("cloud-init fails: %q", faults)
		}
		if !ended {
			return errors.New("it has no result yet")
		}
		return nil
	})
	for _, f := range parse(t, data, name).WriteFiles {
		if got, err := node.ReadFile(f.Path); err != nil || string(got) != f.Content {
			t.Errorf("%s has %q, %v; want %q", f.Path, got, err, f.Content)
		}
	}
}
