// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestFirstMachine: beside an API server and etcd alone, the controllers come as far as the boot of the first control plane, with
// data that Slipway reads. They remove the machine with its cluster.
func TestFirstMachine(t *testing.T) {
	ctrl.SetLogger(klog.Background())
	s := &suite{T: t, dial: (&net.Dialer{}).DialContext}
	lab := openLab(t)
	programs := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		path, err := lab.Program(t.Context(), name)
		s.try(err)
		s.try(os.Symlink(path, filepath.Join(programs, name)))
	}
	server := &envtest.Environment{BinaryAssetsDirectory: programs, ControlPlaneStartTimeout: machineLimit}
	_, err := server.Start()
	s.try(err)
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.config, s.client = s.connect(server.KubeConfig)
	s.runsControllers(here{s}, server.KubeConfig)
	machines := &notes{booted: make(chan boot, 1), removed: make(chan string, 1)}
	s.provides(machines, apart{})
	version := lab.KubernetesVersion()
	s.makesCluster(version)

	booted := receive(s, machines.booted)
	if booted.version != version {
		t.Errorf("it has the image of %s", booted.version)
	}
	parse(t, booted.userData, booted.name).makesFirst(t, booted.name, version)
	cluster := &clusterv1.Cluster{}
	s.try(s.get(cluster, clusterName))
	s.try(s.client.Delete(t.Context(), cluster))
	if removed := receive(s, machines.removed); removed != booted.name {
		t.Errorf("%s is removed, want %s", removed, booted.name)
	}
	s.goes(cluster, machineLimit)
}

func receive[T any](s *suite, from <-chan T) T {
	s.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(machineLimit):
		s.Fatal("it takes too long")
		panic("unreachable")
	}
}

// notes are of machines that exist only on paper.
type notes struct {
	booted  chan boot
	removed chan string
}

type boot struct {
	name, version string
	userData      []byte
}

func (n *notes) Boot(_ context.Context, name, version string, userData []byte) (string, error) {
	n.booted <- boot{name, version, userData}
	return "127.0.0.2", nil
}

func (n *notes) Remove(_ context.Context, name string) error {
	n.removed <- name
	return nil
}

// apart is a balancer of nothing.
type apart struct{}

func (apart) Set(...string) {}

// here is this machine, for controllers beside an API server on loopback.
type here struct{ *suite }

func (here) install(dir string) string { return dir }
func (here) address() string           { return "127.0.0.1" }

func (h here) start(name, kubeconfig, program string, args ...string) {
	h.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(h.Context(), program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdout, cmd.Stderr = &log, &log
	h.try(cmd.Start())
	h.Cleanup(func() {
		_ = cmd.Wait() // the test's context has ended
		if h.Failed() {
			h.Logf("%s:\n%s", name, log.Bytes()[max(log.Len()-6000, 0):])
		}
	})
}
