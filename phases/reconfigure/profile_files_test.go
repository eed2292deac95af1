// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// harden runs `reconfigure --profile NAME`, without the wait for a kubelet's request.
func harden(t *testing.T, s *phasetest.Stage, name string) error {
	t.Helper()
	c, _, err := loaderOn(s).Profile(t.Context(), name, nil)
	phasetest.Fatal(t, err)
	s.Config = c.Node
	phases := slices.DeleteFunc(New(c, "/usr/bin/slipway").Phases(), func(p step.Phase) bool { return p.Name == "kubelet-serving" })
	return step.Run(t.Context(), s.Env, phases, step.Options{})
}

// profileFiles are the files of profiles on this node, by path; empty for a missing one.
func profileFiles(t *testing.T, s *phasetest.Stage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, f := range profile.Files() {
		data, err := host.ReadIfExists(s.Host, f.Path)
		phasetest.Fatal(t, err)
		all[f.Path] = string(data)
	}
	return all
}

// asMade are the files as a profile makes them.
func asMade() map[string]string {
	all := map[string]string{}
	for _, f := range profile.Files() {
		all[f.Path] = string(f.Data)
	}
	return all
}

// onRestart calls do whenever the kubelet restarts.
func onRestart(s *phasetest.Stage, do func() error) {
	s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
		host.RestartUnit: func(context.Context, string) error { return do() },
	}
}

// TestHarden: the files are there before the API server needs them, an operator's stays, and the same command again does nothing.
func TestHarden(t *testing.T) {
	for name, own := range map[string]string{"none": "", "the operator's": "mine\n"} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			want := asMade()
			if own != "" {
				path := profile.Files()[0].Path
				s.Put(t, path, own)
				want[path] = own
			}
			onRestart(s, func() error {
				if diff := cmp.Diff(want, profileFiles(t, s)); diff != "" {
					t.Errorf("the kubelet restarts with other files:\n%s", diff)
				}
				return nil
			})
			phasetest.Fatal(t, harden(t, s, profile.CIS))
			if own != "" {
				fact.In(t, s.Said.String(), profile.Files()[0].Path, "mine")
			}
			fact.In(t, s.Get(t, apiServer), "--authentication-config=", "--audit-policy-file=", "--profiling=false")
			fact.In(t, s.Get(t, settings), "protectKernelDefaults: true")
			fact.In(t, stored(t, s, "kubeadm-config", "ClusterConfiguration"), "audit-policy", "terminated-pod-gc-threshold")
			fact.In(t, stored(t, s, "kubelet-config", "kubelet"), "podPidsLimit: 4096")
			if info, err := os.Stat(s.Root + profile.LogMount().Dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the directory of logs: %v, %v", info, err)
			}
			s.Done, s.FakeHost.Jobs = nil, nil
			phasetest.Fatal(t, harden(t, s, profile.CIS))
			if stopped := s.FakeHost.Did("stop container"); len(s.Done)+len(stopped)+len(s.FakeHost.Orders()) > 0 {
				t.Errorf("the second time, did %q, and stopped %q", s.Done, stopped)
			}
		})
	}
}

// TestHardenKernel: a kubelet that wouldn't start with this host's kernel parameters isn't restarted.
func TestHardenKernel(t *testing.T) {
	s := live(t)
	s.Put(t, host.ProcSys+"kernel/panic", "0\n")
	fact.Error(t, harden(t, s, profile.CIS), "KernelDefaults", "kernel.panic=10")
	if state(t, s) != "" || strings.Join(slices.Collect(maps.Values(profileFiles(t, s))), "") != "" {
		t.Error("it has changed the node")
	}
	phasetest.Fatal(t, harden(t, s, profile.Audit)) // which leaves the kubelet alone
}

