// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
)

type Upgrade struct {
	// Version is the target, with a leading v. If the user names none, it's empty: `upgrade node` takes the cluster's.
	Version string
	From    string // the version in the cluster's configuration when the run began
	// First reports whether this is `upgrade apply`, which also upgrades the parts all nodes share.
	First bool
	// CertificateRenewal renews the upgraded components' certificates, Etcd upgrades etcd.
	CertificateRenewal, Etcd bool
	// Experimental and Prereleases allow alpha and beta versions, and release candidates.
	Experimental, Prereleases bool
	// Force continues even if a version is refused. Yes, and Force, skip the confirmation.
	Force, Yes  bool
	Drain       *Drain // nil unless the node is drained before its upgrade
	PrintConfig bool
	// Before is this node before a change of its configuration, which keeps the version; nil for an upgrade.
	Before       *Node
	Earlier      []Earlier
	ContextLines int // the number of lines `upgrade diff` shows around each difference
	// Stored are the texts that an upgrade was loaded from. It doesn't go on if one of them has been changed since.
	Stored []StoredText
}

// StoredText is a key's text in a ConfigMap in kube-system; empty if there's none.
type StoredText struct{ ConfigMap, Key, Text string }

// Earlier is this node with the ClusterConfiguration of an earlier time. Its files from then are made from it, and so are those of
// operators who have edited them since.
type Earlier struct {
	Node         *Node
	Since, Until time.Time
}

// ConfigAt is the node of an earlier time from whose configuration a file was made that was written at this time; nil if that's
// unknown.
func (u *Upgrade) ConfigAt(written time.Time) *Node {
	for _, e := range u.Earlier {
		if !written.IsZero() && !written.Before(e.Since) && written.Before(e.Until) {
			return e.Node
		}
	}
	return nil
}

// Run names the run in messages.
func (u *Upgrade) Run() string {
	if u.Before != nil {
		return "the change"
	}
	return "the upgrade"
}

type Drain struct {
	// Timeout limits the wait until all Pods are gone.
	Timeout time.Duration
	// Force evicts Pods even if something is lost with them.
	Force bool
}

// UpgradeSelf holds an UpgradeConfiguration's settings for this node, beside how to upgrade it.
type UpgradeSelf struct {
	Upgrade
	DryRun                            bool
	SkipPhases, IgnorePreflightErrors []string
	Patches                           *Patches
	ImagePullPolicy                   corev1.PullPolicy
	ImagePullSerial                   *bool // nil unless the user gives it
	Timeouts                          *Timeouts
}

// LoadUpgrade reads a file (nil for none) and the command line. A version there takes precedence over the file's. It may be a
// label, see Options.Resolve. Invalid input is returned as Faults.
func LoadUpgrade(ctx context.Context, src *Source, flags UpgradeFlags, opts Options) (*UpgradeSelf, []string, error) {
	d, err := open(src, kindUpgrade)
	if err != nil {
		return nil, nil, err
	}
	d.upgrade = cmp.Or(d.upgrade, &UpgradeConfiguration{})
	d.apply(flags.Given, &flags, flags.Command, src != nil, kindUpgrade)
	if field := d.upgrade.version(flags.Command); field != nil {
		*field = cmp.Or(flags.Version, *field)
	}
	apply, node := d.upgrade.Apply.ImagePullSerial, d.upgrade.Node.ImagePullSerial
	defaultUpgrade(d.upgrade)
	d.upgrade.Apply.ImagePullSerial, d.upgrade.Node.ImagePullSerial = apply, node
	d.checkUpgrade()
	flags.checkDrain(d)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	s := d.upgrade.self(flags)
	s.Version, err = opts.exactTarget(ctx, flags.Command, s.Version)
	return s, d.warningTexts(), err
}

// exactTarget returns the version to upgrade to, with a leading v. Unlike init, which has a default, an upgrade doesn't continue
// with another version if it can't resolve a label.
func (o Options) exactTarget(ctx context.Context, command, version string) (string, error) {
	m := versionLabel().FindStringSubmatch(version)
	if m != nil {
		resolved, err := o.resolve(ctx, m[2])
		if err != nil {
			return "", fault.WithRemedy(errors.WithMessagef(err, "cannot resolve %q", version), "name the version, such as "+DefaultKubernetesVersion)
		}
		if wrong := targetFault(command, resolved); wrong != "" {
			return "", errors.Errorf("%q resolves to %s, which %s", version, resolved, wrong)
		}
		version = resolved
	}
	if version == "" {
		return "", nil
	}
	return "v" + strings.TrimPrefix(version, "v"), nil
}

