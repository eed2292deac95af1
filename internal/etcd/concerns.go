// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// The names of concerns, as `etcd status` shows them. `diagnose` knows most of them as causes.
const (
	Corrupt    = "etcd-corrupt"
	NoSpace    = "etcd-space"
	NoQuorum   = "etcd-quorum-lost"
	Down       = "etcd-down"
	NotStarted = "etcd-not-started"
	Learner    = "etcd-learner"
	Lagging    = "etcd-lag"
	NearQuota  = "etcd-quota"
	// NotCompared is that the members' keys weren't all compared, though that was asked for.
	NotCompared = "etcd-not-compared"
)

const (
	// nearQuota is the percentage of the quota from which an operator has to act: at the quota, all writes end.
	nearQuota = 80
	// farBehind is how many entries a member may be behind. Etcd itself refuses requests from there on.
	farBehind = 5000
)

// Concerns returns everything about the members that needs an operator, the most urgent first, with the member's label as its
// subject. An empty list means that all is well.
func Concerns(all []Health) []fault.Finding {
	found := append(quorum(all), formerAlarms(all)...)
	for _, look := range []func([]Health, Health) *fault.Finding{corrupt, full, down, waits, learns, lags, fillsUp} {
		for _, m := range all {
			if f := look(all, m); f != nil {
				f.Severity, f.Subject = fault.Broken, m.Label()
				found = append(found, *f)
			}
		}
	}
	return found
}

// quorum finds that too few voters work: then etcd can't change anything, its members included.
func quorum(all []Health) []fault.Finding {
	voters, working := CountVoters(all)
	if len(all) == 0 || working >= Majority(voters) {
		return nil
	}
	return []fault.Finding{{Name: NoQuorum, Severity: fault.Broken, Subject: "etcd",
		Message: fmt.Sprintf("it has lost its quorum: %d of %d voters work, and %d must; the API accepts no writes", working, voters, Majority(voters)),
		Remedy: "start the members that are down: `slipway diagnose` on their hosts says what is wrong; if too many hosts are lost for good, " +
			"run `slipway etcd recover` on the one whose log is longest"}}
}

// externalRemedies are the remedies for an etcd that Slipway doesn't change. Its administrators use its own tools.
var externalRemedies = map[string]string{
	NoQuorum: "start its members that are down; if too many are lost for good, recover it where it runs: https://etcd.io/docs/v3.6/op-guide/recovery/",
	Corrupt: "find out which member is damaged (`slipway etcd status --hashkv` shows the hash of each), replace it where it runs, and disarm the alarm " +
		"(`etcdctl alarm disarm`): https://etcd.io/docs/v3.6/op-guide/data_corruption/",
	NoSpace: "compact and defragment it where it runs, and disarm the alarm: https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota",
	Down: "see etcd's log on its host; if the host will not come back, replace the member while the others have a quorum: " +
		"https://etcd.io/docs/v3.6/op-guide/runtime-configuration/",
	NotStarted:  "start etcd on its host, or remove the member (`etcdctl member remove`)",
	Learner:     "promote it once it has caught up (`etcdctl member promote`)",
	Lagging:     "see if its disk and its network are fast enough, and look again in a minute: a member that has just started catches up",
	NotCompared: "see why its members cannot be compared, and run this again",
	NearQuota:   "defragment it if much less is in use (`etcdctl defrag`); otherwise find out what writes so much, or set a larger --quota-backend-bytes",
}

// ExternalRemedies gives findings the remedies for an etcd that Slipway doesn't change.
func ExternalRemedies(found []fault.Finding) {
	for i := range found {
		found[i].Remedy = externalRemedies[found[i].Name]
	}
}

func corrupt(all []Health, m Health) *fault.Finding {
	if !raised(all, m, "CORRUPT") {
		return nil
	}
	return corruptAmong(all, "it has the alarm CORRUPT: its keys differ from the other members', so all refuse requests")
}

// corruptAmong is the concern that the alarm CORRUPT stands. A single voter can't be replaced by the others: a reset would remove the
// cluster's only data.
func corruptAmong(all []Health, message string) *fault.Finding {
	f := CorruptFinding(message)
	if voters, _ := CountVoters(all); voters == 1 {
		f.Remedy = "disarm the alarm (`etcdctl alarm disarm`), which etcd obeys at once: there is no other voter to compare with or to copy from, " +
			"so do not reset this one; then check the cluster's objects, and restore a snapshot if they are damaged (`slipway etcd restore`)"
	}
	return f
}

// CorruptFinding is the concern that members don't have the same keys.
func CorruptFinding(message string) *fault.Finding {
	return &fault.Finding{Name: Corrupt, Message: message,
		Remedy: "find out which member is damaged (`slipway etcd status --hashkv` shows the hash of each), and run `slipway reset` on its host; " +
			"then disarm the alarm (`etcdctl alarm disarm`), because nothing can join before; then join the host again: " +
			"https://etcd.io/docs/v3.6/op-guide/data_corruption/"}
}

func full(all []Health, m Health) *fault.Finding {
	if !raised(all, m, "NOSPACE") {
		return nil
	}
	return &fault.Finding{Name: NoSpace, Message: "its database has reached its quota, so etcd accepts no more writes (alarm NOSPACE)", Remedy: FullRemedy}
}

