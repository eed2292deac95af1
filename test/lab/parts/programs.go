// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
)

// Program builds a program as nodes of a minor version of Kubernetes have it, "" being the newest: its path on this
// machine, and in a node, which is empty for one that only images have.
func (b *Builder) Program(ctx context.Context, minor, name string) (here, inNode string, err error) {
	paths, err := b.Programs(ctx, minor, name)
	if err != nil {
		return "", "", err
	}
	if place := onNode[name]; place != "" {
		inNode = "/" + place
	}
	return paths[name], inNode, nil
}

// Programs builds several programs of a minor version and returns their paths on this machine.
func (b *Builder) Programs(ctx context.Context, minor string, names ...string) (map[string]string, error) {
	at, err := b.releaseAt(minor)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := programNamed(name); err != nil {
			return nil, err
		}
	}
	paths := map[string]string{}
	picks := inOrder(b.releases[at].picks(names...))
	err = b.do(ctx, func(ctx context.Context, r *run) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return r.fetch(ctx, picks) })
		group.Go(func() error { return r.build(ctx, picks) })
		if err := group.Wait(); err != nil {
			return err
		}
		for _, p := range picks {
			if paths[p.program], err = b.programPath(p); err != nil {
				return err
			}
		}
		return nil
	})
	return paths, err
}

// source is the directory of the component that a program is built from.
func (b *Builder) source(p pick) (program, string) {
	found, _ := programNamed(p.program) // a pick has a program that exists
	at, _ := b.releaseAt(p.release)
	return found, filepath.Join(b.Components, b.releases[at].dir(found.component))
}

// programPart is the name of the part that has a program.
func (b *Builder) programPart(p pick) (string, error) {
	program, dir := b.source(p)
	hash, err := treeHash(os.DirFS(dir), isGoSource)
	if err != nil {
		return "", err
	}
	goVersion, err := b.goVersion()
	if err != nil {
		return "", err
	}
	inputs := append([]string{hash, program.pkg, b.linkerFlags(p), goVersion}, leftOut[program.name]...)
	return stamp("program-"+program.name, inputs...), nil
}

func (b *Builder) linkerFlags(p pick) string {
	program, _ := b.source(p)
	at, _ := b.releaseAt(p.release)
	return linkerFlags(program.component, b.releases[at].versions)
}

// programPath is the path of a program, built or not.
func (b *Builder) programPath(p pick) (string, error) {
	name, err := b.programPart(p)
	return filepath.Join(b.store.path(name), p.program), err
}

// common is the path of a program that all releases share.
func (b *Builder) common(name string) (string, error) {
	return b.programPath(b.releases[0].picks(name)[0])
}

// build builds programs that are not there, one after another: each build uses all processors by itself.
func (r *run) build(ctx context.Context, picks []pick) error {
	for _, p := range picks {
		if err := r.program(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// program builds a program unless it's there. No other program, of this run or another, is built at the same time.
func (r *run) program(ctx context.Context, p pick) error {
	name, err := r.programPart(p)
	if err != nil {
		return err
	}
	program, dir := r.source(p)
	doing := "building " + p.program
	if program.ofRelease() {
		doing += " for Kubernetes " + p.release
	}
	if !r.has(name) {
		unlock, err := filelock.Take(ctx, r.store.path(goLock), r.waiting(doing))
		if err != nil {
			return err
		}
		defer unlock()
	}
	_, err = r.part(ctx, name, doing, func(out string) error {
		return program.run(ctx, dir, "build", "-trimpath", "-o", filepath.Join(out, p.program), "-ldflags", r.linkerFlags(p))
	})
	return err
}

// fetch downloads the modules that programs which are not there are built from: all but those of the first, whose build
// downloads them while this waits for the network, too.
func (r *run) fetch(ctx context.Context, picks []pick) error {
	wanted := map[string][]program{}
	first := ""
	for _, p := range picks {
		name, err := r.programPart(p)
		if err != nil {
			return err
		}
		program, dir := r.source(p)
		if r.has(name) || program.pkg == "." { // which needs no module
			continue
		}
		if first == "" {
			first = dir
		}
		wanted[dir] = append(wanted[dir], program)
	}
	delete(wanted, first)
	if len(wanted) == 0 {
		return nil
	}
	var names []string
	for _, dir := range slices.Sorted(maps.Keys(wanted)) {
		names = append(names, filepath.Base(dir))
	}
	return r.log.Do("downloading the Go modules of "+strings.Join(names, ", "), func() error {
		group, ctx := errgroup.WithContext(ctx)
		for dir, programs := range wanted {
			group.Go(func() error { return download(ctx, dir, programs) })
		}
		return group.Wait()
	})
}

// download has the Go command list all packages that the programs of a component consist of, for which it downloads what
// is missing, and nothing else.
func download(ctx context.Context, dir string, programs []program) error {
	args := []string{"go", "list", "-deps"}
	for _, p := range programs {
		if leftOut[p.name] == nil {
			args = append(args, p.pkg)
			continue
		}
		if err := p.run(ctx, dir, "list", "-deps"); err != nil {
			return err
		}
	}
	if len(args) == 3 {
		return nil
	}
	_, err := output(ctx, dir, goEnv, args...)
	return err
}

func isGoSource(name string) bool {
	return name == "go.mod" || name == "go.sum" || filepath.Ext(name) == ".go"
}
