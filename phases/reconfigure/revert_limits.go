// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"cmp"
	"context"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
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

// withoutAPI adds to an error how to go back while the API is away, which the change may have broken after its trial.
func withoutAPI(ctx context.Context, env *step.Env, l reconfiguring.Loader, last *trial.Record, err error) error {
	limited, cancel := context.WithTimeout(ctx, node.ReachTimeout)
	defer cancel()
	if err == nil || l.API.Ready(limited) == nil {
		return err
	}
	return fault.WithRemedy(err, "--revert needs the API, because it restores the cluster's configuration, too. "+
		"`slipway diagnose` shows why the API does not answer"+wayByHand(env, last))
}

// wayByHand is the end of a remedy: how to put back a change's files without --revert. It's empty if --revert would refuse to, or if not
// all former files are here.
func wayByHand(env *step.Env, last *trial.Record) string {
	var copies, removals []string
	safe := last.RevertOf == nil
	for _, f := range last.Files {
		then, unkept := last.OriginalContent(env, f)
		now, unread := host.ReadIfExists(env.Host, f.Path)
		if unkept != nil || unread != nil || trial.IsKubeconfig(env, f.Path) {
			safe = false
			continue
		}
		if filepath.Dir(f.Path) == env.Settings().Paths.Manifests {
			upgraded, same := comparePods(then, now)
			if upgraded {
				return ". If the upgrade since " + nameOf(last) + " is the cause, `slipway upgrade rollback` takes that back"
			}
			safe = safe && same
		}
		switch certificate := f.IsCertificate(); {
		case bytes.Equal(now, then), certificate && (host.HashOf(now) != f.After || outlived(now, then, env.Host.Now())):
		case !certificate && host.HashOf(now) != f.After:
			safe = false
		case then == nil:
			removals = append(removals, f.Path)
		default:
			copies = append(copies, filepath.Join(last.Dir(), f.BackupName)+" to "+f.Path)
		}
	}
	if !safe {
		return ""
	}
	return stepsByHand(last, copies, removals)
}

func stepsByHand(last *trial.Record, copies, removals []string) string {
	var steps []string
	if len(copies) > 0 {
		steps = append(steps, "copy "+strings.Join(copies, ", "))
	}
	if len(removals) > 0 {
		steps = append(steps, "remove "+strings.Join(removals, ", "))
	}
	if len(steps) == 0 {
		return ""
	}
	return ". If " + nameOf(last) + " is the cause, " + strings.Join(steps, "; ") +
		"; restart the kubelet (`systemctl restart kubelet`), and then run the same command again"
}

// comparePods reports whether a static Pod has a newer version than in its former manifest, and whether it has the same version and the
// same file with encryption keys. It's neither if one of the manifests is missing or broken.
func comparePods(then, now []byte) (upgraded, same bool) {
	former, unreadable := manifests.DecodePod(then)
	present, broken := manifests.DecodePod(now)
	if unreadable != nil || broken != nil {
		return false, false
	}
	if before, after := manifests.ImageOf(then), manifests.ImageOf(now); !sameVersion(before, after) {
		old, err := version.ParseGeneric(manifests.TagOf(before))
		current, other := version.ParseGeneric(manifests.TagOf(after))
		return err == nil && other == nil && old.LessThan(current), false
	}
	return false, manifests.FlagOf(former, manifests.EncryptionFlag) == manifests.FlagOf(present, manifests.EncryptionFlag)
}
