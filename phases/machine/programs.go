// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/hex"
	"io"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// runtimePrograms are a bundle's programs that a host with another container runtime doesn't need.
var runtimePrograms = map[string]bool{"containerd": true, "containerd-shim-runc-v2": true, "ctr": true, "runc": true}

// runPrograms reads the bundle only if this host lacks part of it. Nothing is put in place before all of the bundle is verified.
func (p *Prepare) runPrograms(ctx context.Context, env *step.Env) error {
	if p.Bundle == nil {
		return nil
	}
	pending, err := p.pendingFiles(ctx, env)
	switch {
	case err != nil:
		return err
	case len(pending.refused) > 0:
		return pending.refused[0]
	}
	for _, path := range pending.kept {
		env.UI.Printf("Using the existing %s, not the bundle's", path)
	}
	if len(pending.files) == 0 {
		return nil
	}
	return p.putInPlace(ctx, env, pending.files)
}

func (p *Prepare) putInPlace(ctx context.Context, env *step.Env, pending map[string]host.SetFile) error {
	files := make([]host.SetFile, 0, len(pending))
	for _, part := range p.parts() {
		if f, ok := pending[part.String()]; ok {
			if err := ensureDir(env, filepath.Dir(f.Path)); err != nil {
				return err
			}
			files = append(files, f)
		}
	}
	if _, brings := pending[containerdUnit.String()]; brings {
		if err := p.noteContainerd(env); err != nil {
			return err
		}
	}
	env.UI.Printf("Verifying the bundle, and installing %d files", len(files))
	err := env.Host.WriteSet(files, func(put func(string, io.Reader) error) error {
		return p.Bundle.Each(ctx, func(part bundle.Part, content io.Reader) error {
			if f, ok := pending[part.String()]; ok {
				return put(f.Path, content)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	paths, units := make([]string, len(files)), false
	for i, f := range files {
		paths[i] = f.Path
		units = units || slices.Contains([]string{unitDir, earlyUnitDir}, filepath.Dir(f.Path))
	}
	if err := relabel(ctx, env, paths...); err != nil || !units {
		return err
	}
	return env.Host.ReloadUnits(ctx)
}

func relabel(ctx context.Context, env *step.Env, paths ...string) error {
	if !env.Host.SELinux() {
		return nil
	}
	err := env.Host.RestoreContexts(ctx, paths)
	for _, path := range paths {
		if err == nil {
			err = env.Host.SyncFiles(path)
		}
	}
	return err
}

type pendingFiles struct {
	files   map[string]host.SetFile // to write, by part
	kept    []string                // somebody else's, used instead of the bundle's
	refused []error                 // somebody else's that would have to fit the bundle's, and newer programs
}

func (p pendingFiles) directories() []string {
	var dirs []string
	for _, f := range p.files {
		dirs = append(dirs, filepath.Dir(f.Path))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func (p *Prepare) pendingFiles(ctx context.Context, env *step.Env) (pending pendingFiles, err error) {
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return pending, err
	}
	kubelet, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil {
		return pending, err
	}
	refusal, err := p.olderThanOther(ctx, env, kubelet)
	if err != nil {
		return pending, err
	}
	if refusal != nil {
		pending.refused = append(pending.refused, refusal)
	}
	packaged := kubelet.LoadState == "loaded" && !isBundlesPlace(env.Host, kubelet.Fragment, node.KubeletUnit)
	pending.files = map[string]host.SetFile{}
	for _, part := range p.parts() {
		f, ok := fileOf(env.Host, part)
		switch {
		case !ok, found.foreign() && forRuntime(part), part.Name == node.KubeletUnit && packaged:
			continue
		case part.Name == "kubelet" && hasMatchingKubelet(ctx, env, p.Bundle.Index().KubernetesVersion):
			continue
		}
		if err := p.decide(ctx, env, part, f, &pending); err != nil {
			return pending, err
		}
	}
	return pending, nil
}

func (p *Prepare) decide(ctx context.Context, env *step.Env, part bundle.Part, f host.SetFile, pending *pendingFiles) error {
	have, err := env.Host.HasFile(f)
	if errors.As(err, new(*host.KindError)) {
		if info, failure := env.Host.Stat(f.Path); failure == nil && info.Mode().IsRegular() { // somebody's link to a program
			have, err = false, nil
		}
	}
	if err != nil || have {
		return err
	}
	write, refusal, err := p.mayReplace(ctx, env, part, f.Path)
	switch {
	case err != nil:
		return err
	case refusal != nil:
		pending.refused = append(pending.refused, refusal)
	case write:
		pending.files[part.String()] = f
	default:
		pending.kept = append(pending.kept, f.Path)
	}
	return nil
}

// containerdUnit shows that a bundle brings containerd: the program alone may be the operator's.
var containerdUnit = bundle.Part{Type: bundle.Unit, Name: containerd.Unit}

// forRuntime reports whether a part is useless with another container runtime.
func forRuntime(part bundle.Part) bool {
	return part.Type == bundle.Program && runtimePrograms[part.Name] || part.Type == bundle.Unit && part.Name == containerd.Unit || part.Type == bundle.Setting
}

func fileOf(h host.PathReader, part bundle.Part) (host.SetFile, bool) {
	f := host.SetFile{Mode: 0o644, Size: part.Size}
	switch part.Type {
	case bundle.Program:
		f.Path, f.Mode = filepath.Join(programDir, part.Name), 0o755
	case bundle.CNIPlugin:
		f.Path, f.Mode = filepath.Join(cniDir, part.Name), 0o755
	case bundle.Unit:
		f.Path = filepath.Join(unitDirOf(h), part.Name)
		if part.Name == node.KubeletUnit {
			f.Mode = kubeletconfig.UnitMode
		}
	case bundle.Setting:
		f.Path = filepath.Join(containerd.ConfDir, part.Name)
	case bundle.Image:
		return f, false
	}
	n, err := hex.Decode(f.SHA256[:], []byte(part.Digest.Hex))
	return f, err == nil && n == len(f.SHA256)
}

// BundledUnits are the units of a bundle's programs, by the program's name.
func BundledUnits() map[string][]byte {
	return map[string][]byte{
		"kubelet":    kubeletconfig.Unit(filepath.Join(programDir, "kubelet")),
		"containerd": containerd.ServiceUnit(filepath.Join(programDir, "containerd")),
	}
}
