// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
)

// Program builds a program of a minor version of Kubernetes, empty for the newest. It returns the program's path on this machine
// and in a node; the latter is empty for a program that only images have.
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

// source returns the program and its component's directory.
func (b *Builder) source(p pick) (program, string) {
	found, _ := programNamed(p.program) // a pick's program always exists
	at, _ := b.releaseAt(p.release)
	return found, filepath.Join(b.Components, b.releases[at].dir(found.component))
}

// programPart returns the name of the part with a program.
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
	return b.stamp("program-"+program.name, inputs...), nil
}

func (b *Builder) linkerFlags(p pick) string {
	program, _ := b.source(p)
	at, _ := b.releaseAt(p.release)
	return linkerFlags(program.component, b.releases[at].versions)
}

// programPath returns a program's path, built or not.
func (b *Builder) programPath(p pick) (string, error) {
	name, err := b.programPart(p)
	return filepath.Join(b.path(name), p.program), err
}

// common returns the path of a program shared by all releases.
func (b *Builder) common(name string) (string, error) {
	return b.programPath(b.releases[0].picks(name)[0])
}

// A batch holds programs of the same component, and so with the same flags, for a single build command. It links one program
// while it compiles the next, and checks their shared packages only once.
type batch struct {
	dir, flags string
	picks      []pick
}

func (b *batch) programs() []program {
	var list []program
	for _, p := range b.picks {
		program, _ := programNamed(p.program)
		list = append(list, program)
	}
	return list
}

// batches groups the picks in their order, except that a pick moves up to the first pick of its batch.
func (b *Builder) batches(picks []pick) []*batch {
	var list []*batch
	for _, p := range picks {
		program, dir := b.source(p)
		at := slices.IndexFunc(list, func(other *batch) bool { return other.dir == dir })
		if at < 0 || leftOut[program.name] != nil || leftOut[list[at].picks[0].program] != nil {
			list = append(list, &batch{dir, b.linkerFlags(p), []pick{p}})
			continue
		}
		list[at].picks = append(list[at].picks, p)
	}
	return list
}

// build builds missing programs, one batch after another, as each uses all processors by itself.
func (r *run) build(ctx context.Context, picks []pick) error {
	for _, b := range r.batches(picks) {
		if err := r.buildBatch(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// buildBatch builds the missing programs of a batch. Neither this run nor another builds anything else at the same time.
func (r *run) buildBatch(ctx context.Context, b *batch) error {
	missing, err := r.missing(b.picks)
	if err != nil || len(missing) == 0 {
		return err
	}
	unlock, err := filelock.Take(ctx, r.path(goLock), r.waiting(building(missing)))
	if err != nil {
		return err
	}
	defer unlock()
	if missing, err = r.missing(b.picks); err != nil || len(missing) == 0 { // another run has built them
		return err
	}
	doing := building(missing)
	return errors.WithMessage(r.log.Do(doing, func() error { return r.compile(ctx, b, missing) }), doing)
}

// missing returns the picks that aren't built yet, and marks the others as used.
func (r *run) missing(picks []pick) (missing []pick, err error) {
	for _, p := range picks {
		name, err := r.programPart(p)
		if err != nil {
			return nil, err
		}
		r.use(name)
		if !r.has(name) {
			missing = append(missing, p)
		} else if err := r.ensure(name, nil); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func building(picks []pick) string {
	var names []string
	of := ""
	for _, p := range picks {
		names = append(names, p.program)
		if program, _ := programNamed(p.program); program.ofRelease() {
			of = " for Kubernetes " + p.release
		}
	}
	return "building " + strings.Join(names, ", ") + of
}

// compile builds programs of a batch, and makes a part of each.
func (r *run) compile(ctx context.Context, b *batch, picks []pick) error {
	out, err := os.MkdirTemp(r.dir, unfinished)
	if err != nil {
		return errors.Wrap(err, "cannot make a directory to build in")
	}
	defer os.RemoveAll(out)
	programs := (&batch{picks: picks}).programs()
	command, flags := "build", []string{"-trimpath", "-o", out + "/", "-ldflags", b.flags}
	if programs[0].isTest() { // which is the only one of its component
		command, flags = "test", append(flags, "-c")
	}
	if err := runGo(ctx, r.platform.goEnv(), b.dir, programs, command, flags...); err != nil {
		return err
	}
	for i, p := range picks {
		name, err := r.programPart(p)
		if err != nil {
			return err
		}
		err = r.ensure(name, func(dir string) error {
			return os.Rename(filepath.Join(out, programs[i].built()), filepath.Join(dir, p.program))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch downloads the modules of missing programs, except for the first batch: its build downloads them while it would wait for
// the network anyway.
func (r *run) fetch(ctx context.Context, picks []pick) error {
	missing, err := r.missing(picks)
	if err != nil {
		return err
	}
	var others []*batch
	var names []string
	batches := r.batches(missing)
	for _, b := range batches {
		program, _ := r.source(b.picks[0])
		if b.dir != batches[0].dir && program.pkg != "." { // the lab's own need no module
			others, names = append(others, b), append(names, filepath.Base(b.dir))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return r.log.Do("downloading the Go modules of "+strings.Join(slices.Compact(names), ", "), func() error {
		group, ctx := errgroup.WithContext(ctx)
		for _, b := range others {
			// To list all packages of a program, the Go command downloads the missing modules, and nothing else.
			group.Go(func() error { return runGo(ctx, r.platform.goEnv(), b.dir, b.programs(), "list", "-deps") })
		}
		return group.Wait()
	})
}

func isGoSource(name string) bool {
	return name == "go.mod" || name == "go.sum" || filepath.Ext(name) == ".go"
}
