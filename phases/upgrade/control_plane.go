// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

const controlPlanePhase = "control-plane"

func upgradeControlPlane() step.Phase {
	return step.Phase{
		Name:    controlPlanePhase,
		Summary: "Upgrade the components of this control plane",
		Flags:   []string{"certificate-renewal", "config", "dry-run", "etcd-upgrade", "kubeconfig", "patches"},
		Run:     runUpgradeControlPlane,
		Skip:    node.UnlessControlPlane,
	}
}

// runUpgradeControlPlane upgrades the components while no other control plane restarts its own.
func runUpgradeControlPlane(ctx context.Context, env *step.Env) error {
	if err := refuseUnfinishedChange(env); err != nil {
		return err
	}
	if err := node.RefuseOtherVersions(env); err != nil {
		return err
	}
	if err := node.Check(ctx, env, etcdTagQuestions(env)...); err != nil {
		return err
	}
	mine, err := node.AcquireLease(ctx, env, node.ForUpgrade)
	if err != nil {
		return err
	}
	err = edits.RefuseLoss(ctx, env) // now: an operator may have edited the static Pods during the wait
	if err == nil {
		err = unchanged(ctx, env)
	}
	if err != nil {
		return mine.Cancel(ctx, err)
	}
	components, err := node.Outdated(ctx, env)
	if err == nil {
		err = prepareUpgrade(ctx, env, components)
	}
	if err != nil {
		return mine.Cancel(ctx, err)
	}
	err = replaceComponents(ctx, env, mine, components)
	return mine.Release(ctx, env, err)
}

// refuseUnfinishedChange keeps a phase that runs without preflight from writing files that a `reconfigure` may still put back.
func refuseUnfinishedChange(env *step.Env) error {
	if fault.Ignored(fault.UnfinishedChange, env.Config.IgnorePreflightErrors) {
		return nil
	}
	return trial.RefuseUnfinished(env)
}

// planControlPlane shows the changes to the components, whether or not they may be upgraded now.
func planControlPlane(ctx context.Context, env *step.Env) error {
	components, err := node.Outdated(ctx, env)
	if err != nil {
		return err
	}
	var none node.Lease // a plan takes no turn
	return replaceComponents(ctx, env, none, components)
}

func prepareUpgrade(ctx context.Context, env *step.Env, components []node.Replacement) error {
	if len(components) > 0 {
		if err := node.AwaitChecks(ctx, env, othersQuestions(env), env.Config.IgnorePreflightErrors); err != nil {
			return err
		}
	}
	if err := renewForUpgrade(env); err != nil || len(components) == 0 {
		return err
	}
	if err := backup.ControlPlane(ctx, env, components); err != nil {
		return err
	}
	if text := IrreversibleEffects(env); text != "" {
		env.UI.Printf("%s", text)
	}
	return nil
}

// replaceComponents upgrades etcd and the API server together, so the API is away only once: each needs the other to stop
// quickly, and the API server can't work without etcd. The components that depend on the API follow. A profile's files are there
// before the API server needs them.
func replaceComponents(ctx context.Context, env *step.Env, turn node.Lease, components []node.Replacement) error {
	if len(components) == 0 {
		env.UI.Printf("The control plane already runs with the manifests of %s", env.Config.Cluster.KubernetesVersion)
	}
	missing, err := node.MissingProfileFiles(env, node.HasComponent(components, manifests.APIServerName))
	if err == nil {
		err = node.EnsureProfileFiles(env, missing)
	}
	if err != nil {
		return err
	}
	err = node.InGroups(components, func(group []node.Replacement) error { return swap(ctx, env, turn, group) })
	if err != nil {
		return err
	}
	adviseRestart(env, components)
	return nil
}

// swap makes components run with their new manifests. If they don't come up, it puts the previous manifests back.
func swap(ctx context.Context, env *step.Env, turn node.Lease, components []node.Replacement) error {
	env.UI.Printf("Upgrading %s", node.NamesOf(components))
	swapped, err := node.ReplaceStaticPods(ctx, env, turn, components)
	if err == nil || ctx.Err() != nil { // the same command continues after an interruption
		return err
	}
	return node.RollBack(ctx, env, turn, swapped, err)
}

// adviseRestart names the components that weren't replaced and read their certificates only at their start.
func adviseRestart(env *step.Env, replaced []node.Replacement) {
	kept := []string{manifests.ControllerManagerName, manifests.SchedulerName}
	kept = slices.DeleteFunc(kept, func(name string) bool { return node.HasComponent(replaced, name) })
	if len(kept) > 0 && env.Config.Upgrade.CertificateRenewal {
		env.UI.Nextf("Until they restart, %s use the previous certificates; `slipway certs renew all --restart` restarts them", strings.Join(kept, " and "))
	}
}

// IrreversibleEffects describes the irreversible effects of upgrading this control plane; it's empty if there are none.
func IrreversibleEffects(env *step.Env) string {
	if node.UnlessLocalEtcd(env) != "" || !env.Config.Upgrade.Etcd {
		return ""
	}
	now, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.EtcdName))
	from, to := node.EtcdMinor(now), node.MinorOf(env.Config.Image(manifests.EtcdName))
	if err != nil || from == to || from == "" {
		return "" // preflight reports an unreadable file
	}
	return fmt.Sprintf("etcd %s becomes %s. Once all members run it, etcd %s cannot read their data any more, "+
		"so etcd only goes back with the snapshot that the upgrade takes first.", from, to, from)
}

// renewForUpgrade renews the certificates of the upgraded components, whether or not their manifests change.
func renewForUpgrade(env *step.Env) error {
	store := env.PKI()
	if err := store.EnsureSigner(); err != nil || !env.Config.Upgrade.CertificateRenewal {
		return err
	}
	if err := (pki.Renewal{Store: store}).CheckTrust(); err != nil {
		return err
	}
	if _, err := store.TrustInKubelet(); err != nil { // the kubelet restarts with the components
		return err
	}
	for _, row := range certs.Specs(env.Config) {
		if !row.Renewable() || row.UsedBy == manifests.EtcdName && !env.Config.Upgrade.Etcd || isMissingByDesign(store, row) {
			continue
		}
		if err := (pki.Renewal{Store: store, KeepKey: true}).Renew(row.Name); err != nil {
			return errors.WithMessage(err, strings.Join(store.Files(row), ", "))
		}
	}
	return nil
}

// isMissingByDesign reports whether a certificate is missing because this isn't the cluster's first control plane.
func isMissingByDesign(store pki.Store, row certs.Spec) bool {
	if !row.FirstOnly {
		return false
	}
	current, err := store.Current(row)
	return current == nil && err == nil
}
