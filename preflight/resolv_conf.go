// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// resolvConf checks the file whose name servers the kubelet gives to Pods: without it, the kubelet creates no container at all.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
func resolvConf(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		s := effectiveKubelet(n, h).resolvConf
		if s.value == "" { // Pods get no name servers of the host
			return nil
		}
		switch _, err := h.Stat(s.value); {
		case errors.Is(err, fs.ErrNotExist):
			return fail("%s does not exist (%s), and without it the kubelet creates no container", s.value, s.from).
				remedy("create it with the name servers of this host (where systemd-resolved runs, as a link to %s), or set resolvConf in the KubeletConfiguration", config.ResolvedConf)
		case err != nil:
			return warn("cannot look at %s (%s): %v", s.value, s.from, err).remedy("see that it exists: without it the kubelet creates no container")
		}
		return nil
	}
}
