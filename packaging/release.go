// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"github.com/pkg/errors"
)

// release is what is packaged, and where to.
type release struct {
	version, commit string
	date            time.Time
	out             string
	// kubernetes is the version of kubeadm that this Slipway stands for, without the leading v.
	kubernetes string
}

var (
	architectures = []string{"amd64", "arm64"}
	formats       = []string{"deb", "rpm"}
)

// build is where the contents of the packages are.
func (r *release) build() string { return filepath.Join(r.out, "build") }

func (r *release) make(ctx context.Context) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	for _, dir := range []string{"man", "completions"} {
		if err := os.MkdirAll(filepath.Join(r.build(), dir), 0o755); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{r.programs, r.manPages, r.completions, r.packages, r.sbom} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.checksums()
}

// program is the path of the program for an architecture.
func (r *release) program(arch string) string {
	return filepath.Join(r.build(), "slipway-"+arch)
}

func (r *release) programs(ctx context.Context) error {
	for _, arch := range architectures {
		path, err := filepath.Abs(r.program(arch))
		if err != nil {
			return err
		}
		make := exec.CommandContext(ctx, "make", "--no-print-directory", "--directory=..", "build", "PROGRAM="+path, "VERSION="+r.version, "COMMIT="+r.commit,
			"DATE="+r.date.UTC().Format(time.RFC3339))
		make.Env = append(os.Environ(), "GOARCH="+arch)
		if _, err := output(make); err != nil {
			return err
		}
	}
	short, err := output(exec.CommandContext(ctx, r.program(runtime.GOARCH), "version", "--output=short"))
	r.kubernetes = strings.TrimPrefix(strings.TrimSpace(string(short)), "v")
	return err
}

// manPages writes a page for each command, compressed.
func (r *release) manPages(ctx context.Context) error {
	dir, err := filepath.Abs(filepath.Join(r.build(), "man"))
	if err != nil {
		return err
	}
	generate := exec.CommandContext(ctx, "go", "run", "-tags=man", "./cmd/slipway", dir, r.version, r.date.UTC().Format(time.RFC3339))
	generate.Dir = ".."
	if _, err := output(generate); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.8"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := compress(page); err != nil {
			return err
		}
	}
	return nil
}

// compress replaces a file by a compressed one, without its name and time.
func compress(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
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
	if err := os.WriteFile(path+".gz", small.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Remove(path)
}

// completions are those of both names of the program.
func (r *release) completions(ctx context.Context) error {
	program, err := filepath.Abs(r.program(runtime.GOARCH))
	if err != nil {
		return err
	}
	for _, name := range []string{"slipway", "kubeadm"} {
		for _, shell := range []string{"bash", "fish", "zsh"} {
			script := exec.CommandContext(ctx, program, "completion", shell)
			script.Args[0] = name // the program goes by it
			text, err := output(script)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(r.build(), "completions", name+"."+shell), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) packages(context.Context) error {
	for _, arch := range architectures {
		for _, format := range formats {
			if err := r.pack(arch, format); err != nil {
				return errors.WithMessagef(err, "%s for %s", format, arch)
			}
		}
	}
	return nil
}

func (r *release) pack(arch, format string) error {
	all, err := nfpm.ParseFileWithEnvMapping("nfpm.yaml", func(name string) string {
		return map[string]string{"ARCH": arch, "VERSION": r.version, "OUT": r.build(), "KUBERNETES": r.kubernetes}[name]
	})
	if err != nil {
		return err
	}
	info, err := all.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.date
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	if err := packager.Package(info, f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// sbom lists the modules in the program, in CycloneDX' format.
func (r *release) sbom(ctx context.Context) error {
	for _, arch := range architectures {
		name := fmt.Sprintf("slipway-%s-linux-%s.cdx.json", strings.TrimPrefix(r.version, "v"), arch)
		list := exec.CommandContext(ctx, "go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-output", filepath.Join(r.out, name), r.program(arch))
		if _, err := output(list); err != nil {
			return err
		}
	}
	return nil
}

// checksums writes SHA256SUMS, which `sha256sum --check` reads.
func (r *release) checksums() error {
	files, err := filepath.Glob(filepath.Join(r.out, "slipway*"))
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.Base(path))
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// output runs a command, and returns what it prints. Its error has what it says.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	return out.Bytes(), errors.Wrapf(err, "%s: %s", strings.Join(cmd.Args, " "), strings.TrimSpace(said.String()))
}
