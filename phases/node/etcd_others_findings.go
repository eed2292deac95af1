// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/preflight"
)

// ForeignSign says why an answer isn't known to be of this etcd.
func ForeignSign(peer etcd.Peer) string {
	switch {
	case peer.Err != nil:
		return peer.Err.Error()
	case peer.Cluster != 0:
		return fmt.Sprintf("it is of cluster %x", peer.Cluster)
	}
	return "it names no cluster of etcd"
}

// NewForeignFinding is a finding about answers that aren't known to be of a member of this etcd.
func NewForeignFinding(answers ...etcd.Peer) fault.Finding {
	var texts []string
	for _, peer := range answers {
		texts = append(texts, fmt.Sprintf("%s (%s)", peer.URL, ForeignSign(peer)))
	}
	return fault.NewFinding(fault.EtcdOtherMembers, fault.Error, "if it is a former member of this etcd, run `slipway reset` on its host; "+
		"if the address belongs to another host now, use --ignore-preflight-errors="+fault.EtcdOtherMembers,
		"something answers where a member of this etcd was, and does not show that it is one: %s. A member would carry on with its own data",
		strings.Join(texts, ", "))
}

// EtcdOthersCheck is a check of what was found about the other members.
func EtcdOthersCheck(found func() []fault.Finding) preflight.Check {
	return preflight.Check{Name: fault.EtcdOtherMembers, Description: "no other member of etcd runs", Run: func(context.Context, preflight.View) []fault.Finding { return found() }}
}

// Findings are the members that run, or may: they don't answer, or are unknown. Nobody can ignore a member that runs.
func (o *EtcdOthers) Findings() (found []fault.Finding) {
	if len(o.Running) > 0 {
		runs := fault.NewFinding(fault.EtcdOtherMembers, fault.Error, o.resetOthers()+" once everything else is as it should be, and run this command again", "%s", o.othersRun())
		runs.Final = true
		found = append(found, runs)
	}
	if len(o.Foreign) > 0 {
		var answers []etcd.Peer
		for _, m := range o.members {
			if !m.runs {
				answers = append(answers, m.foreign...)
			}
		}
		found = append(found, NewForeignFinding(answers...))
	}
	return append(found, o.unsure()...)
}

// unsure are the members that may run.
func (o *EtcdOthers) unsure() []fault.Finding {
	const remedy = "make sure that etcd runs on none of the other control planes (`slipway reset --force` there)"
	switch {
	case o.planned:
		return []fault.Finding{fault.NewFinding(fault.EtcdOtherMembers, fault.Unasked, "", "whether other members of etcd run")}
	case len(o.Silent) > 0:
		var why []string
		for _, m := range slices.DeleteFunc(slices.Clone(o.members), func(m *otherMember) bool { return m.runs || len(m.foreign) > 0 }) {
			why = append(why, m.label()+" ("+cmp.Or(strings.Join(m.why, "; "), "its address is not known")+")")
		}
		return []fault.Finding{fault.NewFinding(fault.EtcdOtherMembers, fault.Error, "start them and run `slipway reset` there, or "+remedy,
			"other members of etcd do not answer, so it is not known whether they run: %s. They would carry on with their own data", strings.Join(why, ", "))}
	case !o.known:
		return []fault.Finding{fault.NewFinding(fault.EtcdOtherMembers, fault.Error, "start this node's etcd, or "+remedy,
			"it is not known which members etcd has now: neither this node's etcd nor the API answers, and its data does not say (%s). Others may have joined since the snapshot, and would carry on with their own data", o.unread)}
	}
	return nil
}
