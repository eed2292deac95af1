// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// The checks use the settings the kubelet will read, including patches.
func TestCheckInitGoesByThePatchedKubelet(t *testing.T) {
	s := preflightStage(t, "")
	s.FakeHost.Has.UID, s.FakeHost.Has.Swap = 0, []string{"/swapfile"}
	s.Put(t, "/patches/kubeletconfiguration0.yaml", "failSwapOn: false\n")
	before := phasetest.Stamps(t, s.Root)
	for dir, want := range map[string]fault.Severity{"": fault.Error, "/patches": fault.Warning} {
		s.Config.PatchesDir = dir
		found, err := CheckInit(t.Context(), s.Env)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			if r.Check == "Swap" && r.Outcome() != want {
				t.Errorf("patches %q: swap is %s, want %s: %s", dir, r.Outcome(), want, r.Findings)
			}
		}
	}
	if diff := cmp.Diff(before, phasetest.Stamps(t, s.Root)); diff != "" || len(s.FakeHost.Jobs) > 0 {
		t.Errorf("did %v, files (-before +after):\n%s", s.FakeHost.Jobs, diff)
	}
}

// Without a cluster, nobody knows which cluster a file belongs to: that's not an error.
func TestCheckJoinWithoutACluster(t *testing.T) {
	s := preflightStage(t, "")
	s.Config.ControlPlane, s.Config.Join = false, &config.Join{CAPath: "/etc/kubernetes/pki/ca.crt"}
	s.Put(t, "/etc/kubernetes/kubelet.conf", "")
	found, err := CheckJoin(t.Context(), s.Env)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]fault.Severity{}
	for _, r := range found {
		outcomes[r.Check] = r.Outcome()
	}
	for _, name := range []string{"FileAvailable--etc-kubernetes-kubelet.conf", "ClockSkew"} {
		if outcomes[name] != fault.Skipped {
			t.Errorf("%s is %q", name, outcomes[name])
		}
	}
}

const etcdImage = "registry.k8s.io/etcd:3.7.0-0"

// preflightStage runs as a user other than root, on a host that lacks one image.
func preflightStage(t *testing.T, ignore string) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.IgnorePreflightErrors = strings.Fields(ignore)
	s.FakeHost.Has.UID, s.FakeHost.Has.AllImages = 1000, true
	s.FakeHost.On.ImagePresent = func(_ context.Context, _, image string) (bool, error) { return image != etcdImage, nil }
	return s
}

// TestPreflightReadsNetwork: an unreadable manifest ends init before anything is written.
func TestPreflightReadsNetwork(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.NetworkAddOn = config.NetworkAddOn{Name: "net.yaml", Manifest: []byte("kind: Pod\n")}
	err := step.Run(t.Context(), s.Env, []step.Phase{preflightInit()}, step.Options{})
	fact.Error(t, err, "--network net.yaml: document 1:", "apiVersion", "kind")
	if len(s.Done) > 0 {
		t.Errorf("did %q", s.Done)
	}
}

func TestPreflightStopsBeforePulling(t *testing.T) {
	s := preflightStage(t, "")
	err := runPreflightInit(t.Context(), s.Env)
	if !strings.Contains(phasetest.Message(err), "[ERROR IsPrivilegedUser]: ") || !strings.Contains(fault.Remedy(err), "--ignore-preflight-errors=IsPrivilegedUser") {
		t.Errorf("error %q", phasetest.Message(err))
	}
	if pulled := s.FakeHost.Did("pull"); len(pulled) > 0 {
		t.Errorf("pulled %v", pulled)
	}
}

func TestPreflightIgnoresAndPulls(t *testing.T) {
	s := preflightStage(t, "all")
	if err := runPreflightInit(t.Context(), s.Env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{etcdImage}, s.FakeHost.Did("pull")); diff != "" {
		t.Errorf("pulled (-want +got):\n%s", diff)
	}
	for _, want := range []string{"[WARNING] IsPrivilegedUser: ", etcdImage + ": "} {
		if !strings.Contains(s.Said.String(), want) {
			t.Errorf("did not say %q:\n%s", want, s.Said.String())
		}
	}
}

// TestPreflightAfterPowerCut: the runtime may have lost the files of images that were being pulled then.
func TestPreflightAfterPowerCut(t *testing.T) {
	s := preflightStage(t, "all")
	s.FakeHost.Has.Images, s.FakeHost.Has.Unsettled = []host.Image{{Names: []string{etcdImage}}}, []string{etcdImage}
	phasetest.Fatal(t, node.PullMissingImages(t.Context(), s.Env))
	if diff := cmp.Diff([]string{etcdImage}, s.FakeHost.Did("pull")); diff != "" {
		t.Errorf("pulled (-want +got):\n%s", diff)
	}
}

func TestPreflightNamesAnImageThatCannotBePulled(t *testing.T) {
	s := preflightStage(t, "")
	s.FakeHost.Fail["pull "+etcdImage] = errors.New("no such host")
	for _, want := range []string{"[ERROR ImagePull]: ", etcdImage, "no such host"} {
		if err := node.PullMissingImages(t.Context(), s.Env); !strings.Contains(phasetest.Message(err), want) {
			t.Errorf("error %q, want %q", phasetest.Message(err), want)
		}
	}
	// The command that only pulls images has no check to ignore.
	if got := phasetest.Message(node.PullImages(t.Context(), s.Env)); !strings.HasPrefix(got, etcdImage+": no such host\n  ") || strings.Contains(got, "ignore") {
		t.Errorf("error %q", got)
	}
}

// Computing this tool's own files for the checks leaves no trace, even if a rootless control plane's accounts are missing.
func TestPreflightWritesNothing(t *testing.T) {
	s := phasetest.RootlessStage(t)
	s.Config.IgnorePreflightErrors = []string{"all"}
	s.FakeHost.Has.AllImages = true
	before := phasetest.Stamps(t, s.Root)
	if err := runPreflightInit(t.Context(), s.Env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, phasetest.Stamps(t, s.Root)); diff != "" || len(s.FakeHost.Jobs) > 0 || len(s.FakeHost.Owned) > 0 {
		t.Errorf("did %v, gave away %v, files (-before +after):\n%s", s.FakeHost.Jobs, s.FakeHost.Owned, diff)
	}
	wanted, err := wantedManifests(s.Env)
	if err != nil {
		t.Fatal(err)
	}
	s.Play(t, localEtcd(), controlPlane())
	var paths []string
	for path, data := range wanted {
		paths = append(paths, path[strings.LastIndex(path, "/")+1:])
		if got := s.Get(t, path); got != string(data) {
			t.Errorf("%s (-wanted +written):\n%s", path, cmp.Diff(string(data), got))
		}
	}
	slices.Sort(paths)
	if diff := cmp.Diff([]string{"etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"}, paths); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
}
