// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

const coreDNSCheck = "NewerCoreDNS"

func (r *Run) coreDNSQuestion(env *step.Env) preflight.Check {
	return question(env, coreDNSCheck, "CoreDNS gets its next image", r.keptCoreDNS)
}

// keptCoreDNS finds that the change would leave CoreDNS as it is.
func (r *Run) keptCoreDNS(ctx context.Context, env *step.Env) []fault.Finding {
	err := addon.RefuseKeptCoreDNS(ctx, env)
	if err == nil {
		return nil
	}
	f := fault.Of(err)
	f.Name = coreDNSCheck
	return []fault.Finding{f}
}
