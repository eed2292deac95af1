// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// EtcdMember is a member of etcd and the version that it runs.
type EtcdMember struct {
	Where   string
	Version string // as it reports it: 3.6.8
	// Target is the version that the upgrade gives it; empty for an external etcd, which is upgraded by other means.
	Target string
}

// etcdSteps are the patch releases from which etcd's upgrade notes ask to start on the way to a minor release. Earlier
// ones mostly work (kubeadm goes from 3.6.8 to 3.7.0), so this is a warning.
var etcdSteps = []struct{ to, patch string }{{"3.6.0", "3.5.32"}, {"3.7.0", "3.6.11"}}

// etcd warns of members that are on a patch release from which etcd should not be upgraded. Nobody knows when an
// external etcd is upgraded, so it is asked for what its own next minor release needs.
func (c *checker) etcd() {
	for _, m := range c.Etcd {
		running, err := version.ParseGeneric(m.Version)
		if err != nil {
			c.add(Finding{ID: NotChecked, Where: m.Where, Subject: "version", Fault: fault.Fault{
				Message: fmt.Sprintf("%s: invalid version %q: its patch level was not checked", m.Where, m.Version),
				Remedy:  "ask the member for its version: etcdctl endpoint status"}})
			continue
		}
		for _, step := range etcdSteps {
			id, remedy := "etcd-patch", "upgrade every member to "+step.patch+" or newer first"
			if m.Target == "" {
				id, remedy = "external-etcd-patch", remedy+", and look for v2 data: etcdutl check v2store"
			}
			if m.takes(running, version.MustParseGeneric(step.to)) && running.LessThan(version.MustParseGeneric(step.patch)) {
				c.add(Finding{ID: id, Where: m.Where, Subject: step.patch, Fault: fault.Fault{
					Message: fmt.Sprintf("%s: etcd %s should be %s or newer before the upgrade to %s", m.Where, m.Version, step.patch, minorOf(step.to)),
					Remedy:  remedy}})
			}
		}
	}
}

// takes reports whether the member is to take the step to a minor release: with this upgrade, or as its next one.
func (m EtcdMember) takes(running, to *version.Version) bool {
	if m.Target == "" {
		return running.Minor()+1 == to.Minor()
	}
	target, err := version.ParseGeneric(m.Target)
	return err == nil && running.LessThan(to) && target.AtLeast(to)
}
