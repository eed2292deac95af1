// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"encoding/hex"
	"io"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// runtimePrograms are those of a bundle that a host with another container runtime does not need.
var runtimePrograms = map[string]bool{"containerd": true, "containerd-shim-runc-v2": true, "ctr": true, "runc": true}

func (p *Prepare) programs() Phase {
	return Phase{
		Name:    "programs",
		Summary: "Verify the bundle, and put its programs in place",
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
	pending, err := p.pendingPrograms(ctx, env)
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
	env.UI.Printf("Verifying the bundle, and installing %d programs", len(files))
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
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	return relabel(ctx, env, paths...)
}

// relabel gives new files the SELinux contexts of their places, where SELinux is on.
func relabel(ctx context.Context, env *Env, paths ...string) error {
	if !env.Host.SELinux() {
		return nil
	}
	return env.Host.RestoreContexts(ctx, paths)
}

// pendingPrograms are the files to write, by part.
func (p *Prepare) pendingPrograms(ctx context.Context, env *Env) (map[string]host.SetFile, error) {
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return nil, err
	}
	pending := map[string]host.SetFile{}
	for _, part := range p.parts() {
		f, ok := programFile(part)
		if !ok || found.foreign() && runtimePrograms[part.Name] || part.Name == "kubelet" && kubeletIsGood(ctx, env, p.Bundle.Index().KubernetesVersion) {
			continue
		}
		have, err := env.Host.HasFile(f)
		if err != nil {
			return nil, err
		}
		if have {
			continue
		}
		taken, err := takenByOperator(env, part, f.Path)
		if err != nil {
			return nil, err
		}
		if !taken {
			pending[part.String()] = f
		}
	}
	return pending, nil
}

// takenByOperator reports whether somebody else has put a program where the bundle's goes. It is used in its place, unless
// it has to fit the others.
func takenByOperator(env *Env, part bundle.Part, path string) (bool, error) {
	if _, err := env.Host.Lstat(path); err != nil || env.Host.Made(path) {
		return false, ignoreMissing(err)
	}
	if part.Name == "kubelet" || runtimePrograms[part.Name] {
		return false, fault.New(path+" is not from a bundle, and differs from the one in this bundle",
			"remove it if nothing needs it, and run the same command again")
	}
	env.UI.Printf("Using the %s that is there, not the bundle's", path)
	return true, nil
}

// programFile is where a program of the bundle goes.
func programFile(part bundle.Part) (host.SetFile, bool) {
	dir := map[bundle.Type]string{bundle.Program: programDir, bundle.CNIPlugin: cniDir}[part.Type]
	if dir == "" {
		return host.SetFile{}, false
	}
	f := host.SetFile{Path: filepath.Join(dir, part.Name), Mode: 0o755, Size: part.Size}
	n, err := hex.Decode(f.SHA256[:], []byte(part.Digest.Hex))
	return f, err == nil && n == len(f.SHA256)
}
