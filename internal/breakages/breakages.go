// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package breakages finds what an upgrade of Kubernetes breaks, before anything changes. It does no I/O: the caller collects
// command lines, files and objects, and Check applies the tables of internal/releases and a few other rules:
// docs/upgrade-breakages.md has their names. An error means that a component won't start, or that objects can't be read any more;
// everything else is a warning.
package breakages

import (
	"slices"
	"sort"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// NotChecked is the name of a finding about something the check couldn't read.
const NotChecked = "not-checked"

// Inputs holds everything to examine. Empty fields aren't checked.
type Inputs struct {
	// From and To are the control plane's versions, such as v1.36.4 or 1.37. Check examines all minors between them.
	From, To  string
	ProxyFrom string // kube-proxy's version, if it isn't the control plane's
	// EtcdVersion returns etcd's version for a minor release of Kubernetes such as 1.37; nil if the upgrade doesn't replace members.
	EtcdVersion func(minor string) string

	Commands   []Command
	Kubelets   []Kubelet
	Proxies    []File // KubeProxyConfiguration
	Files      []File // other configuration files, named in the programs' flags
	StaticPods []StaticPod
	Etcd       []EtcdMember
	APIUse     []APIUse
	Metrics    []File // text of /metrics, one for each API server
	Cluster    Objects
}

type Command struct {
	Where   string // for people: kube-apiserver on cp-1
	Program string // one of internal/releases
	Args    []config.Arg
	Mounts  []string // the paths in the container where the user's configuration mounts something
	// Running is set for another node's flags missing from the cluster's configuration: only that node's patches can keep them.
	Running bool
}

// File is a configuration file or another text.
type File struct {
	Where   string
	Program string // the program that reads it
	Data    []byte // YAML or JSON, several documents possible
}

// checker collects the findings for one step to the next release.
type checker struct {
	Inputs
	before  releases.Release // the release before, as far as there is a table
	release releases.Release
	// elsewhere is set while it checks flags that the upgrade of another node most likely drops: they're only warnings.
	elsewhere bool
	found     []fault.Finding
}

// nodeSteps begin at each node's release, as kubelets may be older; controlPlaneSteps begin at the control plane's.
var (
	nodeSteps         = []func(*checker){(*checker).kubelets, (*checker).proxies, (*checker).staticPods, (*checker).pods}
	controlPlaneSteps = []func(*checker){
		(*checker).commands, (*checker).files, (*checker).etcd, (*checker).apiUse, (*checker).requests, (*checker).roles, (*checker).objects}
	// patchSteps also matter if the control plane stays on its minor release.
	patchSteps = []func(*checker){(*checker).etcd, (*checker).objects}
)

// Check examines each release of the upgrade. It reports the first release that breaks something, and errors first. A
// version without a table is a finding, too.
func Check(in Inputs) []fault.Finding {
	c := &checker{Inputs: in}
	to, known := releases.Of(releases.MinorOf(in.To))
	if !known {
		c.release = releases.Release{Minor: releases.MinorOf(in.To)}
		c.add(fault.Finding{Name: "no-table", Subject: "Kubernetes " + in.To,
			Message: "no table of Kubernetes " + c.release.Minor + ": its removals were not checked",
			Remedy:  "read its release notes, or use a newer version of Slipway"})
		to = releases.Newest()
	}
	stays := true
	c.before = releaseOf(in.oldest())
	for next, more := c.before.Next(); more && !next.After(to); next, more = next.Next() {
		c.release = next
		c.run(nodeSteps)
		if c.takes(in.From) {
			c.run(controlPlaneSteps)
			stays = false
		}
		c.before = next
	}
	if stays {
		c.release, _ = releases.Of(releases.MinorOf(in.To))
		c.run(patchSteps)
	}
	sort.SliceStable(c.found, func(i, j int) bool { return rank(c.found[i]) < rank(c.found[j]) })
	return c.found
}

func (c *checker) run(steps []func(*checker)) {
	for _, step := range steps {
		step(c)
	}
}

// takes reports whether this step upgrades a program of that version.
func (c *checker) takes(version string) bool { return c.release.After(releaseOf(version)) }

// releaseOf treats a version newer than the tables as their newest, an older or unknown version as the release before their oldest.
func releaseOf(version string) releases.Release {
	r, known := releases.Of(releases.MinorOf(version))
	if newest := releases.Newest(); !known && releases.Less(newest.Minor, r.Minor) {
		return newest
	}
	return r
}

func rank(f fault.Finding) int {
	if f.Severity == fault.Error {
		return 0
	}
	return 1
}

// oldest returns the version of the oldest control plane, kubelet or kube-proxy.
func (in Inputs) oldest() string {
	oldest := in.From
	consider := func(version string) {
		if version != "" && (releases.MinorOf(version) == "" || releases.Less(version, oldest)) {
			oldest = version
		}
	}
	consider(in.ProxyFrom)
	for _, k := range in.Kubelets {
		consider(k.From)
	}
	return oldest
}

// add keeps a finding, unless an earlier release breaks the same thing just as badly.
func (c *checker) add(f fault.Finding) {
	f.Evidence = []string{"Kubernetes " + c.release.Minor} // the step that breaks it
	if f.Severity == "" {
		f.Severity = fault.Warning
	}
	if f.Name == NotChecked {
		f.Severity = fault.Unasked
	}
	if c.elsewhere {
		f.Severity = fault.Warning
		f.Remedy += "; the upgrade of that node drops it or reports it as an edit, unless a patch (--patches) there adds it"
	}
	same := func(other fault.Finding) bool {
		return other.Subject == f.Subject && other.Field == f.Field && (other.Field != "" || other.Name == f.Name)
	}
	switch i := slices.IndexFunc(c.found, same); {
	case i < 0:
		c.found = append(c.found, f)
	case rank(f) < rank(c.found[i]):
		c.found[i] = f
	}
}

func (c *checker) reaches(minor string) bool { return c.release.Minor == minor }