// FullRemedy is the remedy of NoSpace.
const FullRemedy = "run `slipway etcd defrag` on a control plane: it discards the history of all keys, gives the space back and disarms the alarm; " +
	"then find out what writes so much"

// raised reports whether any member knows of m's alarm: a damaged member may not answer for itself.
func raised(all []Health, m Health, kind string) bool {
	return slices.ContainsFunc(all, func(h Health) bool { return slices.Contains(h.Status.Alarms, Alarm{m.ID, kind}) })
}

// HasAlarm reports whether any member knows of an alarm of this kind, be it of a former member: etcd obeys those, too.
func HasAlarm(all []Health, kind string) bool {
	return slices.ContainsFunc(all, func(h Health) bool {
		return slices.ContainsFunc(h.Status.Alarms, func(a Alarm) bool { return a.Kind == kind })
	})
}

// formerAlarms finds alarms that no present member has.
func formerAlarms(all []Health) (found []fault.Finding) {
	for _, kind := range []string{"CORRUPT", "NOSPACE"} {
		if !HasAlarm(all, kind) || slices.ContainsFunc(all, func(m Health) bool { return raised(all, m, kind) }) {
			continue
		}
		f := &fault.Finding{Name: NoSpace, Message: "a former member has left the alarm NOSPACE behind, so etcd accepts no writes", Remedy: FullRemedy}
		if kind == "CORRUPT" {
			f = corruptAmong(all, "a former member has left the alarm CORRUPT behind, so all members refuse requests")
		}
		f.Severity, f.Subject = fault.Broken, "etcd"
		found = append(found, *f)
	}
	return found
}

// AlarmsOf returns the kinds of a member's alarms, as far as any member knows.
func AlarmsOf(all []Health, m Health) (kinds []string) {
	for _, kind := range []string{"CORRUPT", "NOSPACE"} {
		if raised(all, m, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func started(m Health) bool { return m.Name != "" || len(m.ClientURLs) > 0 }

func down(all []Health, m Health) *fault.Finding {
	if m.Err == nil || !started(m) || m.Answers && len(quorum(all)) > 0 {
		return nil
	}
	return &fault.Finding{Name: Down, Message: fmt.Sprintf("it does not work: %v", m.Err),
		Remedy: "`slipway diagnose` on its host says what is wrong; if the host will not come back, remove the member (`slipway etcd member remove " +
			m.IDText() + "`) while the others have a quorum"}
}

func waits(_ []Health, m Health) *fault.Finding {
	if started(m) {
		return nil
	}
	message := "it was added, but has never started"
	if !m.Learner {
		message += "; it has a vote, so etcd counts it as lost"
	}
	return &fault.Finding{Name: NotStarted, Message: message,
		Remedy: "finish the join on its host (the same command), or remove the member: `slipway etcd member remove " + m.IDText() + "`"}
}

func learns(_ []Health, m Health) *fault.Finding {
	if !m.Learner || m.Err != nil {
		return nil
	}
	return &fault.Finding{Name: Learner, Message: "it is a learner: it has no vote, serves no clients, and no other member can join meanwhile",
		Remedy: "unless a join is running on its host, run the same join there again, which gives it its vote"}
}

func lags(all []Health, m Health) *fault.Finding {
	if lag := Lag(all, m); m.Err == nil && !m.Learner && lag > farBehind {
		return &fault.Finding{Name: Lagging, Message: fmt.Sprintf("it is %d entries behind: it has applied %d of %d", lag, m.Status.Applied, m.Status.Applied+lag),
			Remedy: "see if its disk and its network are fast enough (`slipway diagnose` on its host), and look again in a minute: a member that has just started catches up"}
	}
	return nil
}

// Lag is how many committed entries a member has yet to apply, as far as any member knows.
func Lag(all []Health, m Health) uint64 {
	committed := m.Status.Committed
	for _, h := range all {
		if h.Leads() {
			committed = max(committed, h.Status.Committed)
		}
	}
	if committed < m.Status.Applied || m.Status.Applied == 0 {
		return 0
	}
	return committed - m.Status.Applied
}

// FarBehind reports whether a member is so far behind that an operator has to act.
func FarBehind(all []Health, m Health) bool { return Lag(all, m) > farBehind }

// NearsQuota reports whether the database has so much of its quota that an operator has to act, as far as the member says.
func (s Status) NearsQuota() bool { return s.Quota > 0 && s.Size*100 >= s.Quota*nearQuota }

func fillsUp(all []Health, m Health) *fault.Finding {
	s := m.Status
	if !s.NearsQuota() || raised(all, m, "NOSPACE") {
		return nil
	}
	return &fault.Finding{Name: NearQuota,
		Message: fmt.Sprintf("its database has %d of at most %d MiB, of which %d MiB are in use; at its quota, etcd accepts no more writes", s.Size>>20, s.Quota>>20, s.InUse>>20),
		Remedy: "defragment it if less is in use (`slipway etcd defrag`); otherwise find out what writes so much, " +
			"or set a larger --quota-backend-bytes (etcd.local.extraArgs)"}
}

// IDText is the member's ID as etcd's tools write it.
func (m Member) IDText() string { return fmt.Sprintf("%x", m.ID) }
