// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// addressChanged finds a node that has worked at an address that the host doesn't have any more.
func addressChanged(o *observation) []symptom {
	all, err := o.h.Addresses()
	if err != nil {
		return nil
	}
	return slices.Concat(o.etcdMoved(all), o.serverMoved(all), o.kubeletMoved(all))
}

// etcdMoved asks for etcd's address, as etcd can only listen on an address of the host: an API server may advertise that of a router
// in front of it. Until etcd has data, it may never have worked there.
func (o *observation) etcdMoved(all []netip.Addr) []symptom {
	p := o.pod(etcdPod)
	if p == nil {
		return nil
	}
	if _, err := o.h.Lstat(filepath.Join(p.dataDir(), "member")); err != nil {
		return nil
	}
	for text := range strings.SplitSeq(p.args["listen-peer-urls"], ",") {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		address, err := netip.ParseAddr(u.Hostname())
		if err != nil || address.IsUnspecified() || slices.Contains(all, address) {
			continue
		}
		f := moved(etcdPod, "advertise-address", address, all, "--listen-peer-urls="+p.args["listen-peer-urls"])
		if p.dead && len(matching(p.lines, bound)) > 0 { // until it stops, it may still serve this host
			f.minDuration = time.Second
		}
		return []symptom{f}
	}
	return nil
}

// serverMoved asks for the API server's address where etcd is elsewhere. A router in front of it leads there, and a host that is only
// becoming a node may never have worked there.
func (o *observation) serverMoved(all []netip.Addr) []symptom {
	p := o.pod(apiServerPod)
	if p == nil || o.pod(etcdPod) != nil || o.t.Waiting {
		return nil
	}
	address, err := netip.ParseAddr(p.args["advertise-address"])
	if err != nil || slices.Contains(all, address) {
		return nil
	}
	_, err = o.h.Fetch(o.ctx, host.Probe{
		URL: "https://" + net.JoinHostPort(address.String(), cmp.Or(p.args["secure-port"], "6443")) + "/livez", CA: o.file(p.file("client-ca-file")),
	})
	if !isUnreachable(err) {
		return nil
	}
	return []symptom{moved(apiServerPod, "advertise-address", address, all, "--advertise-address="+address.String(), err.Error())}
}

var noNodeIP = lazyregexp.New(`node IP: \\?"([^"\\]+)\\?" not found in the host's network interfaces`)

func (o *observation) kubeletMoved(all []netip.Addr) []symptom {
	lines := o.repeatedLines(o.sources[0], noNodeIP)
	if len(lines) == 0 {
		return nil
	}
	address, err := netip.ParseAddr(noNodeIP().FindStringSubmatch(lines[len(lines)-1])[1])
	if err != nil || slices.Contains(all, address) {
		return nil
	}
	return []symptom{moved(kubeletName, "node-ip", address, all, last(lines, 1)...)}
}

func moved(subject, flag string, address netip.Addr, all []netip.Addr, evidence ...string) symptom {
	return symptom{minDuration: never, Finding: fault.Finding{
		Subject: subject, Evidence: append(evidence, "this host has "+join(all)),
		Message: "works at " + address.String() + ", which this host doesn't have any more",
		Remedy:  "if the host has moved for good, `slipway reconfigure node --" + flag + " ADDRESS` moves the node there; otherwise give the host its address back",
	}}
}
