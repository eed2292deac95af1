// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const etcdImage = "registry.k8s.io/etcd:3.7.0-0"

// preflightStage runs as another user than root, on a host that lacks one image.
func preflightStage(t *testing.T, ignore string) *stage {
	t.Helper()
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.IgnorePreflightErrors = strings.Fields(ignore)
	s.host.Has.UID, s.host.Has.AllImages = 1000, true
	s.host.On.ImagePresent = func(_ context.Context, _, image string) (bool, error) { return image != etcdImage, nil }
	return s
}

// TestPreflightReadsNetwork: a manifest that cannot be read ends init before anything is written.
func TestPreflightReadsNetwork(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.NetworkAddOn = config.NetworkAddOn{Name: "net.yaml", Manifest: []byte("kind: Pod\n")}
	err := Run(t.Context(), s.Env, []Phase{preflightInit()}, Options{})
	fact.Error(t, err, "--network net.yaml: document 1:", "apiVersion", "kind")
	if len(s.done) > 0 {
		t.Errorf("did %q", s.done)
	}
}

func TestPreflightStopsBeforePulling(t *testing.T) {
	s := preflightStage(t, "")
	err := runPreflightInit(t.Context(), s.Env)
	if !strings.Contains(message(err), "[ERROR IsPrivilegedUser]: ") || !strings.Contains(fault.Remedy(err), "--ignore-preflight-errors=IsPrivilegedUser") {
		t.Errorf("error %q", message(err))
	}
	if pulled := s.host.Did("pull"); len(pulled) > 0 {
		t.Errorf("pulled %v", pulled)
	}
}

func TestPreflightIgnoresAndPulls(t *testing.T) {
	s := preflightStage(t, "all")
	if err := runPreflightInit(t.Context(), s.Env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{etcdImage}, s.host.Did("pull")); diff != "" {
		t.Errorf("pulled (-want +got):\n%s", diff)
	}
	for _, want := range []string{"[WARNING] IsPrivilegedUser: ", etcdImage + ": "} {
		if !strings.Contains(s.said.String(), want) {
			t.Errorf("did not say %q:\n%s", want, s.said.String())
		}
	}
}

func TestPreflightNamesAnImageThatCannotBePulled(t *testing.T) {
	s := preflightStage(t, "")
	s.host.Fail["pull "+etcdImage] = errors.New("no such host")
	for _, want := range []string{"[ERROR ImagePull]: ", etcdImage, "no such host"} {
		if err := pullImages(t.Context(), s.Env); !strings.Contains(message(err), want) {
			t.Errorf("error %q, want %q", message(err), want)
		}
	}
	// The command that only pulls images has no check to ignore.
	if got := message(PullImages(t.Context(), s.Env)); !strings.HasPrefix(got, etcdImage+": no such host\n  ") || strings.Contains(got, "ignore") {
		t.Errorf("error %q", got)
	}
}

// What the checks treat as this tool's own files is computed without a trace, even if the accounts of a rootless
// control plane are missing.
func TestPreflightWritesNothing(t *testing.T) {
	s := rootlessStage(t)
	s.Config.IgnorePreflightErrors = []string{"all"}
	s.host.Has.AllImages = true
	before := stamps(t, s.root)
	if err := runPreflightInit(t.Context(), s.Env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, stamps(t, s.root)); diff != "" || len(s.host.Jobs) > 0 || len(s.host.Owned) > 0 {
		t.Errorf("did %v, gave away %v, files (-before +after):\n%s", s.host.Jobs, s.host.Owned, diff)
	}
	wanted, err := wantedManifests(s.Env)
	if err != nil {
		t.Fatal(err)
	}
	s.play(t, localEtcd(), controlPlane())
	var paths []string
	for path, data := range wanted {
		paths = append(paths, path[strings.LastIndex(path, "/")+1:])
		if got := s.get(t, path); got != string(data) {
			t.Errorf("%s (-wanted +written):\n%s", path, cmp.Diff(string(data), got))
		}
	}
	slices.Sort(paths)
	if diff := cmp.Diff([]string{"etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"}, paths); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
}
