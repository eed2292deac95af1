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

// formerAdvice is for a host whose member others don't list: they may have the cluster's present data, which a reset destroys.
const formerAdvice = "this host's member is missing from the others' list of members, so they may have the cluster's present data: look at " +
	"`slipway etcd status` on each control plane. If they have it, run `slipway reset --force` here and join this host again, or restore a snapshot there"

// UnlessNeeded begins a remedy that destroys the others' data then.
const UnlessNeeded = formerAdvice + ". Only if nothing in their data is needed, "

// UnlessNeeded is the constant; empty if no list of members lacks this node's.
func (o *EtcdOthers) UnlessNeeded() string {
	if !o.former {
		return ""
	}
	return UnlessNeeded
}

// isOwn reports whether a member is this node's.
func (o *EtcdOthers) isOwn(m etcd.Member) bool {
	return m.At(o.Own.PeerURLs()...) || m.ID != 0 && (m.ID == o.id || m.ID == o.serving)
}

// noteMember notes a member, unless it's this node's.
func (o *EtcdOthers) noteMember(m etcd.Member) {
	if !o.isOwn(m) {
		o.noteOther(m)
	}
}

// noteFormer looks for this node's member in an etcd's list of members. Its ID counts, if it's known: another may have its URL by now.
func (o *EtcdOthers) noteFormer(members []etcd.Member) {
	own := func(m etcd.Member) bool {
		if o.id == 0 || m.ID == 0 {
			return m.At(o.Own.PeerURLs()...)
		}
		return m.ID == o.id
	}
	o.former = o.former || len(members) > 0 && !slices.ContainsFunc(members, own)
}

// Doubt follows the names of others that must not run; empty if no list of members lacks this node's.
func (o *EtcdOthers) Doubt() string {
	if !o.former {
		return ""
	}
	return ". But " + formerAdvice
}

// NewForeignFinding is a finding about answers that aren't known to be of a member of this etcd.
func NewForeignFinding(answers ...etcd.Peer) fault.Finding {
	var texts []string
	remedy := "if it is a former member of this etcd, run `slipway reset` on its host; "
	for _, peer := range answers {
		texts = append(texts, fmt.Sprintf("%s (%s)", peer.URL, ForeignSign(peer)))
		if !peer.Stranger { // etcd was restored or recovered there, or here
			remedy = UnlessNeeded + "run `slipway reset` on its host; "
		}
	}
	return fault.NewFinding(fault.EtcdOtherMembers, fault.Error, remedy+
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
	start, startOwn := "start them and run `slipway reset` there, or ", "start this node's etcd, or "
	if o.former {
		start, startOwn = "start them; "+UnlessNeeded+"run `slipway reset` there, or ", "start this node's etcd; "+UnlessNeeded
	}
	const remedy = "make sure that etcd runs on none of the other control planes (`slipway reset --force` there)"
	switch {
	case o.planned:
		return []fault.Finding{fault.NewFinding(fault.EtcdOtherMembers, fault.Unasked, "", "whether other members of etcd run")}
	case len(o.Silent) > 0:
		var why []string
		for _, m := range slices.DeleteFunc(slices.Clone(o.members), func(m *otherMember) bool { return m.runs || len(m.foreign) > 0 }) {
			why = append(why, m.label()+" ("+cmp.Or(strings.Join(m.why, "; "), "its address is not known")+")")
		}
		return []fault.Finding{fault.NewFinding(fault.EtcdOtherMembers, fault.Error, start+remedy,
			"other members of etcd do not answer, so it is not known whether they run: %s. They would carry on with their own data", strings.Join(why, ", "))}
	case !o.known:
		return []fault.Finding{fault.NewFinding(fault.EtcdOtherMembers, fault.Error, startOwn+remedy,
			"it is not known which members etcd has now: neither this node's etcd nor the API answers, and its data does not say (%s). Others may have joined since the snapshot, and would carry on with their own data", o.unread)}
	}
	return nil
}
