// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

type EtcdMember struct {
	Where    string
	Version  string // as the member reports it: 3.6.8
	External bool   // set for an etcd upgraded by other means
}

// etcdSteps lists the patch releases from which etcd's upgrade notes ask to start on the way to a minor release. Earlier ones
// mostly work (kubeadm goes from 3.6.8 to 3.7.0), so it's a warning. A stacked etcd needs its image's tag set to get there.
var etcdSteps = []struct{ to, patch string }{{"3.6.0", "3.5.32"}, {"3.7.0", "3.6.11"}}

// etcd checks the members against this release's etcd, which varies: kubeadm 1.36's and Slipway's for Kubernetes 1.36 differ.
func (c *checker) etcd() {
	target := c.etcdTarget()
	for _, m := range c.Etcd {
		running, err := version.ParseGeneric(m.Version)
		if err != nil {
			c.add(fault.Finding{Name: NotChecked, Subject: m.Where, Field: "version",
				Message: fmt.Sprintf("%s: invalid version %q: its patch level was not checked", m.Where, m.Version),
				Remedy:  "ask the member for its version: etcdctl endpoint status"})
			continue
		}
		c.etcdPatch(m, running, target)
	}
	replaces := len(c.Etcd) == 0 || slices.ContainsFunc(c.Etcd, func(m EtcdMember) bool {
		running, err := version.ParseGeneric(m.Version)
		return err != nil || target != nil && !running.EqualTo(target)
	})
	if target != nil && replaces {
		c.etcdFlags(target)
	}
}

// etcdTarget returns the members' version after the upgrade to this release; nil if it's unknown, or if they stay.
func (c *checker) etcdTarget() *version.Version {
	if c.EtcdVersion == nil {
		return nil
	}
	text := c.EtcdVersion(c.release.Minor)
	if text == "" { // external
		return nil
	}
	target, err := version.ParseGeneric(text)
	if err != nil {
		c.add(fault.Finding{Name: NotChecked, Subject: "etcd", Field: "imageTag",
			Message: fmt.Sprintf("etcd: its image has the tag %q, which is not a version: the upgrade of etcd was not checked", text),
			Remedy:  "look at etcd's release notes, and set etcd.local.imageTag to a tag that begins with the version"})
		return nil
	}
	return target
}

// etcdPatch warns of a member on a patch release from which etcd shouldn't be upgraded. An external etcd may be upgraded any
// time, so it should be ready for its own next minor release.
func (c *checker) etcdPatch(m EtcdMember, running, target *version.Version) {
	for _, step := range etcdSteps {
		to := version.MustParseGeneric(step.to)
		takes := target != nil && running.LessThan(to) && target.AtLeast(to)
		f := fault.Finding{Name: "etcd-patch"}
		f.Remedy = "it usually works, and kubeadm does the same; to be safe, first set etcd.local.imageTag: " + step.patch + "-0 in ConfigMap kube-system/kubeadm-config, " +
			"run `slipway upgrade apply` with the version that the cluster has (on the other control planes `slipway upgrade node`), then remove the tag"
		if step.to == "3.6.0" { // Slipway's static Pods have flags of etcd 3.6
			f.Remedy = "it usually works, and kubeadm does the same; to be safe, first set etcd.local.imageTag: " + step.patch + "-0 in ConfigMap kube-system/kubeadm-config, " +
				"run `kubeadm upgrade apply` with the version that the cluster has (on the other control planes `kubeadm upgrade node`), then remove the tag"
		}
		if m.External {
			takes = running.Minor()+1 == to.Minor()
			f.Name = "external-etcd-patch"
			f.Remedy = "upgrade every member to " + step.patch + " or newer first, and look for v2 data: etcdutl check v2store"
		}
		if !takes || running.AtLeast(version.MustParseGeneric(step.patch)) {
			continue
		}
		f.Subject, f.Field = m.Where, step.patch
		f.Message = fmt.Sprintf("%s: etcd %s should be %s or newer before the upgrade to %s", m.Where, m.Version, step.patch, releases.MinorOf(step.to))
		c.add(f)
	}
}

// etcdFlags finds flags that this upgrade's etcd doesn't have.
func (c *checker) etcdFlags(target *version.Version) {
	release, known := releases.OfEtcd(releases.MinorOf(target.String()))
	for _, command := range c.Commands {
		switch {
		case command.Program != releases.Etcd:
		case !known:
			c.add(fault.Finding{Name: "no-table", Subject: command.Where, Field: "etcd " + release.Minor,
				Message: fmt.Sprintf("%s: no table of etcd %s: its flags were not checked", command.Where, release.Minor),
				Remedy:  "read its release notes, or use a newer version of Slipway"})
		default:
			c.elsewhere = command.Running
			c.flags(command.Where, flagSet{program: releases.Etcd, release: release.Minor, has: release.HasFlag}, command.Args)
			c.elsewhere = false
		}
	}
}