// TestHardenedGoesBack: a change that fails, is killed or is taken back leaves none of its files.
func TestHardenedGoesBack(t *testing.T) {
	none := map[string]string{}
	for path := range asMade() {
		none[path] = ""
	}
	isAsBefore := func(t *testing.T, s *phasetest.Stage, before map[string]string) {
		t.Helper()
		if diff := cmp.Diff(none, profileFiles(t, s)) + cmp.Diff(before, files(t, s)); diff != "" {
			t.Errorf("files:\n%s", diff)
		}
	}
	t.Run("fails", func(t *testing.T) {
		s := live(t)
		before, refused := files(t, s), errors.New("it does not work")
		onRestart(s, func() error {
			if strings.Contains(s.Get(t, apiServer), "audit-policy-file") {
				return refused
			}
			return nil
		})
		err := harden(t, s, profile.CIS)
		if back := (*node.RolledBackError)(nil); !errors.Is(err, refused) || !errors.As(err, &back) || state(t, s) != trial.Reverted {
			t.Errorf("%v; the change is %q", err, state(t, s))
		}
		isAsBefore(t, s, before)
	})
	t.Run("isn't confirmed", func(t *testing.T) { // the cluster has this configuration, and only files were missing
		s := live(t)
		phasetest.Fatal(t, harden(t, s, profile.Audit))
		before := files(t, s)
		for path := range none {
			phasetest.Fatal(t, s.Host.Remove(path))
		}
		c, _, err := loaderOn(s).Profile(t.Context(), profile.Audit, nil)
		phasetest.Fatal(t, err)
		s.Config = c.Node
		r := New(c, "/usr/bin/slipway")
		r.Try, r.Wait = time.Nanosecond, func(wait func() error) error { return wait() }
		err = step.Run(t.Context(), s.Env, r.Phases(), step.Options{})
		if back := (*node.RolledBackError)(nil); !errors.As(err, &back) || len(c.Fields) > 0 || state(t, s) != trial.Reverted || len(guarded(t, s)) > 0 {
			t.Errorf("%v; %d fields; the change is %q, and there are still %q", err, len(c.Fields), state(t, s), guarded(t, s))
		}
		isAsBefore(t, s, before)
	})
	t.Run("is taken back", func(t *testing.T) {
		s := live(t)
		before := files(t, s)
		phasetest.Fatal(t, harden(t, s, profile.CIS))
		onRestart(s, func() error {
			if diff := cmp.Diff(asMade(), profileFiles(t, s)); diff != "" {
				t.Errorf("the files are gone before the API server has restarted:\n%s", diff)
			}
			return errors.New("not yet")
		})
		if err := takeBack(t, s); err == nil || cmp.Diff(asMade(), profileFiles(t, s)) != "" {
			t.Errorf("%v; the files: %v", err, profileFiles(t, s))
		}
		s.FakeHost.On.Orders = nil
		s.Play(t, finish(false)...)
		phasetest.Fatal(t, takeBack(t, s))
		isAsBefore(t, s, before)
	})
}

// TestNodeHardens: another control plane gets the files with the stored settings, and later a missing one again.
func TestNodeHardens(t *testing.T) {
	s := live(t)
	c, _, err := loaderOn(s).Profile(t.Context(), profile.CIS, nil)
	phasetest.Fatal(t, err)
	text, err := c.Node.KubeadmConfigYAML()
	phasetest.Fatal(t, err)
	cm := node.ConfigMap("kubeadm-config")
	_, err = s.API.Update(t.Context(), cm, func() (bool, error) {
		cm.Data["ClusterConfiguration"] = string(text)
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, edits.ChangedByOperator, time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
		return true, nil
	})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, toStored(t, s))
	fact.In(t, s.Get(t, apiServer), "--authentication-config=", "--audit-policy-file=")
	if diff := cmp.Diff(asMade(), profileFiles(t, s)); diff != "" {
		t.Errorf("files:\n%s", diff)
	}
	phasetest.Fatal(t, os.Remove(s.Root+profile.Files()[0].Path))
	phasetest.Fatal(t, toStored(t, s))
	if diff := cmp.Diff(asMade(), profileFiles(t, s)); diff != "" {
		t.Errorf("files:\n%s", diff)
	}
}

// TestOwnerGoesBack: a file of a rootless API server is put back with its owner.
func TestOwnerGoesBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	s := live(t)
	policy := profile.Files()[0]
	s.Put(t, policy.Path, string(policy.Data))
	phasetest.Fatal(t, os.Chown(s.Root+policy.Path, 997, 996))
	begin(t, s, policy.Path)
	phasetest.Fatal(t, os.Remove(s.Root+policy.Path))
	s.Play(t, RestoreFiles()...)
	if want := policy.Path + " 997:996"; s.Get(t, policy.Path) != string(policy.Data) || !slices.Contains(s.FakeHost.Owned, want) {
		t.Errorf("%q, want %s", s.FakeHost.Owned, want)
	}
}