// targetFault explains why a command can't have a version as its target; empty if it can. A plan takes any version.
func targetFault(command, version string) string {
	if command == upgradePlan {
		return malformed(version)
	}
	return versionFault(version)
}

// version is a command's target; nil for a command without a target.
func (c *UpgradeConfiguration) version(command string) *string {
	switch command {
	case upgradeApply:
		return &c.Apply.KubernetesVersion
	case upgradePlan:
		return &c.Plan.KubernetesVersion
	case upgradeDiff:
		return &c.Diff.KubernetesVersion
	}
	return nil
}

func (c *UpgradeConfiguration) self(flags UpgradeFlags) *UpgradeSelf {
	s := &UpgradeSelf{Timeouts: c.Timeouts}
	switch flags.Command {
	case upgradeApply:
		a := &c.Apply
		s.Upgrade = Upgrade{
			Version: a.KubernetesVersion, First: true,
			Experimental: isTrue(a.AllowExperimentalUpgrades), Prereleases: isTrue(a.AllowRCUpgrades),
			Force: isTrue(a.ForceUpgrade), Yes: flags.Yes, PrintConfig: isTrue(a.PrintConfig),
		}
		s.take(&a.UpgradeNodeConfiguration)
	case upgradeNode:
		if flags.Drain {
			s.Drain = &Drain{Timeout: flags.DrainTimeout, Force: flags.DrainForce}
		}
		s.take(&c.Node)
	case upgradePlan:
		p := &c.Plan
		s.Upgrade = Upgrade{
			Version: p.KubernetesVersion, First: true, Etcd: *p.EtcdUpgrade, Experimental: isTrue(p.AllowExperimentalUpgrades),
			Prereleases: isTrue(p.AllowRCUpgrades), PrintConfig: isTrue(p.PrintConfig),
		}
		s.IgnorePreflightErrors, s.Patches = lowered(p.IgnorePreflightErrors), c.Apply.Patches
	case upgradeDiff:
		s.Upgrade = Upgrade{Version: c.Diff.KubernetesVersion, First: true, Etcd: *c.Apply.EtcdUpgrade, ContextLines: c.Diff.DiffContextLines}
		if !flags.Given.Has("context-lines") { // 0 in a file means unset
			s.ContextLines = cmp.Or(s.ContextLines, defaultContextLines)
		}
		s.Patches = c.Apply.Patches
	}
	return s
}

// take copies the settings that `upgrade apply` and `upgrade node` share.
func (s *UpgradeSelf) take(n *UpgradeNodeConfiguration) {
	s.CertificateRenewal, s.Etcd = *n.CertificateRenewal, *n.EtcdUpgrade
	s.DryRun, s.SkipPhases, s.IgnorePreflightErrors, s.Patches = isTrue(n.DryRun), n.SkipPhases, lowered(n.IgnorePreflightErrors), n.Patches
	s.ImagePullPolicy, s.ImagePullSerial = n.ImagePullPolicy, n.ImagePullSerial
}

