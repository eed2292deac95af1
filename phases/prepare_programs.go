// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"encoding/hex"
	"io"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/kubeletconfig"
)

// runtimePrograms are those of a bundle that a host with another container runtime does not need.
var runtimePrograms = map[string]bool{"containerd": true, "containerd-shim-runc-v2": true, "ctr": true, "runc": true}

func (p *Prepare) programs() Phase {
	return Phase{
		Name:    "programs",
		Summary: "Verify the bundle, and put its programs and units in place",
		Flags:   prepareFlags(),
		Run:     p.runPrograms,
	}
}

// runPrograms reads the bundle only if something of it is missing here. Nothing is put in place before all of the bundle
// has been verified.
func (p *Prepare) runPrograms(ctx context.Context, env *Env) error {
	if p.Bundle == nil {
		return nil
	}
	pending, err := p.pendingFiles(ctx, env)
	if err != nil || len(pending) == 0 {
		return err
	}
	files := make([]host.SetFile, 0, len(pending))
	for _, part := range p.parts() {
		if f, ok := pending[part.String()]; ok {
			if err := env.Host.EnsureDir(filepath.Dir(f.Path), 0o755); err != nil {
				return err
			}
			files = append(files, f)
		}
	}
	env.UI.Printf("Verifying the bundle, and installing %d files", len(files))
	err = env.Host.WriteSet(files, func(put func(string, io.Reader) error) error {
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
		units = units || filepath.Dir(f.Path) == unitDir
	}
	if err := relabel(ctx, env, paths...); err != nil || !units {
		return err
	}
	return env.Host.ReloadUnits(ctx)
}

// relabel gives new files the SELinux contexts of their places, where SELinux is on.
func relabel(ctx context.Context, env *Env, paths ...string) error {
	if !env.Host.SELinux() {
		return nil
	}
	return env.Host.RestoreContexts(ctx, paths)
}

// pendingFiles are the files to write, by part.
func (p *Prepare) pendingFiles(ctx context.Context, env *Env) (map[string]host.SetFile, error) {
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return nil, err
	}
	kubelet, err := unitState(ctx, env, kubeletUnit)
	if err != nil {
		return nil, err
	}
	packaged := kubelet.LoadState == "loaded" && kubelet.Fragment != kubeletconfig.UnitPath
	pending := map[string]host.SetFile{}
	for _, part := range p.parts() {
		f, ok := fileOf(part)
		switch {
		case !ok, found.foreign() && forRuntime(part), part.Name == kubeletUnit && packaged:
			continue
		case part.Name == "kubelet" && kubeletIsGood(ctx, env, p.Bundle.Index().KubernetesVersion):
			continue
		}
		write, err := needsFile(env, part, f)
		if err != nil {
			return nil, err
		}
		if write {
			pending[part.String()] = f
		}
	}
	return pending, nil
}

// forRuntime reports whether a part is of no use with another container runtime.
func forRuntime(part bundle.Part) bool {
	return part.Type == bundle.Program && runtimePrograms[part.Name] || part.Type == bundle.Unit && part.Name == containerd.Unit || part.Type == bundle.Setting
}

// needsFile reports whether a file is to be written. One of somebody else's is used in the place of the bundle's, unless it
// has to fit the others; and a unit or a setting that was edited stays.
func needsFile(env *Env, part bundle.Part, f host.SetFile) (bool, error) {
	have, err := env.Host.HasFile(f)
	if err != nil || have {
		return false, err
	}
	if _, err := env.Host.Lstat(f.Path); err != nil {
		return true, ignoreMissing(err)
	}
	program := part.Type == bundle.Program || part.Type == bundle.CNIPlugin
	switch {
	case program && env.Host.Made(f.Path), env.Host.Unchanged(f.Path):
		return true, nil
	case part.Type == bundle.Program && (part.Name == "kubelet" || runtimePrograms[part.Name]):
		return false, fault.New(f.Path+" is not from a bundle, and differs from the one in this bundle",
			"remove it if nothing needs it, and run the same command again")
	}
	env.UI.Printf("Using the %s that is there, not the bundle's", f.Path)
	return false, nil
}

// unitDir is for units of programs in /usr/local: systemd.unit(5).
const unitDir = "/usr/local/lib/systemd/system"

// fileOf is where a part of the bundle goes, if it is a file.
func fileOf(part bundle.Part) (host.SetFile, bool) {
	f := host.SetFile{Mode: 0o644, Size: part.Size}
	switch part.Type {
	case bundle.Program:
		f.Path, f.Mode = filepath.Join(programDir, part.Name), 0o755
	case bundle.CNIPlugin:
		f.Path, f.Mode = filepath.Join(cniDir, part.Name), 0o755
	case bundle.Unit:
		f.Path = filepath.Join(unitDir, part.Name)
	case bundle.Setting:
		f.Path = filepath.Join(containerd.ConfDir, part.Name)
	case bundle.Image:
		return f, false
	}
	n, err := hex.Decode(f.SHA256[:], []byte(part.Digest.Hex))
	return f, err == nil && n == len(f.SHA256)
}

// BundledUnits are the units of a bundle's programs, by the name of the program.
func BundledUnits() map[string][]byte {
	return map[string][]byte{
		"kubelet":    kubeletconfig.Unit(filepath.Join(programDir, "kubelet")),
		"containerd": containerd.ServiceUnit(filepath.Join(programDir, "containerd")),
	}
}
