// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/parallel"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	// leaseWatchPeriod is how long the node's Lease is watched. A kubelet renews it every ten seconds.
	leaseWatchPeriod = 25 * time.Second
	// answerTimeout is how long one port may take to answer.
	answerTimeout = 5 * time.Second
	sshPort       = 22
	// defaultKubeletPort is the kubelet's if its Node doesn't name another.
	defaultKubeletPort = 10250
	// apiPort is an API server's, unless it has another: then the other ports have to do.
	apiPort = 6443
)

// checkSilence fails unless nobody has seen the host lately: the cluster doesn't count it as Ready, its kubelet renews no Lease
// with any API server, its etcd is silent to its peers, and none of its addresses accepts or refuses a connection from here. A
// host that's merely cut off from all of these looks the same, so operators have to turn it off.
func (l *LostNode) checkSilence(ctx context.Context, env *step.Env) error {
	if l.node != nil && node.NodeReady(l.node) == nil {
		return fault.New(fmt.Sprintf("node %s is Ready, so its host is not lost", l.name),
			resetThere+"; if it has just been turned off, run this again once the cluster has noticed, after a minute")
	}
	before, err := cluster.RenewedAt(ctx, env.Cluster, corev1.NamespaceNodeLease, l.name)
	if err != nil {
		return err
	}
	env.UI.Printf("Watching for a sign of life of %s, for %s", l.name, leaseWatchPeriod)
	over := time.After(leaseWatchPeriod)
	if err := l.checkUnreachable(ctx, env); err != nil {
		return err
	}
	if l.member != nil {
		if peer := etcd.BestAnswer(env.Etcd.Peers(ctx, l.member.PeerURLs())); peer.Alive() {
			return fault.New(fmt.Sprintf("the etcd of %s answers its peers at %s, so its host is not lost", l.name, peer.URL), resetOrElsewhere)
		}
	}
	select {
	case <-over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := cluster.RenewedAt(ctx, env.Cluster, corev1.NamespaceNodeLease, l.name)
	if err == nil && !after.Equal(before) {
		err = fault.New(fmt.Sprintf("the kubelet of node %s has renewed its Lease at %s, so its host is not lost", l.name, after.UTC().Format(time.RFC3339)), resetThere)
	}
	return err
}

// checkUnreachable tries to connect to the host. Addresses that this host can't send to don't count, but one of them all must.
func (l *LostNode) checkUnreachable(ctx context.Context, env *step.Env) error {
	doors, unknown := l.probeAddresses(ctx, env)
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	type knocked struct {
		at      netip.AddrPort
		answers bool
		err     error
	}
	results := parallel.Map(doors, 0, func(at netip.AddrPort) knocked {
		answers, err := env.Host.Answers(ctx, at)
		return knocked{at, answers, err}
	})
	looked := false
	for _, r := range results {
		switch {
		case r.answers:
			return fault.New(fmt.Sprintf("a host answers at %s, an address of %s, so that host is not lost", r.at, l.name), resetOrElsewhere)
		case r.err != nil:
			unknown = errors.WithMessagef(r.err, "connect to %s", r.at)
		default:
			looked = true
		}
	}
	if unknown == nil {
		unknown = errors.New("no address of it is known")
	}
	if !looked {
		return fault.WithRemedy(errors.WithMessagef(unknown, "cannot tell whether the host of %s still runs", l.name),
			"run this on a control plane that reaches the network of that host")
	}
	return nil
}

// probeAddresses are the ports at which a host answers if it runs: even a refused connection is an answer. unknown says why an
// address couldn't be found out.
func (l *LostNode) probeAddresses(ctx context.Context, env *step.Env) (doors []netip.AddrPort, unknown error) {
	add := func(ip netip.Addr, port uint16) {
		if at := netip.AddrPortFrom(ip.Unmap(), port); !slices.Contains(doors, at) {
			doors = append(doors, at)
		}
	}
	for _, text := range l.nodeAddresses() {
		if ip, err := netip.ParseAddr(text); err == nil {
			for _, port := range []uint16{l.kubeletPort(), sshPort, apiPort} {
				add(ip, port)
			}
		}
	}
	if l.member == nil {
		return doors, nil
	}
	for _, text := range append(l.member.PeerURLs(), l.member.ClientURLs...) {
		u, err := url.Parse(text)
		if err != nil {
			unknown = err
			continue
		}
		port, _ := strconv.ParseUint(u.Port(), 10, 16) // 0 finds out as much: somebody refuses, or nobody answers
		ip, err := netip.ParseAddr(u.Hostname())
		addrs := []netip.Addr{ip}
		if err != nil {
			addrs, err = env.Host.LookupHost(ctx, u.Hostname())
		}
		if err != nil {
			unknown = err
		}
		for _, ip := range addrs {
			if ip.IsValid() {
				add(ip, uint16(port))
			}
		}
	}
	return doors, unknown
}

func (l *LostNode) kubeletPort() uint16 {
	if l.node == nil {
		return defaultKubeletPort
	}
	return uint16(cmp.Or(l.node.Status.DaemonEndpoints.KubeletEndpoint.Port, defaultKubeletPort))
}

// nodeAddresses are the addresses at which the cluster reaches the node.
func (l *LostNode) nodeAddresses() (all []string) {
	if l.node == nil {
		return nil
	}
	for _, a := range l.node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			all = append(all, a.Address)
		}
	}
	return all
}

// hostOf returns a URL's host.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
