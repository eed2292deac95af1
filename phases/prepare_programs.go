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
	env.UI.Printf("Installing %d programs of %s", len(files), p.Bundle.Index().KubernetesVersion)
	return env.Host.WriteSet(files, func(put func(string, io.Reader) error) error {
		return p.Bundle.Each(ctx, func(part bundle.Part, content io.Reader) error {
			if f, ok := pending[part.String()]; ok {
				return put(f.Path, content)
			}
			return nil
		})
	})
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
		if !ok || found.foreign() && runtimePrograms[part.Name] {
			continue
		}
		have, err := env.Host.HasFile(f)
		if err != nil {
			return nil, err
		}
		if have {
			continue
		}
		if err := replaceableProgram(env, f.Path); err != nil {
			return nil, err
		}
		pending[part.String()] = f
	}
	return pending, nil
}

// replaceableProgram refuses a program that somebody else has put where the bundle's goes.
func replaceableProgram(env *Env, path string) error {
	_, err := env.Host.Lstat(path)
	if err != nil || env.Host.Made(path) {
		return nil //nolint:nilerr // what cannot be looked at cannot be written either
	}
	return fault.New(path+" is not from a bundle, and differs from the bundle's", "remove it if nothing needs it, and run the same command again")
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
