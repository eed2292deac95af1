// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

// The names of the checks.
const (
	addressCheck  = "NewAddress"
	hostnameCheck = "Hostname"
	keysCheck     = "SigningKeys"
	serverCheck   = "APIServer"
)

func (m *Move) preflight(ctx context.Context, env *step.Env) error {
	if len(m.From) == 0 {
		env.UI.Printf("This control plane is at %s already; checking for remaining work", m.To)
	} else {
		env.UI.Printf("Moving this control plane from %s to %s", join(m.From), m.To)
	}
	if _, err := env.Host.Unit(ctx, node.KubeletUnit); err != nil {
		return fault.WithRemedy(err, "a move restarts the kubelet through systemd")
	}
	check := func(name, asks string, find func(*step.Env) []fault.Finding) preflight.Check {
		return preflight.Check{Name: name, Description: asks, Run: func(context.Context, preflight.View) []fault.Finding { return find(env) }}
	}
	checks := []preflight.Check{
		trial.NewUnfinishedCheck(env, trial.Reverting),
		check(addressCheck, "the address is this host's", m.checkAddress),
		check("NodeIP", "the kubelet's address is this host's, and nothing overrides it", m.checkNodeIP),
		check(hostnameCheck, "the host's name is still the node's", checkHostname),
		check(keysCheck, "the keys of the CAs are on this host", m.checkKeys),
		node.NewQuorumCheckIf(env, func(ctx context.Context) bool {
			list, err := m.components(ctx, env)
			own, _ := thisnode.EtcdMember(env.Host, env.Config.Paths)
			return err != nil || node.HasComponent(list, manifests.EtcdName) && m.Mentions(own.PeerURL) // otherwise an earlier run has checked it
		}, node.AwaitPeers),
	}
	return node.Check(ctx, env, checks...)
}

// clientPreflight asks the API at its next address with this node's trust, because a kubelet that can't reach it is lost.
func (m *Move) clientPreflight(ctx context.Context, env *step.Env) error {
	if _, err := env.Host.Unit(ctx, node.KubeletUnit); err != nil {
		return fault.WithRemedy(err, "this restarts the kubelet through systemd")
	}
	checks := []preflight.Check{
		trial.NewUnfinishedCheck(env),
		{Name: serverCheck, Description: "the API answers at its address", Run: func(ctx context.Context, _ preflight.View) []fault.Finding { return m.checkServer(ctx, env) }},
		{Name: addressCheck, Description: "the address is this host's", Run: func(context.Context, preflight.View) []fault.Finding { return m.checkNodeIP(env) }},
	}
	return node.Check(ctx, env, checks...)
}

func (m *Move) checkServer(ctx context.Context, env *step.Env) []fault.Finding {
	if m.Server == "" {
		return nil
	}
	err := node.AskServer(ctx, env, m.Server, "")
	switch {
	case errors.Is(err, host.ErrNotInPlan):
		return []fault.Finding{fault.NewFinding("", fault.Unasked, "", "whether the API answers at %s", m.Server)}
	case err != nil:
		return []fault.Finding{fault.NewFinding("", fault.Error, "check the address; the API servers' certificates must be valid for it (apiServer.certSANs)",
			"the API does not answer at %s as this node's cluster: %v", m.Server, err)}
	}
	return nil
}

func (m *Move) checkNodeIP(env *step.Env) []fault.Finding {
	all, err := env.Host.Addresses()
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	for text := range strings.SplitSeq(m.NodeIP, ",") { // two for dual stack
		if address, err := netip.ParseAddr(text); err == nil && !slices.Contains(all, address) {
			return []fault.Finding{fault.NewFinding("", fault.Error, "give it to an interface first, or name another one: `ip address` lists them",
				"%s is not an address of this host", address)}
		}
	}
	if m.NodeIP == "" {
		return nil
	}
	overridden := false
	for _, flag := range thisnode.AdministratorsFlags(env.Host) {
		if flag.Name != nodeIPFlag {
			continue
		}
		if m.ReplaceAddresses(flag.Value) != m.NodeIP {
			return []fault.Finding{fault.NewFinding("", fault.Error, "change it there, or remove it", "%s has --node-ip=%s, which the kubelet prefers", flag.From, flag.Value)}
		}
		overridden = true
	}
	path := env.Config.Paths.KubeletFlags()
	text, err := host.ReadIfExists(env.Host, path)
	if err == nil && (text != nil || !overridden) {
		_, err = withNodeIP(string(text), m.NodeIP)
	}
	if err != nil {
		return []fault.Finding{fault.Of(errors.WithMessage(err, path))}
	}
	return nil
}

func (m *Move) checkAddress(env *step.Env) []fault.Finding {
	for _, from := range m.From {
		if from.Is6() != m.To.Is6() {
			return []fault.Finding{fault.NewFinding("", fault.Error, "a node can't change its IP family: reset it, and join it again",
				"%s is of another IP family than %s", m.To, from)}
		}
	}
	all, err := env.Host.Addresses()
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	if slices.Contains(all, m.To) {
		return nil
	}
	return []fault.Finding{fault.NewFinding("", fault.Error, "give it to an interface first, or name another one: `ip address` lists them",
		"%s is not an address of this host, so etcd can't listen there", m.To)}
}

// checkHostname refuses another hostname. It's part of too much: the kubelet's certificate allows it only its own Node, etcd's member
// has the name, and Pods and volumes belong to the Node.
func checkHostname(env *step.Env) []fault.Finding {
	n := env.Config
	override := slices.ContainsFunc(thisnode.EffectiveFlags(env.Host, &n.Machine), func(f thisnode.KubeletFlag) bool { return f.Name == "hostname-override" })
	if n.Hostname == n.Name || override {
		return nil
	}
	return []fault.Finding{fault.NewFinding("", fault.Error,
		fmt.Sprintf("give the host its name back (`hostnamectl set-hostname %s`), or start the kubelet with --hostname-override=%[1]s; to rename the node, drain and reset it, then join it under the new name", n.Name),
		"this host is called %s, but its node is %s: its Node, the kubelet's certificate and etcd's member have that name, so a node can't be renamed", n.Hostname, n.Name)}
}

func (m *Move) checkKeys(env *step.Env) (found []fault.Finding) {
	rows, err := env.PKI().ForAddresses(m.From)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	for _, row := range rows {
		ca, err := env.PKI().CA(row.CA)
		switch {
		case err != nil:
			found = append(found, fault.Of(err))
		case ca.Key == nil:
			found = append(found, fault.NewFinding("", fault.Error, "have the CA's owner issue it for "+m.To.String()+" and put it there, for its present key; then run this again",
				"%s is for the former address, and the key of its CA is not on this host", env.PKI().Files(row)[0]))
		}
	}
	return found
}
