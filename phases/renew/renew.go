// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/renewal"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Options say how to renew.
type Options struct {
	// Name is that of one of renewal.Rows; empty for every certificate that exists.
	Name string
	// Within limits the renewal to certificates that end within this time; 0 renews all.
	Within time.Duration
	// AsItWas uses only what each certificate says, because the configuration is not known.
	AsItWas bool
	// Restart restarts the components that use the new certificates, and gives a kubelet with an expired certificate a
	// new one.
	Restart bool
}

// Certificates returns the workflow that renews certificates, with new keys, signed by the same CAs.
func Certificates(o Options) []step.Phase {
	var workflow []step.Phase
	if o.Name == "" {
		workflow = append(workflow, o.phase("look", "Look for certificates", renewal.Renewal.CheckAny))
	}
	workflow = append(workflow, o.phase("check", "Check that clients and servers will trust each other", renewal.Renewal.CheckTrust), o.renew())
	if o.Name == "" {
		workflow = append(workflow, o.bringCAs())
	}
	if o.Restart {
		return append(workflow, restartPhases()...)
	}
	return append(workflow, o.phase("restart", "Say which components must be restarted", renewal.Renewal.Advise))
}

func (o Options) renew() step.Phase {
	renew := step.Phase{Name: "renew", Summary: "Renew certificates", SideBySide: true}
	for _, row := range renewal.Rows() {
		if o.Name == "" || o.Name == row.Name {
			renew.Children = append(renew.Children, o.phase(row.Name, "Renew the "+row.Summary,
				func(r renewal.Renewal) error { return r.Renew(row.Name) }))
		}
	}
	return renew
}

func (o Options) phase(name, summary string, run func(renewal.Renewal) error) step.Phase {
	return step.Phase{Name: name, Summary: summary, Run: func(_ context.Context, env *step.Env) error {
		return run(renewal.Renewal{Store: env.PKI(), Name: o.Name, Within: o.Within, AsItWas: o.AsItWas})
	}}
}
