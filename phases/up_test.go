// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/workflow"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/machine"
	"github.com/slipway-k8s/slipway/phases/reset"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestSchedulable removes an earlier run's taint, and no other.
func TestSchedulable(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	object := cluster.NewNode("cp-1")
	own := corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoSchedule}
	object.Spec.Taints = []corev1.Taint{{Key: cluster.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}, own}
	phasetest.Fatal(t, s.API.Ensure(t.Context(), object))
	taints := func() []corev1.Taint {
		live := cluster.NewNode("cp-1")
		_, err := s.API.Get(t.Context(), live)
		phasetest.Fatal(t, err)
		return live.Spec.Taints
	}
	s.Play(t, schedulable())
	if len(taints()) != 2 {
		t.Errorf("without the flag: %v", taints())
	}
	s.Config.Schedulable = true
	s.Play(t, schedulable())
	s.Done = nil
	s.Play(t, schedulable())
	if diff := cmp.Diff([]corev1.Taint{own}, taints()); diff != "" || len(s.Done) > 0 {
		t.Errorf("did %q; taints, -want +got:\n%s", s.Done, diff)
	}
}

// TestUpCommand: further hosts need the bundle, too.
func TestUpCommand(t *testing.T) {
	for file, want := range map[string]string{"": "up", "/opt/b.tar": "up --bundle /opt/b.tar", "my bundle.tar": "up --bundle 'my bundle.tar'"} {
		if got := upCommand(&machine.Prepare{BundleFile: file}); got != want {
			t.Errorf("%q: %s, want %s", file, got, want)
		}
	}
	if got := upCommand(&machine.Prepare{BundleFile: "b.tar", BundleDigest: "sha256:00"}); got != "up --bundle b.tar --digest sha256:00" {
		t.Error(got)
	}
}

// TestUpIsItsParts: up has all phases of host prepare, init and join, and waits for them in the same order.
func TestUpIsItsParts(t *testing.T) {
	prefixed := func(part string, paths []string) (out []string) {
		for _, path := range paths {
			out = append(out, part+"/"+path)
		}
		return append([]string{part}, out...)
	}
	prepare, host := &machine.Prepare{}, &config.Machine{}
	want := append(prefixed("prepare", workflow.Paths(prepare.Phases())), prefixed("init", workflow.Paths(bootstrap.Init()))...)
	want = append(want, "schedulable", "wait-node")
	if diff := cmp.Diff(want, workflow.Paths(Up(prepare, host))); diff != "" {
		t.Errorf("up, -want +got:\n%s", diff)
	}
	want = append(prefixed("reset", workflow.Paths(reset.Node())), prefixed("host", workflow.Paths(machine.Reset()))...)
	if diff := cmp.Diff(want, workflow.Paths(DownHost(host))); diff != "" {
		t.Errorf("down --host, -want +got:\n%s", diff)
	}
}
