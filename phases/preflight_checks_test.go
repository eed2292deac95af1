// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/preflight"
)

// The checks use what the kubelet will read, including patches.
func TestCheckInitGoesByThePatchedKubelet(t *testing.T) {
	s := preflightStage(t, "")
	s.host.Has.UID, s.host.Has.Swap = 0, []string{"/swapfile"}
	s.put(t, "/patches/kubeletconfiguration0.yaml", "failSwapOn: false\n")
	before := stamps(t, s.root)
	for dir, want := range map[string]preflight.Outcome{"": preflight.WithError, "/patches": preflight.WithWarning} {
		s.Config.PatchesDir = dir
		found, err := CheckInit(t.Context(), s.Env)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			if r.Check == "Swap" && r.Outcome() != want {
				t.Errorf("patches %q: swap is %s, want %s: %s", dir, r.Outcome(), want, r.Fault())
			}
		}
	}
	if diff := cmp.Diff(before, stamps(t, s.root)); diff != "" || len(s.host.Jobs) > 0 {
		t.Errorf("did %v, files (-before +after):\n%s", s.host.Jobs, diff)
	}
}

// Without a cluster, nobody knows to which cluster a file belongs: that is not an error.
func TestCheckJoinWithoutACluster(t *testing.T) {
	s := preflightStage(t, "")
	s.Config.ControlPlane, s.Config.Join = false, &config.Join{CAPath: "/etc/kubernetes/pki/ca.crt"}
	s.put(t, "/etc/kubernetes/kubelet.conf", "")
	found, err := CheckJoin(t.Context(), s.Env)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]preflight.Outcome{}
	for _, r := range found {
		outcomes[r.Check] = r.Outcome()
	}
	for _, name := range []string{"FileAvailable--etc-kubernetes-kubelet.conf", "ClockSkew"} {
		if outcomes[name] != preflight.SkippedResult {
			t.Errorf("%s is %q", name, outcomes[name])
		}
	}
}
