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
	"github.com/slipway-k8s/slipway/test/tier"
)

// need is the share of the machine a test takes. A test that uses both processors as much as two machines would counts as two.
type need struct {
	machines int
	minutes  int // roughly, beside other tests
}

func (n need) time() time.Duration { return time.Duration(n.minutes) * time.Minute }

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
	"TestCutInit":                       {machines: 1},
	"TestCutPrepare":                    {1, 5},
	"TestCutReconfigure":                {machines: 1},
	"TestCutUpgrade":                    {machines: 1},
	"TestDiskFailsAtEveryFileOperation": {2, 2},
	"TestEncryption":                    {machines: 3},
	"TestEndpoint":                      {2, 3},
	"TestFaults":                        {2, 4},
	"TestHA":                            {4, 8},
	"TestHardened":                      {3, 5},
	"TestHardenedLive":                  {machines: 4},
	"TestHostPrepare":                   {2, 3},
	"TestHostPrepareKilled":             {1, 3},
	"TestIPv6":                          {3, 3},
	"TestInitExternalEtcd":              {3, 3},
	"TestJoinMany":                      {3, 3},
	"TestJoinPeer":                      {2, 2},
	"TestMove":                          {1, 4},
	"TestMoveOneOfThree":                {machines: 3},
	"TestNode":                          {1, 6},
	"TestPlaybooks":                     {3, 6},
	"TestRebootOnTrial":                 {1, 5},
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

// fullMinutes are for tests that take much longer in the full tier, or run only there.
var fullMinutes = map[string]int{
	"TestCutInit": 20, "TestCutReconfigure": 25, "TestCutUpgrade": 20, "TestEncryption": 30, "TestHA": 30, "TestHardenedLive": 20,
	"TestMoveOneOfThree": 40, "TestNode": 25, "TestRebootOnTrial": 10,
}

// room limits tests and machines at a time: with more of them, on two processors, everything takes so long that Kubernetes' own
// limits pass.
var room = newRooms(3, maxMachines)

const maxMachines = 5

// rooms are for tests that run side by side. The longest come first, so that none of them is left alone at the end.
type rooms struct {
	mu              sync.Mutex
	changed         *sync.Cond
	tests, machines int // still free
	waiting         []need
	running         []running
}

// running is a test that has room.
type running struct {
	need
	until time.Time // its likely end
}

// end estimates when the test ends. If it's late already, that may take half its time again: others needn't wait for it.
func (t running) end() time.Time {
	if now := time.Now(); now.After(t.until) {
		return now.Add(t.time() / 2)
	}
	return t.until
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
	r.running = append(r.running, running{n, time.Now().Add(n.time())})
	r.changed.Broadcast()                                     // there may be room for another
	time.AfterFunc(n.time()+time.Second, r.changed.Broadcast) // and if this one is late then
}

func (r *rooms) giveBack(n need) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.running, func(t running) bool { return t.need == n })
	r.running = slices.Delete(r.running, at, at+1)
	r.tests, r.machines = r.tests+1, r.machines+n.machines
	r.changed.Broadcast()
}

// next returns the longest of the waiting needs. While there's no room for that, a shorter test may pass it if it will likely have
// ended by then: a test that needs most of the machines neither waits forever nor leaves them idle. It returns the zero need if
// nothing can start.
func (r *rooms) next() need {
	if len(r.waiting) == 0 || r.tests == 0 {
		return need{}
	}
	order := slices.SortedFunc(slices.Values(r.waiting), func(a, b need) int {
		return -cmp.Or(cmp.Compare(a.minutes, b.minutes), cmp.Compare(a.machines, b.machines))
	})
	start := r.roomFor(order[0].machines)
	for i, n := range order {
		if n.machines <= r.machines && (i == 0 || !time.Now().Add(n.time()).After(start)) {
			return n
		}
	}
	return need{}
}

// roomFor estimates when so many machines are free.
func (r *rooms) roomFor(machines int) (at time.Time) {
	free := r.machines
	for _, t := range slices.SortedFunc(slices.Values(r.running), func(a, b running) int { return a.end().Compare(b.end()) }) {
		if free >= machines {
			break
		}
		free, at = free+t.machines, t.end()
	}
	return at
}

// TestRooms: while the longest test waits for machines, only tests that end before it can start pass it.
func TestRooms(t *testing.T) {
	for name, c := range map[string]struct {
		waits, now, want need
		late             bool
	}{
		"the longest fits":         {waits: need{2, 11}, now: need{2, 6}, want: need{2, 11}},
		"another ends before":      {waits: need{4, 11}, now: need{2, 6}, want: need{2, 6}},
		"another takes too long":   {waits: need{4, 40}, now: need{2, 30}},
		"neither of them has room": {waits: need{4, 11}, now: need{3, 6}},
		"the running one is late":  {waits: need{4, 11}, now: need{2, 6}, want: need{2, 6}, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRooms(3, 5)
			r.take(need{3, 25})
			if c.late {
				r.running[0].until = time.Now().Add(-time.Minute)
			}
			r.waiting = []need{c.now, c.waits}
			if got := r.next(); got != c.want {
				t.Errorf("%v is next, not %v", got, c.want)
			}
			r.giveBack(need{3, 25})
			if got := r.next(); got != c.waits {
				t.Errorf("on a free machine, %v is next, not %v", got, c.waits)
			}
		})
	}
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
	n, known := needs[t.Name()]
	if !known {
		n = need{1, 2}
	}
	if minutes := fullMinutes[t.Name()]; minutes > 0 && tier.Full() {
		n.minutes = minutes
	}
	return n
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
	if n.machines > maxMachines {
		t.Fatalf("it needs %d machines, and there is never room for more than %d", n.machines, maxMachines)
	}
	room.take(n)
	started := time.Now()
	t.Cleanup(func() {
		t.Attr("wall", fmt.Sprintf("%.1f", time.Since(started).Seconds()))
		room.giveBack(n)
	})
}
