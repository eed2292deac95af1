// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	stderrors "errors"
	"fmt"
	"strings"

	"github.com/pkg/errors"
)

// Leftover is one thing that Kubernetes has left in the kernel's network
// configuration.
type Leftover struct {
	Kind LeftoverKind
	// Name is the table with its family, the set, or the interface.
	Name string
}

// LeftoverKind is the kind of a Leftover.
type LeftoverKind string

const (
	// LegacyChains are the chains KUBE-… and FLANNEL-… of a table of legacy
	// iptables, with the rules in built-in chains that jump to them.
	LegacyChains LeftoverKind = "iptables (legacy) chains of Kubernetes in table"
	// Chains are the same in a table of nftables, which iptables-nft uses.
	Chains LeftoverKind = "chains of Kubernetes in nftables table"
	// ProxyTable is the table of kube-proxy or of flannel in nftables mode.
	ProxyTable LeftoverKind = "nftables table"
	// EmptyTable is a table that does nothing, as iptables-nft leaves it.
	EmptyTable LeftoverKind = "empty nftables table"
	// Sets are the sets KUBE-… of kube-proxy in ipvs mode.
	Sets LeftoverKind = "ipset"
	// Link is a network interface.
	Link LeftoverKind = "network interface"
)

func (l Leftover) String() string { return fmt.Sprintf("%s %s", l.Kind, l.Name) }

// kubePrefix is the prefix of all chains and sets that kube-proxy and the kubelet
// create: https://kubernetes.io/docs/reference/networking/virtual-ips/
const kubePrefix = "KUBE-"

// isKubeChain reports whether the name of a chain is one of kube-proxy, the kubelet
// or flannel, whose chains are FLANNEL-FWD and FLANNEL-POSTRTG.
func isKubeChain(name string) bool {
	return strings.HasPrefix(name, kubePrefix) || strings.HasPrefix(name, "FLANNEL-")
}

// NetworkLeftovers implements NetworkReader. It lists what it can, whatever fails.
func (s Stack) NetworkLeftovers(ctx context.Context, bridge string) ([]Leftover, error) {
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
	return all, stderrors.Join(failed...)
}

// RemoveLeftover implements NetworkWriter.
func (s Stack) RemoveLeftover(ctx context.Context, l Leftover) error {
	var err error
	switch l.Kind {
	case LegacyChains:
		err = removeLegacyChains(ctx, l.Name)
	case Chains, ProxyTable, EmptyTable:
		err = removeNft(l)
	case Sets:
		err = removeSet(l.Name)
	case Link:
		err = removeLink(l.Name)
	}
	if err != nil {
		return errors.Wrapf(err, "remove %s", l)
	}
	return nil
}
