// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// HasBegun reports whether an earlier run has made this host the node that n
// describes, or has begun to. What an operator has edited since stays.
func HasBegun(h host.Host, n *config.Node) bool {
	return IsControlPlane(h) || n.Join != nil && (wasMember(h, n) || h.Made(bootstrapConfPath(n)))
}

// isNode reports whether this host was a node before, as far as its files tell:
// what is there is what the node runs with, no matter who wrote it. A join that came
// no further than its own files may write these again, with other settings.
func isNode(env *Env) bool { return env.Config.Join == nil || wasMember(env.Host, env.Config) }

// wasMember reports whether this host's kubelet got a certificate of n's cluster
// for n's name, be it one that has expired since.
func wasMember(h host.Host, n *config.Node) bool {
	err := memberOf(h, n)
	var expired *expiredError
	return err == nil || errors.As(err, &expired)
}
