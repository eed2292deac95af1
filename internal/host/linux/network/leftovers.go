// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	stderrors "errors"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// isKubeChain reports whether kube-proxy, the kubelet or flannel (FLANNEL-FWD, FLANNEL-POSTRTG) gives chains such a name:
// https://kubernetes.io/docs/reference/networking/virtual-ips/
func isKubeChain(name string) bool {
	return strings.HasPrefix(name, "KUBE-") || strings.HasPrefix(name, "FLANNEL-")
}

// NetworkLeftovers lists the rest even after a failure.
func (s Stack) NetworkLeftovers(ctx context.Context, bridge string) ([]host.Leftover, error) {
	var all []host.Leftover
	var failed []error
	for _, find := range []func() ([]host.Leftover, error){
		func() ([]host.Leftover, error) { return legacyLeftovers(ctx) },
		nftLeftovers,
		func() ([]host.Leftover, error) { return linkLeftovers(bridge) },
	} {
		found, err := find()
		all, failed = append(all, found...), append(failed, err)
	}
	return all, stderrors.Join(failed...)
}

func (s Stack) RemoveLeftover(ctx context.Context, l host.Leftover) error {
	var err error
	switch l.Kind {
	case host.LegacyChains:
		err = removeLegacyChains(ctx, l.Name)
	case host.Chains, host.ProxyTable:
		err = removeNft(l)
	case host.Link:
		err = removeLink(l.Name)
	}
	if err != nil {
		return errors.Wrapf(err, "remove %s", l)
	}
	return nil
}
