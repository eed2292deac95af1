// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// need is the share of the machine a test takes. A test that uses both processors as much as two machines would counts as two.
type need struct {
	machines int
	minutes  int // roughly, beside other tests
}

// needs lists the tests needing more than one machine for one or two minutes.
var needs = map[string]need{
	"TestAnsible":                       {5, 30},
	"TestCloudInit":                     {3, 6},
	"TestCrashAtEveryFileOperation":     {2, 1},
	"TestCrashInit/1":                   {1, 4},
	"TestCrashInit/2":                   {1, 4},
	"TestCrashInit/3":                   {1, 4},
	"TestCrashInit/4":                   {1, 4},
	"TestCrashInit/5":                   {1, 4},
	"TestCrashInit/6":                   {1, 4},
	"TestCrashJoin":                     {2, 5},
	"TestCrashNode":                     {1, 3},
	"TestCutInit":                       {1, 7},
	"TestCutPrepare":                    {1, 5},
	"TestCutUpgrade":                    {1, 10},
	"TestDiskFailsAtEveryFileOperation": {2, 2},
	"TestEncryption":                    {3, 20},
	"TestFaults":                        {2, 4},
	"TestHA":                            {4, 8},
	"TestHardened":                      {3, 3},
	"TestHostPrepare":                   {2, 3},
	"TestHostPrepareKilled":             {1, 3},
	"TestIPv6":                          {3, 3},
	"TestInitExternalEtcd":              {3, 3},
	"TestJoinMany":                      {3, 3},
	"TestJoinPeer":                      {2, 2},
	"TestMove":                          {1, 4},
	"TestMoveOneOfThree":                {3, 6},
	"TestNode":                          {1, 6},
	"TestPlaybooks":                     {3, 6},
	"TestUp":                            {3, 5},
	"TestUpDualStack":                   {2, 3},
	"TestUpKilled":                      {1, 5},
	"TestUpgrade":                       {2, 6},
	"TestUpgradeChain":                  {2, 9},
	"TestUpgradeCrash":                  {1, 10},
	"TestUpgradeExternal":               {1, 4},
	"TestUpgradeFails":                  {1, 6},
	"TestUpgradeHA":                     {4, 11},
	"TestUpgradeRollback":               {1, 4},
	"TestWorkers":                       {3, 6},
}

// room limits tests and machines at a time: with more of them, on two processors, everything takes so long that Kubernetes' own
// limits pass.
var room = newRooms(3, mostMachines)

const mostMachines = 5

// rooms are for tests that run side by side. The longest come first, so that none of them is left alone at the end.
type rooms struct {
	mu              sync.Mutex
	changed         *sync.Cond
	tests, machines int // still free
	waiting         []need
}

func newRooms(tests, machines int) *rooms {
	r := &rooms{tests: tests, machines: machines}
	r.changed = sync.NewCond(&r.mu)
	return r
}

func (r *rooms) take(n need) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, n)
	for r.next() != n {
		r.changed.Wait()
	}
	at := slices.Index(r.waiting, n)
	r.waiting = slices.Delete(r.waiting, at, at+1)
	r.tests, r.machines = r.tests-1, r.machines-n.machines
	r.changed.Broadcast() // there may be room for another
}

func (r *rooms) giveBack(n need) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tests, r.machines = r.tests+1, r.machines+n.machines
	r.changed.Broadcast()
}

// next returns the longest of the waiting needs, or the zero need if there's no room for it yet: otherwise, a test that needs
// most of the machines would wait forever while smaller ones passed it.
func (r *rooms) next() need {
	if len(r.waiting) == 0 {
		return need{}
	}
	first := slices.MaxFunc(r.waiting, func(a, b need) int {
		return cmp.Or(cmp.Compare(a.minutes, b.minutes), cmp.Compare(a.machines, b.machines))
	})
	if r.tests == 0 || first.machines > r.machines {
		return need{}
	}
	return first
}

// elsewhere lends the test's room to others while its machines are idle.
func (m machine) elsewhere(wait func()) {
	n := needOf(m.T)
	room.giveBack(n)
	wait()
	room.take(n)
}

// needOf returns a test's need.
func needOf(t *testing.T) need {
	if n, known := needs[t.Name()]; known {
		return n
	}
	return need{1, 2}
}

// beside runs a test beside others once there's room for its machines. It builds their parts before, as a test that waits for a
// build should take no room.
func beside(t *testing.T, specs ...nodes.NodeSpec) {
	t.Helper()
	t.Parallel()
	if err := openLab(t, labPrefix+"parts", "").Build(t.Context(), specs...); err != nil {
		t.Fatal(err)
	}
	n := needOf(t)
	if n.machines > mostMachines {
		t.Fatalf("it needs %d machines, and there is never room for more than %d", n.machines, mostMachines)
	}
	room.take(n)
	started := time.Now()
	t.Cleanup(func() {
		t.Attr("wall", fmt.Sprintf("%.1f", time.Since(started).Seconds()))
		room.giveBack(n)
	})
}
