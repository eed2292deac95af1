// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

// NewRevert returns the run to take back this node's last completed change. If that one has taken back another, there's
// nothing to do: the same command again must not bring the change back.
func NewRevert(ctx context.Context, h host.Host, l reconfiguring.Loader) (*Run, []string, error) {
	env := &step.Env{Host: h, Machine: config.DefaultMachine()}
	last, err := trial.LastCompleted(env)
	if err != nil {
		return nil, nil, err
	}
	if last == nil {
		return nil, nil, fault.New("this node has completed no change, so there is nothing to take back",
			"`slipway reconfigure --config` makes changes")
	}
	r := New(nil, "")
	r.Reverts = last
	if len(last.ConfigMaps) == 0 {
		var warnings []string
		r.Change, warnings, err = l.Stored(ctx)
		return r, warnings, withoutAPI(ctx, env, l, last, err)
	}
	before, _ := textsOf(last)
	r.Change, err = l.To(ctx, before)
	return r, nil, withoutAPI(ctx, env, l, last, err)
}

// RevertPhases returns the workflow to take a change back. A node that has stored nothing changes only its files.
func (r *Run) RevertPhases() []step.Phase {
	switch {
	case r.Reverts.RevertOf != nil:
		return []step.Phase{{Name: "finish", Summary: "Finish the run that took the change back", Run: r.finishReverted}}
	case len(r.Reverts.ConfigMaps) == 0:
		return r.NodePhases()
	}
	return r.Phases()
}

// finishReverted only ends what an interrupted run has left.
func (r *Run) finishReverted(ctx context.Context, env *step.Env) error {
	env.UI.Printf("The change of %s has been taken back already", ui.Time(*r.Reverts.RevertOf))
	if err := r.releaseLease(ctx, env); err != nil {
		return err
	}
	return trial.RemoveUnits(ctx, env, false)
}

// before is a ConfigMap's text from before the change to take back.
func (r *Run) before(configMap string) (string, bool) {
	if r.Reverts == nil {
		return "", false
	}
	before, _ := textsOf(r.Reverts)
	text, known := before[configMap]
	return text, known
}

// changedSinceThen finds files and ConfigMaps that were changed after the change to take back: the run would undo these, too.
// A renewed certificate stays as it is.
func (r *Run) changedSinceThen(ctx context.Context, env *step.Env) (findings []fault.Finding) {
	add := func(what string) {
		findings = append(findings, fault.NewFinding(fault.ChangedSince, fault.Error,
			"take that back first, or use `slipway reconfigure --config` with the fields to change; "+fault.Ignoring(fault.ChangedSince)+" overwrites it, and keeps a copy",
			"%s has been changed since %s counts", what, nameOf(r.Reverts)))
	}
	for _, f := range r.Reverts.Files {
		edited, err := r.isEdited(env, f)
		versions := r.anotherVersion(env, f)
		switch {
		case err != nil:
			return append(findings, failedLook(err))
		case versions != nil:
			findings = append(findings, *versions)
		case edited && !f.IsCertificate() && !trial.IsKubeconfig(env, f.Path):
			add(f.Path)
		}
	}
	for _, cm := range r.Reverts.ConfigMaps {
		live := cm.Object()
		if _, err := env.Cluster.Get(ctx, live); err != nil {
			return append(findings, failedLook(err))
		}
		if text := live.Data[cm.Key]; text != cm.After && text != cm.Before {
			add("ConfigMap " + cm.String())
		}
	}
	return findings
}

// isEdited reports whether a file is neither as before the change to take back nor as after it.
func (r *Run) isEdited(env *step.Env, f trial.File) (bool, error) {
	now, err := host.ReadIfExists(env.Host, f.Path)
	if err != nil {
		return false, err
	}
	then, err := r.Reverts.OriginalContent(env, f)
	return host.HashOf(now) != f.After && !bytes.Equal(now, then), err
}

// revertPreflight doesn't ask for edits: the files from before have those of then.
func (r *Run) revertPreflight(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Taking back %s", nameOf(r.Reverts))
	var checks []preflight.Check
	if env.Config.ControlPlane {
		checks = append(append(clusterChecks(env), r.quotaQuestion(env), r.upgradeQuestion(env), r.coreDNSQuestion(env)), r.endpointChecks(env)...)
	}
	return check(ctx, env, append(checks, r.overridesQuestion(env), question(env, fault.ChangedSince, "nobody has changed the files or the ConfigMaps since", r.changedSinceThen)))
}

