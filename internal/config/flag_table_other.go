// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/profile"
)

// resetNode is the command for a lost host, as the flag table names it.
const resetNode = "reset node"

func resetFlags() []flagRow {
	return []flagRow{
		toggle("cleanup-tmp-dir", "also remove /etc/kubernetes/tmp, where upgrades keep the files they replace").
			sets(kindReset, "cleanupTmpDir", func(d *documents, v bool) { d.reset.CleanupTmpDir = v }).
			forCommands("reset"),
		toggle("force", "do not ask for confirmation, and continue even if etcd loses its quorum").shorthand("f").
			sets(kindReset, "force", func(d *documents, v bool) { d.reset.Force = v }).
			forCommands("reset"),
		toggle("network", "also remove the rules and interfaces of kube-proxy and flannel, the Pods' bridge, and the records of Pod addresses").forCommands("reset"),
	}
}

// tokenFlags describe the token that token create makes without --config.
func tokenFlags() []flagRow {
	only := func(d *documents) *BootstrapToken { return &d.init.BootstrapTokens[0] }
	return []flagRow{
		text("description", "", "purpose of the token").
			sets(kindInit, "bootstrapTokens[0].description", func(d *documents, v string) { only(d).Description = v }).
			forCommands("token create"),
		list("groups", defaultTokenGroups(), "`groups` granted to clients that use this token").
			sets(kindInit, "bootstrapTokens[0].groups", func(d *documents, v []string) { only(d).Groups = v }).
			forCommands("token create"),
		toggle("print-join-command", "print the full join command instead of the token").forCommands("token create"),
		duration("ttl", defaultTokenTTL, "token lifetime; 0 means it never expires").
			sets(kindInit, "bootstrapTokens[0].ttl", func(d *documents, v time.Duration) { only(d).TTL = &metav1.Duration{Duration: v} }).
			forCommands("token create"),
		list("usages", DefaultTokenUsages(), "`usages` of the token").
			sets(kindInit, "bootstrapTokens[0].usages", func(d *documents, v []string) { only(d).Usages = v }).
			offers(DefaultTokenUsages()...).
			forCommands("token create"),
	}
}

// The commands of upgrade, as the flag table names them.
const (
	upgradeApply = "upgrade apply"
	upgradeNode  = "upgrade node"
	upgradePlan  = "upgrade plan"
	upgradeDiff  = "upgrade diff"

	upgradeRollback = "upgrade rollback"
)

// The commands that change a live cluster, as the flag table names them.
const (
	reconfigureCommand = "reconfigure"
	reconfigureNode    = "reconfigure node"
	encryptionEnable   = "encryption enable"
)

func reconfigureFlags() []flagRow {
	return []flagRow{
		toggle("confirm", "keep the change that is on trial on this node").forCommands(reconfigureCommand),
		text("profile", "", "harden the cluster with the settings of a `profile`: audit, cis or cis-strict; each includes the one before").
			offers(profile.Names()...).
			forCommands(reconfigureCommand),
		toggle("revert", "put back the change that is on trial on this node or, if there is none, the last completed change").forCommands(reconfigureCommand),
		duration("try", 0, "put the change back unless you run reconfigure --confirm within this time").forCommands(reconfigureCommand, reconfigureNode),
	}
}

// defaultDrainTimeout leaves Pods time to end in order, and budgets time to wait for replacements.
const defaultDrainTimeout = 5 * time.Minute

const defaultContextLines = 3

