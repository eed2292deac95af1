// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// program returns the path of an architecture's program.
func (r *release) program(arch string) string {
	return filepath.Join(r.work, "slipway-"+arch)
}

// programs builds the programs with `make build`. Its arguments give the version instead of git, so a copy without the history
// makes the same bytes.
func (r *release) programs(ctx context.Context) error {
	for _, arch := range r.architectures {
		build := exec.CommandContext(ctx, "make", "--no-print-directory", "build", "PROGRAM="+r.program(arch),
			"VERSION="+r.version, "COMMIT="+r.commit, "DATE="+r.date.UTC().Format(time.RFC3339))
		build.Dir = r.source
		build.Env = append(os.Environ(), "GOARCH="+arch, "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
		if _, err := output(build); err != nil {
			return err
		}
	}
	return nil
}

// own calls this machine's program by one of its names.
func (r *release) own(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.program(runtime.GOARCH), args...)
	cmd.Args[0] = name
	return cmd
}

// kubernetes returns the version of kubeadm that this Slipway stands for, without the leading v.
func (r *release) kubernetes(ctx context.Context) (string, error) {
	short, err := output(r.own(ctx, "slipway", "version", "--output=short"))
	return strings.TrimPrefix(strings.TrimSpace(string(short)), "v"), err
}

// manPages writes a page for each command, compressed.
func (r *release) manPages(ctx context.Context) error {
	dir := filepath.Join(r.work, "man")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	generate := exec.CommandContext(ctx, "go", "run", "-trimpath", "-tags=man", "./cmd/slipway", dir, r.version, r.date.UTC().Format(time.RFC3339))
	generate.Dir = r.source
	if _, err := output(generate); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.8"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if err := writeCompressed(page+".gz", text); err != nil {
			return err
		}
	}
	return nil
}

// completions writes the completions of both names of the program.
func (r *release) completions(ctx context.Context) error {
	dir := filepath.Join(r.work, "completions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"slipway", "kubeadm"} {
		for _, shell := range []string{"bash", "fish", "zsh"} {
			text, err := output(r.own(ctx, name, "completion", shell))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name+"."+shell), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// changelog writes the changelog that Debian requires of every package. nfpm's own doesn't support versions with a "~".
func (r *release) changelog(context.Context) error {
	version, err := packageVersion(r.version, r.date)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("slipway (%s-1) unstable; urgency=medium\n\n  * Slipway %s,\n    commit %s.\n\n -- The Slipway Authors <maintainers@slipway.example>  %s\n",
		version, r.version, r.commit, r.date.UTC().Format(time.RFC1123Z))
	return writeCompressed(filepath.Join(r.work, "changelog.gz"), []byte(text))
}

// writeCompressed writes a gzip file without a name and a time.
func writeCompressed(path string, data []byte) error {
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, small.Bytes(), 0o644)
}
