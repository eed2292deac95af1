// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/pkg/apis"
)

const kubeletArgs = "nodeRegistration.kubeletExtraArgs"

// checkKubeletArgs finds settings that keep a kubelet from starting or registering the right Node. If one starts, they're faults.
func (d *documents) checkKubeletArgs(kind, name string, args []Arg, opts Options) {
	d.checkHostnameOverride(kind, name, args, opts)
	fails := d.judgeKubelet(kind, opts)
	labels, labelsField, _ := argAt(kubeletArgs, args, "node-labels")
	keys := labelKeys(labels)
	// Given a hostname label, the kubelet doesn't make one from the name.
	if len(name) > validation.LabelValueMaxLength && subdomainFault(name) == "" && !slices.Contains(keys, corev1.LabelHostname) {
		fails(kind, "nodeRegistration.name", "%q is longer than %d characters, the most that the label kubernetes.io/hostname of a node can have; "+
			"this is the node's name, which defaults to the hostname", printable(name), validation.LabelValueMaxLength)
	}
	for _, key := range keys {
		if domain, _, qualified := strings.Cut(key, "/"); qualified && ofKubernetes(domain) && !kubelet.IsKubeletLabel(key) {
			fails(kind, labelsField, "a kubelet does not start with the label %s: in kubernetes.io and k8s.io it may only set %s, and those in %s; "+
				"set it with `kubectl label node` once the node is registered", printable(key), strings.Join(kubelet.KubeletLabels(), ", "),
				strings.Join(kubelet.KubeletLabelNamespaces(), " and "))
		}
	}
}

// judgeKubelet returns how to report settings a kubelet can't have: as faults, unless none is started.
func (d *documents) judgeKubelet(kind string, opts Options) reporter {
	if opts.Existing && !opts.StartsKubelet || skips(d.skipped(kind), "kubelet-start") {
		return d.warnf
	}
	return d.faultf
}

// checkHostnameOverride compares the name the kubelet takes, the hostname if the value is empty, with the node's.
func (d *documents) checkHostnameOverride(kind, name string, args []Arg, opts Options) {
	value, field, given := argAt(kubeletArgs, args, "hostname-override")
	taken := strings.ToLower(strings.TrimSpace(cmp.Or(value, opts.Facts.Hostname)))
	if !given || taken == name {
		return
	}
	fails := d.judgeKubelet(kind, opts)
	switch {
	case d.unnamed, value == "" && opts.Placeholders:
		fails = d.warnf
	case kind == kindJoin && (d.join.ControlPlane == nil || skips(d.skipped(kind), "control-plane-join/mark-control-plane")):
		fails = d.warnf // a joining kubelet chooses the name in its certificate
	}
	fails(kind, field, "the kubelet registers as %s, which is not the node's name, %s; remove the flag, and set the name with nodeRegistration.name (--node-name)",
		printable(taken), printable(name))
}

func (d *documents) skipped(kind string) []string {
	if kind == kindJoin {
		return d.join.SkipPhases
	}
	return d.init.SkipPhases
}

func labelKeys(list string) []string {
	var keys []string
	for label := range strings.SplitSeq(list, ",") {
		key, _, _ := strings.Cut(strings.TrimSpace(label), "=")
		keys = append(keys, key)
	}
	return keys
}

// ofKubernetes reports whether a domain's labels belong to Kubernetes:
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
func ofKubernetes(domain string) bool {
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool { return domain == own || strings.HasSuffix(domain, "."+own) })
}
