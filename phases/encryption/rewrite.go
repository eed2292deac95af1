// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
)

// sideBySide is how many Secrets are rewritten at a time. etcd's disk decides about the speed, and batches what arrives together.
const sideBySide = 16

// rewrite makes the API server write Secrets again, with its first provider: all Secrets that etcd has with another prefix, so that
// a killed run continues where it stopped. The next look at etcd is the proof.
func (r *Run) rewrite(ctx context.Context, env *step.Env, list []string) error {
	if slices.Equal(list, r.rewritten) {
		return fault.New("the API server has accepted the Secrets "+few(list)+" again, but etcd still has them as before",
			"see whether something intercepts writes of Secrets, such as a webhook, and run the same command again")
	}
	r.rewritten = list
	env.UI.Printf("Rewriting %d Secrets", len(list))
	began := env.Host.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sideBySide)
	for _, name := range list {
		group.Go(func() error {
			namespace, name, _ := strings.Cut(name, "/")
			err := env.Cluster.Rewrite(ctx, namespace, name)
			return fault.WithRemedy(err, "run the same command again; if it fails with the same Secret, repair or delete that")
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := env.Host.Now().Sub(began).Seconds()
	env.UI.Printf("Rewrote %d Secrets in %.1fs (%.0f per second)", len(list), took, float64(len(list))/max(took, 0.001))
	return nil
}

func few(list []string) string {
	const most = 3
	text := strings.Join(list[:min(most, len(list))], ", ")
	if len(list) > most {
		text += " and others"
	}
	return text
}