// findChanged finds the files with other content than before the change to take back.
func (r *Run) findChanged(ctx context.Context, env *step.Env) error {
	for _, f := range r.Reverts.Files {
		then, err := r.Reverts.OriginalContent(env, f)
		if err != nil {
			return err
		}
		if component := trial.ComponentAt(env, f.Path); component == "" || then == nil {
			err = r.findChangedFile(env, f, then)
		} else {
			err = r.findChangedComponent(ctx, env, component, then)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) findChangedComponent(ctx context.Context, env *step.Env, name string, then []byte) error {
	if err := keepsEncryption(env, name, then); err != nil {
		return err
	}
	c, right, err := node.CompareRunning(ctx, env, name, then)
	if err == nil && !right {
		r.components = append(r.components, c)
	}
	return err
}

// keepsEncryption fails if a component would lose the flag for the encryption keys: values in etcd may be encrypted by now.
func keepsEncryption(env *step.Env, component string, then []byte) error {
	now, _ := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(component))
	pod, err := manifests.DecodePod(then)
	if err != nil {
		return err
	}
	file := manifests.FlagOf(now, manifests.EncryptionFlag)
	if file == "" || file == manifests.FlagOf(pod, manifests.EncryptionFlag) {
		return nil
	}
	return fault.New(fmt.Sprintf("taking the last change back would take --%s=%s from %s, which could then be unable to read Secrets", manifests.EncryptionFlag, file, component),
		"`slipway encryption disable` stops encrypting; change other fields with `slipway reconfigure --config`")
}

func (r *Run) findChangedFile(env *step.Env, f trial.File, then []byte) error {
	now, err := host.ReadIfExists(env.Host, f.Path)
	if err != nil {
		return err
	}
	switch {
	case bytes.Equal(now, then):
	case f.IsCertificate() && host.HashOf(now) != f.After:
		env.UI.Printf("Keeping %s, which was renewed since", f.Path)
	case f.IsCertificate() && r.revertsEndpoint(env):
		env.UI.Printf("Keeping %s, because other nodes may still use its names", f.Path)
	case f.IsCertificate() && outlived(now, then, env.Host.Now()):
		env.UI.Printf("Keeping %s, because the one from before the change has expired, or soon will", f.Path)
		return r.addIfLacking(env, f.Path)
	case trial.IsKubeconfig(env, f.Path):
		return r.findChangedKubeconfig(env, f, now, then)
	case filepath.Dir(f.Path) == env.Config.Paths.Kubelet && then != nil:
		r.kubelet = append(r.kubelet, ownership.File{Path: f.Path, Data: then, Mode: f.Mode})
	default:
		r.others = append(r.others, f)
	}
	return nil
}

// outlived reports whether a former certificate is in the last tenth of its life, and the present one ends later.
func outlived(present, former []byte, at time.Time) bool {
	now, err := certs.FirstCert(present)
	if err != nil {
		return false
	}
	then, err := certs.FirstCert(former)
	if err != nil {
		return false
	}
	late := then.NotAfter.Add(-then.NotAfter.Sub(then.NotBefore) / 10)
	return at.After(late) && now.NotAfter.After(then.NotAfter)
}

// addIfLacking has a certificate issued again if it lacks a name the change has taken out.
func (r *Run) addIfLacking(env *step.Env, path string) error {
	rows, err := lackingNames(env)
	for _, row := range rows {
		if env.PKI().Files(row)[0] == path {
			r.certificates = append(r.certificates, row)
		}
	}
	return err
}

// findChangedKubeconfig leaves a file alone if somebody has pointed it elsewhere since.
func (r *Run) findChangedKubeconfig(env *step.Env, f trial.File, now, then []byte) error {
	at, err := kubeconfig.Endpoint(now)
	if err != nil {
		return errors.Wrap(err, f.Path)
	}
	if at != strings.ToLower(env.Config.Endpoint()) && !slices.Contains(r.Former, at) {
		env.UI.Warn("keeping "+f.Path+", which leads to "+at, "before the change, it led to "+f.Server)
		return nil
	}
	r.addKubeconfig(env, asKubeconfig(f.Path, then, f.Mode))
	return nil
}

// revertsEndpoint reports whether the change to take back has led this node elsewhere.
func (r *Run) revertsEndpoint(env *step.Env) bool {
	return r.MovesEndpoint() || slices.ContainsFunc(r.Reverts.Files, func(f trial.File) bool { return trial.IsKubeconfig(env, f.Path) })
}

// restoreOthers writes the replaced files again.
func (r *Run) restoreOthers(env *step.Env) error {
	for _, f := range r.others {
		data, err := r.Reverts.OriginalContent(env, f)
		if err != nil {
			return err
		}
		if data == nil { // removeOthers removes it
			continue
		}
		if err := f.Restore(env, data); err != nil {
			return err
		}
	}
	return nil
}

// removeOthers removes the files the change had added, once no component needs them.
func (r *Run) removeOthers(env *step.Env) error {
	for _, f := range r.others {
		if f.BackupName != "" {
			continue
		}
		if err := f.Restore(env, nil); err != nil {
			return err
		}
	}
	return nil
}
