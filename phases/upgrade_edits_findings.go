// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/preflight"
)

// staticPodEdits finds what the upgrade would lose of this control plane's static Pods.
func staticPodEdits(ctx context.Context, env *Env) []preflight.Finding {
	failed := func(err error) preflight.Finding {
		return preflight.Finding{Check: editsCheck, Severity: preflight.Error, Fault: fault.Of(err)}
	}
	view, err := hostView(env)
	if err != nil {
		return []preflight.Finding{failed(err)}
	}
	changed, err := configurationChanged(ctx, env)
	if err != nil {
		return []preflight.Finding{failed(err)}
	}
	var found []preflight.Finding
	for _, name := range upgradableComponents(env) {
		edits, err := editsOf(env, name, view, changed)
		if err != nil {
			found = append(found, failed(err))
			continue
		}
		found = append(found, edits.findings(name, changed)...)
	}
	return found
}

func (e podEdits) findings(component string, changed time.Time) []preflight.Finding {
	var found []preflight.Finding
	if e.edited != nil {
		found = append(found, finding(editsCheck, preflight.Error,
			"keep them in a patch (--patches), which `slipway upgrade plan` prints, or in extraArgs of the ClusterConfiguration; to drop them, use --ignore-preflight-errors="+editsCheck,
			"the upgrade would lose edits of the static Pod of %s: %s", component, e.edited))
	}
	if e.doubtful != nil {
		found = append(found, finding(editsCheck, preflight.Warning,
			"nothing to do if this comes from that change; if it is an edit, keep it in a patch (--patches), which `slipway upgrade plan` prints",
			"the upgrade writes the static Pod of %s as the ClusterConfiguration says, which was changed on %s, after the static Pod was written: %s",
			component, changed.UTC().Format(time.DateTime+" MST"), e.doubtful))
	}
	if len(e.proxies) > 0 {
		found = append(found, finding(editsCheck, preflight.Warning,
			"run the upgrade with the same variables in its environment, or set them in extraEnvs of the ClusterConfiguration",
			"like init, the upgrade takes proxies from its environment: the static Pod of %s loses its values of %s", component, strings.Join(e.proxies, ", ")))
	}
	return found
}