func (f *UpgradeFlags) checkDrain(d *documents) {
	for _, name := range []string{"drain-force", "drain-timeout"} {
		if f.Given.Has(name) && !f.Drain {
			d.fault(Fault{Field: "--" + name, Message: "needs --drain"})
		}
	}
	if f.Given.Has("drain-timeout") && f.DrainTimeout <= 0 {
		d.fault(Fault{Field: "--drain-timeout", Message: f.DrainTimeout.String() + " must be positive"})
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// StoredVersion returns the version in a stored ClusterConfiguration, with a leading v.
func StoredVersion(clusterConfiguration []byte) (string, error) {
	d := newStored()
	d.addStored(ClusterSource, kindCluster, clusterConfiguration)
	if err := d.err(); err != nil {
		return "", err
	}
	d.checkStoredVersion()
	return d.cluster.KubernetesVersion, d.err()
}

type UpgradeConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	Apply    UpgradeApplyConfiguration `json:"apply,omitempty"`
	Diff     UpgradeDiffConfiguration  `json:"diff,omitempty"`
	Node     UpgradeNodeConfiguration  `json:"node,omitempty"`
	Plan     UpgradePlanConfiguration  `json:"plan,omitempty"`
	Timeouts *Timeouts                 `json:"timeouts,omitempty"`
}

type UpgradeApplyConfiguration struct {
	UpgradeNodeConfiguration `json:",inline"`

	KubernetesVersion         string `json:"kubernetesVersion,omitempty"`
	AllowExperimentalUpgrades *bool  `json:"allowExperimentalUpgrades,omitempty"`
	AllowRCUpgrades           *bool  `json:"allowRCUpgrades,omitempty"`
	ForceUpgrade              *bool  `json:"forceUpgrade,omitempty"`
	PrintConfig               *bool  `json:"printConfig,omitempty"`
}

type UpgradeDiffConfiguration struct {
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	DiffContextLines  int    `json:"contextLines,omitempty"`
}

type UpgradeNodeConfiguration struct {
	CertificateRenewal    *bool             `json:"certificateRenewal,omitempty"`
	DryRun                *bool             `json:"dryRun,omitempty"`
	EtcdUpgrade           *bool             `json:"etcdUpgrade,omitempty"`
	IgnorePreflightErrors []string          `json:"ignorePreflightErrors,omitempty"`
	SkipPhases            []string          `json:"skipPhases,omitempty"`
	Patches               *Patches          `json:"patches,omitempty"`
	ImagePullPolicy       corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	ImagePullSerial       *bool             `json:"imagePullSerial,omitempty"`
}

type UpgradePlanConfiguration struct {
	KubernetesVersion         string   `json:"kubernetesVersion,omitempty"`
	AllowExperimentalUpgrades *bool    `json:"allowExperimentalUpgrades,omitempty"`
	AllowRCUpgrades           *bool    `json:"allowRCUpgrades,omitempty"`
	DryRun                    *bool    `json:"dryRun,omitempty"`
	EtcdUpgrade               *bool    `json:"etcdUpgrade,omitempty"`
	IgnorePreflightErrors     []string `json:"ignorePreflightErrors,omitempty"`
	PrintConfig               *bool    `json:"printConfig,omitempty"`
}

func (d *documents) checkUpgrade() {
	c := d.upgrade
	for _, v := range []struct{ command, path, version string }{
		{upgradeApply, "apply.kubernetesVersion", c.Apply.KubernetesVersion},
		{upgradeDiff, "diff.kubernetesVersion", c.Diff.KubernetesVersion},
		{upgradePlan, "plan.kubernetesVersion", c.Plan.KubernetesVersion},
	} {
		if v.version == "" || versionLabel().MatchString(v.version) {
			continue
		}
		if fault := targetFault(v.command, v.version); fault != "" {
			d.faultf(kindUpgrade, v.path, "%q %s", printable(v.version), fault)
		}
	}
	d.checkUpgradeOf("apply", &c.Apply.UpgradeNodeConfiguration)
	d.checkUpgradeOf("node", &c.Node)
	d.checkIgnored(kindUpgrade, "plan.ignorePreflightErrors", c.Plan.IgnorePreflightErrors)
	if c.Diff.DiffContextLines < 0 {
		d.faultf(kindUpgrade, "diff.contextLines", "%d is negative", c.Diff.DiffContextLines)
	}
	d.checkTimeouts(kindUpgrade, c.Timeouts)
}

func (d *documents) checkUpgradeOf(at string, n *UpgradeNodeConfiguration) {
	d.checkPullPolicy(kindUpgrade, at+".imagePullPolicy", n.ImagePullPolicy)
	d.checkIgnored(kindUpgrade, at+".ignorePreflightErrors", n.IgnorePreflightErrors)
	d.checkSkipPhases(kindUpgrade, at+".skipPhases", n.SkipPhases)
	field := at + ".patches.directory"
	if n.Patches == nil || n.Patches.Directory == "" {
		return
	}
	if d.setOnCommandLine(kindUpgrade, field) { // where a relative path is usual
		d.checkText(kindUpgrade, field, n.Patches.Directory)
		return
	}
	d.checkAbsolute(kindUpgrade, field, n.Patches.Directory)
}
