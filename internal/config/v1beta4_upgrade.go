// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UpgradeConfiguration configures upgrade.
type UpgradeConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	Apply    UpgradeApplyConfiguration `json:"apply,omitempty"`
	Diff     UpgradeDiffConfiguration  `json:"diff,omitempty"`
	Node     UpgradeNodeConfiguration  `json:"node,omitempty"`
	Plan     UpgradePlanConfiguration  `json:"plan,omitempty"`
	Timeouts *Timeouts                 `json:"timeouts,omitempty"`
}

// UpgradeApplyConfiguration holds the options of `upgrade apply`.
type UpgradeApplyConfiguration struct {
	KubernetesVersion         string            `json:"kubernetesVersion,omitempty"`
	AllowExperimentalUpgrades *bool             `json:"allowExperimentalUpgrades,omitempty"`
	AllowRCUpgrades           *bool             `json:"allowRCUpgrades,omitempty"`
	CertificateRenewal        *bool             `json:"certificateRenewal,omitempty"`
	DryRun                    *bool             `json:"dryRun,omitempty"`
	EtcdUpgrade               *bool             `json:"etcdUpgrade,omitempty"`
	ForceUpgrade              *bool             `json:"forceUpgrade,omitempty"`
	IgnorePreflightErrors     []string          `json:"ignorePreflightErrors,omitempty"`
	Patches                   *Patches          `json:"patches,omitempty"`
	PrintConfig               *bool             `json:"printConfig,omitempty"`
	SkipPhases                []string          `json:"skipPhases,omitempty"`
	ImagePullPolicy           corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	ImagePullSerial           *bool             `json:"imagePullSerial,omitempty"`
}

// UpgradeDiffConfiguration holds the options of `upgrade diff`.
type UpgradeDiffConfiguration struct {
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	DiffContextLines  int    `json:"contextLines,omitempty"`
}

// UpgradeNodeConfiguration holds the options of `upgrade node`.
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

// UpgradePlanConfiguration holds the options of `upgrade plan`.
type UpgradePlanConfiguration struct {
	KubernetesVersion         string   `json:"kubernetesVersion,omitempty"`
	AllowExperimentalUpgrades *bool    `json:"allowExperimentalUpgrades,omitempty"`
	AllowRCUpgrades           *bool    `json:"allowRCUpgrades,omitempty"`
	DryRun                    *bool    `json:"dryRun,omitempty"`
	EtcdUpgrade               *bool    `json:"etcdUpgrade,omitempty"`
	IgnorePreflightErrors     []string `json:"ignorePreflightErrors,omitempty"`
	PrintConfig               *bool    `json:"printConfig,omitempty"`
}
