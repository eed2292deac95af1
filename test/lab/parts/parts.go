// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package parts makes what the lab's nodes consist of, from pinned Go modules
// and Debian packages: programs, a root file system and images. Each thing is
// kept under a name that holds the hash of all that went into it, so it is made
// again only if that changed.
package parts

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
	"github.com/slipway-k8s/slipway/test/lab/internal/progress"
)

// unused is how long things of an older recipe are kept, for people who go
// back and forth between two states of the source.
const unused = 72 * time.Hour

// Options say where things come from and where they go.
type Options struct {
	Components string    // directory with the component modules
	Dir        string    // directory that keeps what was made
	Log        io.Writer // progress, for people
	InUse      []string  // paths below Dir that must not be swept away
	Older      []string  // minor versions of Kubernetes to build beside the default
}

// Parts are the directories that a node consists of. They never change.
type Parts struct {
	Releases   map[string]Release // by minor version of Kubernetes
	Default    string             // the newest of them
	Containerd string             // a containerd root that holds the images of all of them
	Bare       []string           // layers of a machine without all that, as images of clouds are, the topmost first
}

// Release is what differs between nodes of different versions.
type Release struct {
	Layers   []string // of the root file system, the topmost first
	Versions Versions
}

// builder is one run of Build.
type builder struct {
	Options
	store
	log      *progress.Log
	made     map[string]bool // names of what this run needs
	releases []*built
}

// built is a release with what has been made for it.
type built struct {
	release
	versions Versions
	programs map[string]string // all that its nodes and images have, the common ones too
}

// Build makes what is missing, in a few minutes at first and in no time later.
// It may be interrupted and run again.
func Build(ctx context.Context, o Options) (*Parts, error) {
	b, unlock, err := newBuilder(o)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.hostPackages(ctx); err != nil {
		return nil, err
	}
	return b.all(ctx)
}

// Programs makes the programs alone, and returns their paths: by minor version
// of Kubernetes, and by name.
func Programs(ctx context.Context, o Options) (map[string]map[string]string, error) {
	b, unlock, err := newBuilder(o)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.buildPrograms(ctx); err != nil {
		return nil, err
	}
	paths := map[string]map[string]string{}
	for _, r := range b.releases {
		paths[r.name] = r.programs
	}
	return paths, nil
}

// newBuilder waits until no other run is building; unlock lets the next one begin.
func newBuilder(o Options) (b *builder, unlock func(), err error) {
	b = &builder{Options: o, log: progress.New(o.Log), store: store{dir: filepath.Join(o.Dir, "parts")},
		made: map[string]bool{}}
	for _, name := range slices.Compact(append([]string{releases[0].name}, o.Older...)) {
		r, err := releaseNamed(name)
		if err != nil {
			return nil, nil, err
		}
		versions, err := readVersions(o.Components, r)
		if err != nil {
			return nil, nil, err
		}
		b.releases = append(b.releases, &built{release: r, versions: versions, programs: map[string]string{}})
	}
	unlock, err = filelock.Take(b.path(".lock"), func() { b.log.Printf("waiting for another run that is building …") })
	return b, unlock, err
}

// all makes every part in order; later ones contain earlier ones.
func (b *builder) all(ctx context.Context) (*Parts, error) {
	if err := b.buildPrograms(ctx); err != nil {
		return nil, err
	}
	base, err := b.debian(ctx, "nodes", nodePackages)
	if err != nil {
		return nil, err
	}
	common, err := b.commonLayer()
	if err != nil {
		return nil, err
	}
	p := &Parts{Releases: map[string]Release{}, Default: releases[0].name}
	for _, r := range b.releases {
		own, err := b.releaseLayer(r)
		if err != nil {
			return nil, err
		}
		p.Releases[r.name] = Release{Layers: []string{own, common, base}, Versions: r.versions}
	}
	containerd, err := b.images(ctx, base)
	if err != nil {
		return nil, err
	}
	p.Containerd = filepath.Join(containerd, "root")
	if p.Bare, err = b.bareLayers(ctx); err != nil {
		return nil, err
	}
	for _, path := range b.InUse {
		b.made[filepath.Base(path)] = true
	}
	if err := b.sweep(b.made, unused); err != nil {
		return nil, err
	}
	return p, nil
}

// bareLayers are the layers of a machine with an init system and nothing that
// Kubernetes needs, the topmost first.
func (b *builder) bareLayers(ctx context.Context) ([]string, error) {
	machine, err := b.layer("machine", "laying out the files of bare machines", nil, content{"machine", machineLinks})
	if err != nil {
		return nil, err
	}
	base, err := b.debian(ctx, "bare machines", barePackages)
	return []string{machine, base}, err
}

// part makes the named thing if it is missing, as a step that people see.
func (b *builder) part(name, doing string, make func(dir string) error) (string, error) {
	b.made[name] = true
	if b.has(name) {
		return b.path(name), b.ensure(name, make)
	}
	err := b.log.Do(doing, func() error { return b.ensure(name, make) })
	return b.path(name), errors.WithMessage(err, doing)
}

// buildPrograms builds every program that is not there, one after another: each
// build uses all processors by itself.
func (b *builder) buildPrograms(ctx context.Context) error {
	version, err := output(ctx, "", nil, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	for i, r := range b.releases {
		for _, p := range programs {
			if !p.ofRelease() && i > 0 {
				r.programs[p.name] = b.releases[0].programs[p.name]
				continue
			}
			if r.programs[p.name], err = b.program(ctx, p, r, strings.TrimSpace(version)); err != nil {
				return err
			}
		}
	}
	return nil
}

// program builds a program as a release has it, and returns its path.
func (b *builder) program(ctx context.Context, p program, r *built, goVersion string) (string, error) {
	dir := filepath.Join(b.Components, r.dir(p.component))
	hash, err := treeHash(os.DirFS(dir), isGoSource)
	if err != nil {
		return "", err
	}
	doing := "building " + p.name
	if p.ofRelease() {
		doing += " for Kubernetes " + r.name
	}
	flags := linkerFlags(p.component, r.versions)
	inputs := append([]string{hash, p.pkg, flags, goVersion}, leftOut[p.name]...)
	made, err := b.part(stamp("program-"+p.name, inputs...), doing, func(out string) error {
		return p.build(ctx, dir, "-trimpath", "-o", filepath.Join(out, p.name), "-ldflags", flags)
	})
	return filepath.Join(made, p.name), err
}

func isGoSource(name string) bool {
	return name == "go.mod" || name == "go.sum" || filepath.Ext(name) == ".go"
}

// output runs a program and returns what it printed; a failure's error holds
// the end of what it said. Cancelling ctx interrupts it politely at first.
func output(ctx context.Context, dir string, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", errors.Wrap(ctx.Err(), argv[0])
		}
		return "", errors.Wrapf(err, "%s: %s", strings.Join(argv, " "), lastLines(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}

// lastLines are those that say why something failed.
func lastLines(text string) string {
	const most = 2000
	text = strings.TrimSpace(text)
	return text[max(len(text)-most, 0):]
}
