// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// journal makes phases that note that they ran.
type journal struct {
	mu  sync.Mutex
	ran []string
}

func (j *journal) phase(name string, err error) Phase {
	return Phase{Name: name, Run: func(context.Context, *Env) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ran = append(j.ran, name)
		return err
	}}
}

func testEnv(out *bytes.Buffer) *Env {
	return &Env{Config: &config.Node{}, UI: ui.NewLines("slipway", out, out)}
}

func TestRunInOrder(t *testing.T) {
	broken := errors.New("out of paper")
	tests := []struct {
		name string
		fail error
		skip []string
		want []string
		err  string
	}{
		{name: "all", want: []string{"a", "x", "y", "c"}},
		{name: "a phase left out", skip: []string{"a"}, want: []string{"x", "y", "c"}},
		{name: "a parent left out", skip: []string{"b"}, want: []string{"a", "c"}},
		{name: "a child left out", skip: []string{"b/x"}, want: []string{"a", "y", "c"}},
		{name: "an unknown one", skip: []string{"b/z", "d"},
			err: "skip-phases: no phase is called b/z, d; the phases are a, b, b/x, b/y, c"},
		{name: "a failure ends the run and is named once", fail: broken, want: []string{"a", "x", "y"}, err: "phase b/y: out of paper"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := &journal{}
			workflow := []Phase{
				j.phase("a", nil),
				{Name: "b", Children: []Phase{j.phase("x", nil), j.phase("y", tt.fail)}},
				j.phase("c", nil),
			}
			err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{Skip: tt.skip})
			if got := message(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			if diff := cmp.Diff(tt.want, j.ran); diff != "" {
				t.Errorf("ran (-want +got):\n%s", diff)
			}
			if tt.fail != nil && !errors.Is(err, tt.fail) {
				t.Errorf("%v does not wrap its cause", err)
			}
		})
	}
}

func TestRunSideBySideKeepsToAfter(t *testing.T) {
	for range 50 {
		j := &journal{}
		late, leaf := j.phase("leaf", nil), j.phase("other-leaf", nil)
		late.After, leaf.After = []string{"ca"}, []string{"ca"}
		workflow := []Phase{{Name: "certs", SideBySide: true, Children: []Phase{late, leaf, j.phase("ca", nil)}}}
		if err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{}); err != nil {
			t.Fatal(err)
		}
		if len(j.ran) != 3 || j.ran[0] != "ca" {
			t.Fatalf("ran %v, and ca must be the first", j.ran)
		}
	}
}

func TestRunSideBySideEndsWhenTheFirstFails(t *testing.T) {
	j := &journal{}
	leaf := j.phase("leaf", nil)
	leaf.After = []string{"ca"}
	workflow := []Phase{{Name: "certs", SideBySide: true, Children: []Phase{j.phase("ca", errors.New("no key")), leaf}}}
	err := Run(t.Context(), testEnv(&bytes.Buffer{}), workflow, Options{})
	if got := message(err); got != "phase certs/ca: no key" {
		t.Errorf("error %q", got)
	}
	if diff := cmp.Diff([]string{"ca"}, j.ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
}

func TestSkippedPhasesSayWhy(t *testing.T) {
	var out bytes.Buffer
	workflow := []Phase{{Name: "etcd", Skip: func(*config.Node) string { return "etcd is external" }}}
	if err := Run(t.Context(), testEnv(&out), workflow, Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "[etcd] skipped: etcd is external\n"; out.String() != want {
		t.Errorf("said %q, want %q", out.String(), want)
	}
}

func TestCancelledRunStartsNothing(t *testing.T) {
	j := &journal{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, testEnv(&bytes.Buffer{}), []Phase{j.phase("a", nil)}, Options{})
	if !errors.Is(err, context.Canceled) || len(j.ran) > 0 {
		t.Errorf("error %v, ran %v", err, j.ran)
	}
}

func TestInitHasThePeersPhases(t *testing.T) {
	want := strings.Fields(`preflight
		certs certs/ca certs/apiserver certs/apiserver-kubelet-client certs/front-proxy-ca certs/front-proxy-client
		certs/etcd-ca certs/etcd-server certs/etcd-peer certs/etcd-healthcheck-client certs/apiserver-etcd-client certs/sa
		kubeconfig kubeconfig/admin kubeconfig/super-admin kubeconfig/kubelet kubeconfig/controller-manager kubeconfig/scheduler
		etcd etcd/local
		control-plane control-plane/apiserver control-plane/controller-manager control-plane/scheduler
		kubelet-start wait-control-plane
		upload-config upload-config/kubeadm upload-config/kubelet
		upload-certs mark-control-plane bootstrap-token
		kubelet-finalize kubelet-finalize/enable-client-cert-rotation
		addon addon/coredns addon/kube-proxy
		show-join-command`)
	if diff := cmp.Diff(want, Paths(Init())); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
