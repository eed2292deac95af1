// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// anotherVersion is an error that no flag ignores if a component had another version than now: the data may be newer than it can read,
// and only a rollback knows.
func (r *Run) anotherVersion(env *step.Env, f trial.File) *fault.Finding {
	component := trial.ComponentAt(env, f.Path)
	if component == "" {
		return nil
	}
	kept, _ := r.Reverts.OriginalContent(env, f) // the caller says so if it can't read one
	present, _ := host.ReadIfExists(env.Host, f.Path)
	then, now := manifests.ImageOf(kept), cmp.Or(manifests.ImageOf(present), env.Config.Image(component))
	if then == "" || sameVersion(then, now) {
		return nil
	}
	found := fault.NewFinding(fault.ChangedSince, fault.Error, "`slipway upgrade rollback` takes an upgrade back; for a change of the configuration, use `slipway reconfigure --config`",
		"%s has another version since %s counts: %s was %s", f.Path, nameOf(r.Reverts), now, then)
	found.Final = true
	return &found
}

// sameVersion compares the versions in two images' tags, or the tags if these have none.
func sameVersion(a, b string) bool {
	a, b = manifests.TagOf(a), manifests.TagOf(b)
	va, err := version.ParseGeneric(a)
	vb, other := version.ParseGeneric(b)
	if err != nil || other != nil {
		return a == b
	}
	return va.EqualTo(vb)
}
