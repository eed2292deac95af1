// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/tier"
)

// joinInstants are spread over the join of a control plane. Those of a round are in order, and seconds apart, so that each run
// gets past the steps that the one before had begun.
var joinInstants = [][]instant{
	{
		{"[preflight] Checking", 0},
		{"[kubelet-start] Starting", 20 * time.Millisecond},
		{"Adding https://", 0},
		{"Waiting … etcd", 500 * time.Millisecond},
	}, {
		{"[kubelet-start] Stopping", 0},
		{"Writing /etc/kubernetes/manifests/", 0},
		{"Adding https://", 100 * time.Millisecond},
		{"etcd has 2 members", 0},
	}, {
		{`Generating … "apiserver"`, 0},
		{"Waiting … certificate", 100 * time.Millisecond},
	},
}

// TestCrashJoin kills the join of a control plane again and again, each time at a later instant of a round, and lets it finish.
// Between rounds it resets the node.
func TestCrashJoin(t *testing.T) {
	tier.OnlyFull(t, "TestCrashInit")
	cp1 := boot(t)
	cp2 := cp1.another("cp-2")
	cp1.knowsEndpoint([]machine{cp1, cp2})
	cp2.knowsEndpoint([]machine{cp1, cp2})
	cp1.init(document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"), "--upload-certs")
	_, args := cp1.joinCommands()
	command := append([]string{"slipway", "join"}, args...)
	for i, round := range joinInstants {
		if i > 0 {
			cp2.reset()
			cp1.hasVoters(cp1)
			cp1.kubectl("delete", "node", "cp-2")
		}
		for _, at := range round {
			if !cp2.killedAt(at, nothingMore, command...) {
				t.Fatalf("the join finished before %s", at)
			}
		}
		cp2.runs("slipway", "join", args)
		cp1.hasVoters(cp1, cp2)
		cp2.isControlPlaneLike(cp1)
		cp2.thirdRunWritesNothing(command...)
		if t.Failed() {
			t.Fatalf("failed after round %d", i+1)
		}
	}
	cp1.twoPlanesWork()
}

// twoPlanesWork is like healthy, for a cluster of two control planes.
func (m machine) twoPlanesWork() {
	m.Helper()
	want := everything
	want.pods = slices.Concat(want.pods, []string{"etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-proxy-", "kube-scheduler-"})
	m.ready("cp-2")
	m.healthy(want)
}
