// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package parts makes the parts of the lab's nodes from pinned Go modules and Debian packages: programs, a root file system and
// images. Each part is made on demand, and kept under a name with the hash of all its inputs, so it's made again only if they
// change.
package parts

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
	"github.com/slipway-k8s/slipway/test/lab/internal/progress"
)

// unused is how long parts of an older recipe are kept, for people who switch between two states of the source.
const unused = 72 * time.Hour

// Options are the directories and outputs of a Builder.
type Options struct {
	Components   string    // directory with the component modules
	Dir          string    // directory that keeps the parts
	Architecture string    // of the parts, as Go calls it; default this machine's
	Log          io.Writer // progress, for people
	// InUse lists paths below Dir that must not be swept away; it may be nil.
	InUse func() ([]string, error)
}

// Builder makes parts. Several programs may use its methods, and other Builders of the same directory, at the same time: each
// part has its own lock. The methods take minutes the first time and no time later, and may be interrupted and called again.
type Builder struct {
	Options
	store
	platform  Platform
	log       *progress.Log
	releases  []*versioned // the newest first
	goVersion func() (string, error)
}

// versioned is a release with the versions in its component modules.
type versioned struct {
	release
	versions Versions
}

// New returns a Builder. It makes no parts yet.
func New(o Options) (*Builder, error) {
	platform, err := platformOf(o.Architecture)
	if err != nil {
		return nil, err
	}
	b := &Builder{Options: o, store: store{filepath.Join(o.Dir, "parts")}, platform: platform, log: progress.New(o.Log),
		goVersion: sync.OnceValues(func() (string, error) {
			version, err := output(context.Background(), "", nil, "go", "env", "GOVERSION")
			return strings.TrimSpace(version), err
		})}
	for _, r := range releases {
		versions, err := readVersions(o.Components, r)
		if err != nil {
			return nil, err
		}
		b.releases = append(b.releases, &versioned{r, versions})
	}
	return b, nil
}

// VersionsOf returns the versions of a minor version of Kubernetes, empty for the newest.
func (b *Builder) VersionsOf(minor string) (Versions, error) {
	at, err := b.releaseAt(minor)
	if err != nil {
		return Versions{}, err
	}
	return b.releases[at].versions, nil
}

// The locks in the store. Runs share the first, so that nothing is swept away meanwhile. A part's lock has its name after lockOf.
const (
	runLock = ".lock"
	goLock  = ".lock-go"  // one build at a time
	aptLock = ".lock-apt" // one installation on this machine at a time
	lockOf  = ".lock-part-"
)

// run is one call of a Builder's method.
type run struct {
	*Builder
	mu   sync.Mutex
	used map[string]bool // names of the parts it needed
}

// do calls fn, and then sweeps, unless other runs are active.
func (b *Builder) do(ctx context.Context, fn func(ctx context.Context, r *run) error) error {
	lock, err := filelock.Share(ctx, b.path(runLock), b.waiting("tidying up"))
	if err != nil {
		return err
	}
	defer lock.Release()
	r := &run{Builder: b, used: map[string]bool{}}
	if err := fn(ctx, r); err != nil || !lock.Alone() {
		return err
	}
	keep, err := r.keep()
	if err != nil {
		return err
	}
	return b.sweep(keep, unused)
}

// waiting returns a callback for a lock that another run holds.
func (b *Builder) waiting(doing string) func() {
	return func() { b.log.Printf("waiting for another run before %s …", doing) }
}

// keep returns the names of the parts to keep: those used by this run or a node, and all programs in their current versions.
func (r *run) keep() (map[string]bool, error) {
	keep := r.used
	for _, release := range r.releases {
		for _, p := range programs {
			name, err := r.programPart(pick{release.name, p.name})
			if err != nil {
				return nil, err
			}
			keep[name] = true
		}
	}
	if r.InUse == nil {
		return keep, nil
	}
	paths, err := r.InUse()
	for _, path := range paths {
		if below, inside := strings.CutPrefix(path, r.dir+"/"); inside {
			name, _, _ := strings.Cut(below, "/")
			keep[name] = true
		}
	}
	return keep, err
}

// use records that the run needs a part.
func (r *run) use(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used[name] = true
}

// part makes a missing part, as a step in the log, and returns its directory. Others that need it at the same time wait for it.
func (r *run) part(ctx context.Context, name, doing string, make func(dir string) error) (string, error) {
	r.use(name)
	path := r.path(name)
	if r.has(name) {
		return path, r.ensure(name, make)
	}
	unlock, err := filelock.Take(ctx, r.path(lockOf+name), r.waiting(doing))
	if err != nil {
		return "", err
	}
	defer unlock()
	if r.has(name) {
		return path, r.ensure(name, make)
	}
	err = r.log.Do(doing, func() error { return r.ensure(name, make) })
	return path, errors.WithMessage(err, doing)
}

// output runs a program and returns its output; if it fails, the error holds the end of its messages. Cancelling ctx interrupts
// the program, and kills it after a while.
func output(ctx context.Context, dir string, env []string, argv ...string) (string, error) {
	return outputOf(ctx, nil, dir, env, argv...)
}

// outputOf is output with a standard input.
func outputOf(ctx context.Context, stdin io.Reader, dir string, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Dir, cmd.Env = stdin, dir, append(os.Environ(), env...)
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

// lastLines returns the end of a program's output, which says why it failed.
func lastLines(text string) string {
	const most = 2000
	text = strings.TrimSpace(text)
	return text[max(len(text)-most, 0):]
}
