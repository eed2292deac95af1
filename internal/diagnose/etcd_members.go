// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// members returns etcd's members with their health; none if this host has no etcd, or nobody may or can answer. Other causes say
// why etcd doesn't.
func (o *observation) members() []etcd.Health {
	p := o.pod(etcdPod)
	if o.asked || o.t.Etcd == nil || p == nil || !p.running() {
		return o.health
	}
	o.asked = true
	if all, err := o.t.Etcd(o.ctx); err == nil {
		o.health = all
	}
	return o.health
}

// concern finds members with a concern of this name. None ends a wait: they don't keep a node from working yet.
func concern(name string) func(*observation) []symptom {
	return func(o *observation) (found []symptom) {
		for _, f := range etcd.Concerns(o.members()) {
			if f.Name == name {
				f.Subject = "etcd member " + f.Subject
				found = append(found, symptom{Finding: f, minDuration: never})
			}
		}
		return found
	}
}

const (
	// slowWrites is how many writes of etcd must each have taken a second, within slowPeriod, for a disk to count as slow.
	slowWrites = 3
	slowPeriod = time.Minute
)

var slowSync = lazyregexp.New(`"msg":"slow fdatasync"`)

// etcdSlowDisk finds an etcd that keeps complaining about its disk. A single slow write is no problem.
func etcdSlowDisk(o *observation) []symptom {
	p := o.pod(etcdPod)
	if p == nil || !p.running() {
		return nil
	}
	var lines []string
	for _, l := range p.said {
		if slowSync().MatchString(l.text) && o.ago(l.last) <= slowPeriod {
			lines = append(lines, l.text)
		}
	}
	if len(lines) < slowWrites {
		return nil
	}
	dir := p.dataDir()
	return []symptom{{minDuration: never, Finding: fault.Finding{
		Subject: etcdPod, Evidence: last(lines, 2),
		Message: fmt.Sprintf("its disk is too slow: %d writes took more than a second each in the last minute, and each of them holds up the whole cluster", len(lines)),
		Remedy: "find out what else writes to the disk of " + dir + " (`iotop`, `iostat -x`), or give etcd a faster disk of its own; " +
			"a write should take less than 10 ms: https://etcd.io/docs/v3.6/op-guide/hardware/#disks",
	}}}
}

var silentPeer = lazyregexp.New(`"msg":"prober detected unhealthy status".*"remote-peer-id":"([0-9a-f]+)"`)

// etcdUnknownPeer finds a member that keeps trying to reach a peer which etcd doesn't have. A refused request to add a member stays
// in the log of all others; a member that restarts reads it again, and waits for a member that never existed.
func etcdUnknownPeer(o *observation) []symptom {
	p, members := o.pod(etcdPod), o.members()
	if p == nil || len(members) == 0 {
		return nil
	}
	i := slices.IndexFunc(o.sources, func(src source) bool { return src.subject == etcdPod })
	lines := map[string][]string{}
	var ids []string
	for _, line := range o.repeatedLines(o.sources[i], silentPeer) {
		id := silentPeer().FindStringSubmatch(line)[1]
		if slices.ContainsFunc(members, func(m etcd.Health) bool { return m.IDText() == id }) {
			continue
		}
		if lines[id] == nil {
			ids = append(ids, id)
		}
		lines[id] = append(lines[id], line)
	}
	var found []symptom
	for _, id := range ids {
		found = append(found, symptom{minDuration: never, Finding: fault.Finding{
			Subject: etcdPod, Evidence: last(lines[id], 1),
			Message: "it keeps looking for member " + id + ", which never existed, or is gone: when it started, it replayed an old request from its log",
			Remedy: "restart this etcd once it has written a newer snapshot of its log, which it does within 10,000 more changes (`applied` in " +
				"`slipway etcd status -o json` counts them): move its manifest out of the directory of static Pods, and back. Until then, the only harm is a log full of this",
		}})
	}
	return found
}