// upgradeFlags are upgrade's alone. A flag of several subcommands sets a field in each one's part; a command reads only its own.
func upgradeFlags() []flagRow {
	return []flagRow{
		toggle("allow-experimental-upgrades", "allow an upgrade to an alpha or beta version").
			sets(kindUpgrade, "apply.allowExperimentalUpgrades", func(d *documents, v bool) { d.upgrade.Apply.AllowExperimentalUpgrades = &v }).
			sets(kindUpgrade, "plan.allowExperimentalUpgrades", func(d *documents, v bool) { d.upgrade.Plan.AllowExperimentalUpgrades = &v }).
			forCommands(upgradeApply, upgradePlan),
		toggle("allow-release-candidate-upgrades", "allow an upgrade to a release candidate").
			sets(kindUpgrade, "apply.allowRCUpgrades", func(d *documents, v bool) { d.upgrade.Apply.AllowRCUpgrades = &v }).
			sets(kindUpgrade, "plan.allowRCUpgrades", func(d *documents, v bool) { d.upgrade.Plan.AllowRCUpgrades = &v }).
			forCommands(upgradeApply, upgradePlan),
		switchOff("certificate-renewal", "renew the certificates of the components that are upgraded").
			sets(kindUpgrade, "apply.certificateRenewal", func(d *documents, v bool) { d.upgrade.Apply.CertificateRenewal = &v }).
			sets(kindUpgrade, "node.certificateRenewal", func(d *documents, v bool) { d.upgrade.Node.CertificateRenewal = &v }).
			forCommands(upgradeApply, upgradeNode),
		newRow((*pflag.FlagSet).IntVarP, "context-lines", defaultContextLines, "lines of context around each difference").shorthand("c").
			sets(kindUpgrade, "diff.contextLines", func(d *documents, v int) { d.upgrade.Diff.DiffContextLines = v }).
			forCommands(upgradeDiff),
		toggle("drain", "cordon this node and evict its Pods before it is upgraded, and uncordon it afterwards").
			forCommands(upgradeNode),
		toggle("drain-force", "also evict Pods that no controller would recreate, and Pods with emptyDir volumes, whose data is lost").
			forCommands(upgradeNode),
		duration("drain-timeout", defaultDrainTimeout, "how long to wait until all Pods are gone").
			forCommands(upgradeNode),
		switchOff("etcd-upgrade", "upgrade etcd").
			sets(kindUpgrade, "apply.etcdUpgrade", func(d *documents, v bool) { d.upgrade.Apply.EtcdUpgrade = &v }).
			sets(kindUpgrade, "node.etcdUpgrade", func(d *documents, v bool) { d.upgrade.Node.EtcdUpgrade = &v }).
			sets(kindUpgrade, "plan.etcdUpgrade", func(d *documents, v bool) { d.upgrade.Plan.EtcdUpgrade = &v }).
			forCommands(upgradeApply, upgradeNode, upgradePlan),
		toggle("force", "do not ask for confirmation, and accept a refused version, such as an older patch release").shorthand("f").
			sets(kindUpgrade, "apply.forceUpgrade", func(d *documents, v bool) { d.upgrade.Apply.ForceUpgrade = &v }).
			forCommands(upgradeApply),
		toggle("print-config", "print the configuration that the upgrade uses").
			sets(kindUpgrade, "apply.printConfig", func(d *documents, v bool) { d.upgrade.Apply.PrintConfig = &v }).
			sets(kindUpgrade, "plan.printConfig", func(d *documents, v bool) { d.upgrade.Plan.PrintConfig = &v }).
			forCommands(upgradeApply, upgradePlan),
		toggle("restore-etcd", "also restore the snapshot of etcd that was taken before the upgrade; everything written since then is lost").
			forCommands(upgradeRollback),
		toggle("yes", "do not ask for confirmation").shorthand("y").forCommands(upgradeApply, upgradeRollback, resetNode, etcdMemberRemove, etcdRestore, etcdRecover, etcdPrune),
	}
}

// The commands of etcd that change something, as the flag table names them.
const (
	etcdMemberRemove  = "etcd member remove"
	etcdDefrag        = "etcd defrag"
	etcdRestore       = "etcd restore"
	etcdRecover       = "etcd recover"
	etcdPrune         = "etcd prune"
	etcdSnapshotPrune = "etcd snapshot prune"
)

func maintenanceFlags() []flagRow {
	return []flagRow{
		toggle("all", "also defragment members with little space to reclaim").forCommands(etcdDefrag),
		list("abandon", nil, "`members` to abandon even if they answer, by name, ID or peer URL; data that only they hold is lost").forCommands(etcdRecover),
		toggle("drop-uncommitted", "drop changes at the end of the log that may not be committed; they're kept by default, because a client may rely on them").forCommands(etcdRecover),
	}
}

// Commands that prepare a host, as the flag table names them.
const (
	hostPrepare = "host prepare"
	hostReset   = "host reset"
)

func hostFlags() []flagRow {
	return []flagRow{
		text("bundle", "", "`file` with programs and images, made by `slipway bundle create`").forCommands(hostPrepare),
		list("public-key", nil, "`files` with public keys, one of which must have signed the bundle; by default the keys in /etc/slipway/bundle-keys.d").forCommands(hostPrepare),
		text("digest", "", "SHA-256 of the bundle's file, as sha256:`hex`: another file is refused").forCommands(hostPrepare),
		toggle("allow-downgrade", "let the bundle's programs replace newer ones on a node").forCommands(hostPrepare),
		text("swap", "off", "what to do with swap: off turns it off, now and at boot; keep leaves it on").
			offers("off", "keep").forCommands(hostPrepare),
		list("registry-mirror", nil, "`mirrors` that containerd pulls images from, as REGISTRY=URL").
			forCommands(hostPrepare),
	}
}

// upFlags are up's and down's own flags, beside their parts'.
func upFlags() []flagRow {
	return []flagRow{
		toggle("schedulable", "let ordinary Pods run on this control plane, as a cluster of a single machine needs").forCommands(upCommand),
		toggle("host", "also undo the preparation of this machine: programs, units, settings, images, the network's leftovers and the backups of upgrades").forCommands(downCommand),
	}
}
