// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package parts makes what the lab's nodes consist of, from pinned Go modules
// and Debian packages: programs, a root file system and images. Each thing is
// kept under a name that holds the hash of all that went into it, so it is made
// again only if that changed.
package parts

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
}

// Parts are the directories that a node consists of. They never change.
type Parts struct {
	Layers     []string // of the root file system, the topmost first
	Containerd string   // a containerd root that holds all images
	Versions   Versions
}

// builder is one run of Build.
type builder struct {
	Options
	store
	log      *progress.Log
	versions Versions
	made     map[string]bool // names of what this run needs
	programs map[string]string
}

// Build makes what is missing, in a few minutes at first and in no time later.
// It may be interrupted and run again.
func Build(ctx context.Context, o Options) (*Parts, error) {
	b := &builder{Options: o, log: progress.New(o.Log), store: store{dir: filepath.Join(o.Dir, "parts")},
		made: map[string]bool{}, programs: map[string]string{}}
	unlock, err := filelock.Take(b.path(".lock"), func() { b.log.Printf("waiting for another run that is building …") })
	if err != nil {
		return nil, err
	}
	defer unlock()
	if b.versions, err = readVersions(o.Components); err != nil {
		return nil, err
	}
	if err := b.hostPackages(ctx); err != nil {
		return nil, err
	}
	return b.all(ctx)
}

// all makes every part in order; later ones contain earlier ones.
func (b *builder) all(ctx context.Context) (*Parts, error) {
	if err := b.buildPrograms(ctx); err != nil {
		return nil, err
	}
	base, err := b.debian(ctx)
	if err != nil {
		return nil, err
	}
	layer, err := b.layer()
	if err != nil {
		return nil, err
	}
	containerd, err := b.images(ctx, base)
	if err != nil {
		return nil, err
	}
	for _, path := range b.InUse {
		b.made[filepath.Base(path)] = true
	}
	if err := b.sweep(b.made, unused); err != nil {
		return nil, err
	}
	return &Parts{Layers: []string{layer, base}, Containerd: filepath.Join(containerd, "root"), Versions: b.versions}, nil
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
	hashes := map[string]string{}
	version, err := output(ctx, "", nil, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	for i, p := range programs {
		dir := filepath.Join(b.Components, p.component)
		if hashes[p.component] == "" {
			if hashes[p.component], err = treeHash(os.DirFS(dir), isGoSource); err != nil {
				return err
			}
		}
		flags := linkerFlags(p.component, b.versions.Kubernetes)
		name := stamp("program-"+p.name, hashes[p.component], p.pkg, flags, strings.TrimSpace(version))
		doing := fmt.Sprintf("building %s (%d of %d)", p.name, i+1, len(programs))
		made, err := b.part(name, doing, func(out string) error {
			_, err := output(ctx, dir, []string{"CGO_ENABLED=0", "GOWORK=off"}, "go", "build", "-trimpath",
				"-o", filepath.Join(out, p.name), "-ldflags", flags, p.pkg)
			return err
		})
		if err != nil {
			return err
		}
		b.programs[p.name] = filepath.Join(made, p.name)
	}
	return nil
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
