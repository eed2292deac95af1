// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
)

// Leftover is one thing that Kubernetes has put into the kernel's network.
type Leftover struct {
	Kind LeftoverKind
	// Name is the table of rules, with its family, or the interface.
	Name string
}

// LeftoverKind says what a Leftover is.
type LeftoverKind string

const (
	// LegacyChains are the chains KUBE-… of one of iptables' own tables, with
	// the rules that lead there from the kernel's chains.
	LegacyChains LeftoverKind = "iptables (legacy) chains KUBE-* of table"
	// Chains are the same in a table of nftables, where iptables-nft keeps them.
	Chains LeftoverKind = "chains KUBE-* of nftables table"
	// ProxyTable is the table of kube-proxy in its mode nftables.
	ProxyTable LeftoverKind = "nftables table"
	// Sets are the sets KUBE-… of kube-proxy in its mode ipvs.
	Sets LeftoverKind = "ipset"
	// Link is a network interface.
	Link LeftoverKind = "network interface"
)

func (l Leftover) String() string { return fmt.Sprintf("%s %s", l.Kind, l.Name) }

// kubePrefix begins the names of all chains and sets that kube-proxy and the
// kubelet make: https://kubernetes.io/docs/reference/networking/virtual-ips/
const kubePrefix = "KUBE-"

// NetworkLeftovers implements NetworkReader. What can be listed is, whatever fails.
func (r *Real) NetworkLeftovers(ctx context.Context, bridge string) ([]Leftover, error) {
	var all []Leftover
	var failed []error
	for _, find := range []func() ([]Leftover, error){
		func() ([]Leftover, error) { return legacyLeftovers(ctx) },
		nftLeftovers,
		setLeftovers,
		func() ([]Leftover, error) { return linkLeftovers(bridge) },
	} {
		found, err := find()
		all, failed = append(all, found...), append(failed, err)
	}
	return all, errors.Join(failed...)
}

// RemoveLeftover implements NetworkWriter.
func (r *Real) RemoveLeftover(ctx context.Context, l Leftover) error {
	var err error
	switch l.Kind {
	case LegacyChains:
		err = removeLegacyChains(ctx, l.Name)
	case Chains, ProxyTable:
		err = removeNft(l)
	case Sets:
		err = removeSet(l.Name)
	case Link:
		err = removeLink(l.Name)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", l, err)
	}
	return nil
}
