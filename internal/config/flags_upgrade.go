// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/spf13/pflag"
)

// The commands of upgrade, as the flag table names them.
const (
	upgradeApply = "upgrade apply"
	upgradeNode  = "upgrade node"
	upgradePlan  = "upgrade plan"
	upgradeDiff  = "upgrade diff"

	upgradeRollback = "upgrade rollback"
)

// defaultDrainTimeout leaves Pods time to end in order, and budgets time to wait for replacements.
const defaultDrainTimeout = 5 * time.Minute

const defaultContextLines = 3

// upgradeFlags are upgrade's alone. A flag of several subcommands sets a field in each one's part; a command reads only its own.
func upgradeFlags() []flagRow {
	return []flagRow{
		toggle("allow-experimental-upgrades", "allow an upgrade to an alpha or beta version", func(f *Flags) *bool { return &f.AllowExperimentalUpgrades }).
			sets(kindUpgrade, "apply.allowExperimentalUpgrades", func(d *documents, v bool) { d.upgrade.Apply.AllowExperimentalUpgrades = &v }).
			sets(kindUpgrade, "plan.allowExperimentalUpgrades", func(d *documents, v bool) { d.upgrade.Plan.AllowExperimentalUpgrades = &v }).
			on(upgradeApply, upgradePlan),
		toggle("allow-release-candidate-upgrades", "allow an upgrade to a release candidate", func(f *Flags) *bool { return &f.AllowPrereleases }).
			sets(kindUpgrade, "apply.allowRCUpgrades", func(d *documents, v bool) { d.upgrade.Apply.AllowRCUpgrades = &v }).
			sets(kindUpgrade, "plan.allowRCUpgrades", func(d *documents, v bool) { d.upgrade.Plan.AllowRCUpgrades = &v }).
			on(upgradeApply, upgradePlan),
		switchOff("certificate-renewal", "renew the certificates of the components that are upgraded", func(f *Flags) *bool { return &f.CertificateRenewal }).
			sets(kindUpgrade, "apply.certificateRenewal", func(d *documents, v bool) { d.upgrade.Apply.CertificateRenewal = &v }).
			sets(kindUpgrade, "node.certificateRenewal", func(d *documents, v bool) { d.upgrade.Node.CertificateRenewal = &v }).
			on(upgradeApply, upgradeNode),
		newRow((*pflag.FlagSet).IntVarP, "context-lines", defaultContextLines, "lines of context around each difference", func(f *Flags) *int { return &f.ContextLines }).shorthand("c").
			sets(kindUpgrade, "diff.contextLines", func(d *documents, v int) { d.upgrade.Diff.DiffContextLines = v }).
			on(upgradeDiff),
		toggle("drain", "cordon this node and evict its Pods before it is upgraded, and uncordon it afterwards", func(f *Flags) *bool { return &f.Drain }).
			on(upgradeNode),
		toggle("drain-force", "also evict Pods that no controller would recreate, and Pods with emptyDir volumes, whose data is lost", func(f *Flags) *bool { return &f.DrainForce }).
			on(upgradeNode),
		duration("drain-timeout", defaultDrainTimeout, "how long to wait until all Pods are gone", func(f *Flags) *time.Duration { return &f.DrainTimeout }).
			on(upgradeNode),
		switchOff("etcd-upgrade", "upgrade etcd", func(f *Flags) *bool { return &f.EtcdUpgrade }).
			sets(kindUpgrade, "apply.etcdUpgrade", func(d *documents, v bool) { d.upgrade.Apply.EtcdUpgrade = &v }).
			sets(kindUpgrade, "node.etcdUpgrade", func(d *documents, v bool) { d.upgrade.Node.EtcdUpgrade = &v }).
			sets(kindUpgrade, "plan.etcdUpgrade", func(d *documents, v bool) { d.upgrade.Plan.EtcdUpgrade = &v }).
			on(upgradeApply, upgradeNode, upgradePlan),
		toggle("force", "do not ask for confirmation, and continue where the version is refused, such as for a downgrade of the patch", func(f *Flags) *bool { return &f.Force }).shorthand("f").
			sets(kindUpgrade, "apply.forceUpgrade", func(d *documents, v bool) { d.upgrade.Apply.ForceUpgrade = &v }).
			on(upgradeApply),
		toggle("print-config", "print the configuration that the upgrade uses", func(f *Flags) *bool { return &f.PrintConfig }).
			sets(kindUpgrade, "apply.printConfig", func(d *documents, v bool) { d.upgrade.Apply.PrintConfig = &v }).
			sets(kindUpgrade, "plan.printConfig", func(d *documents, v bool) { d.upgrade.Plan.PrintConfig = &v }).
			on(upgradeApply, upgradePlan),
		toggle("restore-etcd", "also restore the snapshot of etcd that was taken before the upgrade; everything written since then is lost", func(f *Flags) *bool { return &f.RestoreEtcd }).
			on(upgradeRollback),
		toggle("yes", "do not ask for confirmation", func(f *Flags) *bool { return &f.Yes }).shorthand("y").on(upgradeApply, upgradeRollback),
	}
}
