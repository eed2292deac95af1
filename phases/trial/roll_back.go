// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bytes"
	"context"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// RollBack makes this node run with its files from before the change again. The caller notes the end of it, as Reverted.
func (r *Record) RollBack(ctx context.Context, env *step.Env, turn node.Lease) error {
	if err := r.startRollback(env); err != nil || len(r.Files) == 0 || r.FilesRestored {
		return err
	}
	turn.KeepOnFailure()
	var components []node.Replacement
	err := r.eachFormer(env, func(f File, former []byte) error {
		component := ComponentAt(env, f.Path)
		if component == "" || former == nil {
			return f.Restore(env, former)
		}
		c, right, err := node.CompareRunning(ctx, env, component, former)
		if err == nil && !right {
			components = append(components, c)
		}
		return err
	})
	if err != nil {
		return err
	}
	return restart(ctx, env, turn, components)
}

// startRollback notes that the change goes back, and fails while etcd's data is being replaced: etcd's static Pod is away on
// purpose then.
func (r *Record) startRollback(env *step.Env) error {
	journal, err := node.ReadEtcdJournal(env)
	if err != nil {
		return err
	}
	begun, err := node.EtcdDataReplacement{OldData: journal.OldData}.Started(env)
	switch {
	case err != nil:
		return err
	case begun:
		return journal.Unfinished()
	}
	return r.Set(env, Reverting)
}

// restart swaps the previous static Pods in, all at once, and restarts the kubelet in any case: it may have read new settings.
func restart(ctx context.Context, env *step.Env, turn node.Lease, components []node.Replacement) error {
	if len(components) > 0 {
		env.UI.Printf("Putting back %s", node.NamesOf(components))
		_, err := node.ReplaceStaticPods(ctx, env, turn, components)
		if needed := (*node.QuorumError)(nil); errors.As(err, &needed) {
			return fault.WithRemedy(err, needed.Remedy()+". If etcd can do without this member, run `systemctl stop slipway-watch`, which also tries to put this node back, and then `slipway reconfigure node "+fault.Ignoring(fault.EtcdQuorum)+"`")
		}
		return err
	}
	return node.RestartKubeletAndWait(ctx, env)
}

// RestoreFiles puts the files back, and nothing else: the kubelet hasn't started yet. From then on, nobody can confirm the change.
func (r *Record) RestoreFiles(env *step.Env) error {
	if err := r.startRollback(env); err != nil || r.FilesRestored {
		return err
	}
	return r.eachFormer(env, func(f File, former []byte) error { return f.Restore(env, former) })
}

// FinishRollback ends a change that goes back, for a workflow that's about to write the same files and to restart their readers.
// Putting them back later would undo that workflow. Only add-ons may be left to put back, which the watch does; in is the change
// that the workflow makes to each text.
func (r *Record) FinishRollback(ctx context.Context, env *step.Env, in func(string) string) error {
	if err := r.RestoreFiles(env); err != nil {
		return err
	}
	if !r.Addons {
		if err := r.Set(env, Reverted); err != nil {
			return err
		}
		return RemoveUnits(ctx, env, false)
	}
	for i := range r.ConfigMaps {
		cm := &r.ConfigMaps[i]
		cm.Before, cm.After = in(cm.Before), in(cm.After)
	}
	r.FilesRestored = true
	return r.Set(env, Reverting)
}

// OriginalContent is a file's content from before the change; nil if it didn't exist. A kubeconfig file has its present
// credentials.
func (r *Record) OriginalContent(env *step.Env, f File) ([]byte, error) {
	if f.Server != "" {
		return f.kubeconfigForFormerServer(env)
	}
	if f.BackupName == "" {
		return nil, nil
	}
	return env.Host.ReadFile(filepath.Join(r.dir, f.BackupName))
}

// kubeconfigForFormerServer is a kubeconfig file as it leads to its former server; nil if it's gone.
func (f File) kubeconfigForFormerServer(env *step.Env) ([]byte, error) {
	data, err := host.ReadIfExists(env.Host, f.Path)
	if err != nil || data == nil {
		return nil, err
	}
	at, err := kubeconfig.Endpoint(data)
	if err == nil && at != f.Server {
		data, err = kubeconfig.AtServer(data, "https://"+f.Server)
	}
	return data, errors.Wrap(err, f.Path)
}

// isNew reports whether the file didn't exist before the change.
func (f File) isNew() bool { return f.BackupName == "" && f.Server == "" }

// Restore writes the file again, or removes it if it didn't exist.
func (f File) Restore(env *step.Env, data []byte) error {
	switch {
	case IsKubeconfig(env, f.Path) && data == nil:
		return nil // somebody has removed it
	case f.isNew():
		return env.Host.Remove(f.Path)
	}
	if now, err := host.ReadIfExists(env.Host, f.Path); err != nil || bytes.Equal(now, data) {
		return err
	}
	env.UI.Printf("Putting back %s", f.Path)
	_, err := env.Host.WriteOwned(f.Path, data, f.Mode, host.Owner{UID: f.UID, GID: f.GID})
	return err
}
