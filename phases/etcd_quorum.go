// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/etcd"
)

// healthLimit is enough to ask all members side by side, and before that an API server that hangs.
const healthLimit = 10 * time.Second

// health asks the members of etcd for their health.
func health(ctx context.Context, env *Env) ([]etcd.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	return env.Etcd.Health(ctx)
}

// withStanding adds to an error of etcd which members work, as far as they can be asked.
func withStanding(ctx context.Context, env *Env, err error) error {
	all, failure := health(ctx, env)
	if failure != nil || len(all) == 0 {
		return err
	}
	return fmt.Errorf("%w; of etcd's members, %s", err, standing(all, ""))
}

// standing lists the members that work, and why each of the others does not. The one at peerURL is left out.
func standing(all []etcd.Health, peerURL string) string {
	var working, others []string
	for _, m := range all {
		name := cmp.Or(m.Name, m.PeerURL)
		switch {
		case m.PeerURL == peerURL:
		case m.Err == nil:
			working = append(working, name)
		default:
			others = append(others, fmt.Sprintf("%s does not (%v)", name, m.Err))
		}
	}
	switch len(working) {
	case 0:
		working = []string{"none works"}
	case 1:
		working[0] += " works"
	default:
		working = []string{strings.Join(working, ", ") + " work"}
	}
	return strings.Join(append(working, others...), "; ")
}
