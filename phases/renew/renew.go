// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package renew has the workflow of `certs renew` (Certificates). With Options.Restart it also restarts the components that use
// the new files: etcd and the API server together, then the rest, one control plane at a time (restart.go). internal/pki renews
// the files. docs/design/renewal.md has the order.
package renew

import (
	"bytes"
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// Options say how to renew.
type Options struct {
	// Name is in pki.RenewableRows; empty for every existing certificate.
	Name string
	// Within limits the renewal to certificates that expire within this time; 0 renews all.
	Within time.Duration
	// FromOldCertificates renews each certificate from its own content, because the configuration isn't known.
	FromOldCertificates bool
	// Restart restarts the components using the new certificates, and replaces a kubelet's expired certificate.
	Restart bool

	due map[string]bool // of pki.Renewal
}

// Certificates is the workflow that renews certificates with new keys, signed by the same CAs.
func Certificates(o Options) []step.Phase {
	o.due = map[string]bool{}
	workflow := []step.Phase{{Name: "unfinished", Summary: "Check that no change of this node's configuration is unfinished", Run: func(_ context.Context, env *step.Env) error {
		return trial.RefuseUnfinished(env, trial.Reverting) // going back may need the new ones, and keeps them
	}}}
	if o.Name == "" {
		workflow = append(workflow, o.phase("look", "Look for certificates", pki.Renewal.CheckAny))
	}
	workflow = append(workflow, o.phase("check", "Check that clients and servers will trust each other", pki.Renewal.CheckTrust), o.renew())
	if o.Name == "" {
		workflow = append(workflow, o.distributeCAs())
	}
	if o.Restart {
		return append(workflow, restartPhases()...)
	}
	return append(workflow, o.phase("restart", "List the components to restart", pki.Renewal.Advise))
}

func (o Options) renew() step.Phase {
	renew := step.Phase{Name: "renew", Summary: "Renew certificates", SideBySide: true}
	for _, row := range pki.RenewableRows() {
		if o.Name == "" || o.Name == row.Name {
			renew.Children = append(renew.Children, o.phase(row.Name, "Renew the "+row.Summary,
				func(r pki.Renewal) error { return r.Renew(row.Name) }))
		}
	}
	return renew
}

func (o Options) phase(name, summary string, run func(pki.Renewal) error) step.Phase {
	return step.Phase{Name: name, Summary: summary, Run: func(_ context.Context, env *step.Env) error {
		return run(pki.Renewal{Store: env.PKI(), Name: o.Name, Within: o.Within, FromOldCertificates: o.FromOldCertificates, Due: o.due})
	}}
}

// distributeCAs gives this host's CAs to their users that a renewal doesn't reach: the kubelet, and the controller manager, which
// signs. Both read them when they start.
func (o Options) distributeCAs() step.Phase {
	return step.Phase{Name: "cas", Summary: "Give the CAs to the kubelet and the controller manager", Run: func(_ context.Context, env *step.Env) error {
		changed, err := env.PKI().TrustInKubelet()
		if err != nil {
			return err
		}
		if changed && !o.Restart {
			env.UI.Nextf("Restart the kubelet, so that it reads %s: systemctl restart kubelet", env.Config.Paths.KubeletKubeconfig())
		}
		if err := env.PKI().EnsureSigner(); err != nil || o.Restart {
			return err
		}
		manager, err := node.WithSigner(env)
		if err == nil && !bytes.Equal(manager.Before, manager.Wanted) {
			env.UI.Nextf("ca.crt holds several CAs, and %s does not start with it: before you restart it, set %s in %s to a file with one CA, or use --restart, which does both",
				manager.Name, env.PKI().SignerFlag(), env.Config.Paths.StaticPod(manager.Name))
		}
		return err
	}}
}
