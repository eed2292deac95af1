// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// Upgrade says how a node is upgraded.
type Upgrade struct {
	// Version is the target, with a leading v. It is empty where the user names none: `upgrade node` goes by what
	// `upgrade apply` has written to the cluster.
	Version string
	// From is the version in the cluster's configuration when the run began.
	From string
	// First reports whether this is `upgrade apply`, which also upgrades what all nodes share.
	First bool
	// CertificateRenewal renews the certificates of the components that are upgraded, Etcd upgrades etcd.
	CertificateRenewal, Etcd bool
	// Experimental and Prereleases allow alpha and beta versions, and release candidates.
	Experimental, Prereleases bool
	// Force continues where a version is refused. Yes, and Force, skip the confirmation.
	Force, Yes bool
	// PrintConfig prints the configuration that the upgrade uses.
	PrintConfig bool
	// ContextLines is how many lines `upgrade diff` shows around each difference.
	ContextLines int
}

// UpgradeSelf is what an UpgradeConfiguration says of this node, beside how to upgrade it.
type UpgradeSelf struct {
	Upgrade
	DryRun                            bool
	SkipPhases, IgnorePreflightErrors []string
	Patches                           *Patches
	ImagePullPolicy                   corev1.PullPolicy
	ImagePullSerial                   *bool
	Timeouts                          *Timeouts
}

// LoadUpgrade reads a file (nil for none) and the command line for a command of upgrade, such as "upgrade apply".
// version is its argument, empty for none; it takes precedence over the file. Invalid input is returned as Faults.
func LoadUpgrade(src *Source, flags Flags, command, version string) (*UpgradeSelf, []string, error) {
	d := read(src)
	if err := d.require(src, kindUpgrade); err != nil {
		return nil, nil, err
	}
	d.upgrade = cmp.Or(d.upgrade, &UpgradeConfiguration{})
	flags.apply(d, command, src != nil, kindUpgrade)
	d.ignore(kindInit, kindCluster, kindJoin, kindReset, kindKubelet, kindKubeProxy)
	for _, field := range []*string{&d.upgrade.Apply.KubernetesVersion, &d.upgrade.Plan.KubernetesVersion, &d.upgrade.Diff.KubernetesVersion} {
		*field = cmp.Or(version, *field)
	}
	defaultUpgrade(d.upgrade)
	d.checkUpgrade()
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	return d.upgrade.self(command, flags), d.warningTexts(), nil
}

// self is the part of a command.
func (c *UpgradeConfiguration) self(command string, flags Flags) *UpgradeSelf {
	s := &UpgradeSelf{Timeouts: c.Timeouts}
	switch command {
	case upgradeApply:
		a := &c.Apply
		s.Upgrade = Upgrade{
			Version: a.KubernetesVersion, First: true, CertificateRenewal: *a.CertificateRenewal, Etcd: *a.EtcdUpgrade,
			Experimental: isTrue(a.AllowExperimentalUpgrades), Prereleases: isTrue(a.AllowRCUpgrades),
			Force: isTrue(a.ForceUpgrade), Yes: flags.Yes, PrintConfig: isTrue(a.PrintConfig),
		}
		s.DryRun, s.SkipPhases, s.IgnorePreflightErrors, s.Patches = isTrue(a.DryRun), a.SkipPhases, lowered(a.IgnorePreflightErrors), a.Patches
		s.ImagePullPolicy, s.ImagePullSerial = a.ImagePullPolicy, a.ImagePullSerial
	case upgradeNode:
		n := &c.Node
		s.Upgrade = Upgrade{CertificateRenewal: *n.CertificateRenewal, Etcd: *n.EtcdUpgrade}
		s.DryRun, s.SkipPhases, s.IgnorePreflightErrors, s.Patches = isTrue(n.DryRun), n.SkipPhases, lowered(n.IgnorePreflightErrors), n.Patches
		s.ImagePullPolicy, s.ImagePullSerial = n.ImagePullPolicy, n.ImagePullSerial
	case upgradePlan:
		p := &c.Plan
		s.Upgrade = Upgrade{
			Version: p.KubernetesVersion, First: true, Etcd: *p.EtcdUpgrade, Experimental: isTrue(p.AllowExperimentalUpgrades),
			Prereleases: isTrue(p.AllowRCUpgrades), PrintConfig: isTrue(p.PrintConfig),
		}
		s.IgnorePreflightErrors = lowered(p.IgnorePreflightErrors)
	case upgradeDiff:
		s.Upgrade = Upgrade{Version: c.Diff.KubernetesVersion, First: true, ContextLines: c.Diff.DiffContextLines}
	}
	return s
}

func isTrue(b *bool) bool { return b != nil && *b }
