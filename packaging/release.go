// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
)

// release has a release's version, sources and outputs.
type release struct {
	version, commit string
	date            time.Time
	architectures   []string
	// source is the project's directory, out the packages', and work holds the files built for them.
	source, out, work string
}

var formats = []string{"deb", "rpm"}

func (r *release) make(ctx context.Context) error {
	if err := r.removeEarlier(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{r.programs, r.manPages, r.completions, r.changelog, r.packages, r.sboms} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) removeEarlier() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, pattern := range []string{"slipway*.deb", "slipway*.rpm", "slipway*.cdx.json"} {
		earlier, err := filepath.Glob(filepath.Join(r.out, pattern))
		if err != nil {
			return err
		}
		for _, path := range earlier {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) packages(ctx context.Context) error {
	kubernetes, err := r.kubernetes(ctx)
	if err != nil {
		return err
	}
	// It's nearly all compression, and each package uses one processor.
	var side errgroup.Group
	side.SetLimit(runtime.NumCPU())
	for _, arch := range r.architectures {
		for _, format := range formats {
			side.Go(func() error {
				return errors.WithMessagef(r.pack(arch, format, kubernetes), "%s for %s", format, arch)
			})
		}
	}
	return side.Wait()
}

// pack makes a package that stands for a version of kubeadm.
func (r *release) pack(arch, format, kubernetes string) error {
	version, err := packageVersion(r.version, r.date)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.source, "packaging", "nfpm.yaml"))
	if err != nil {
		return err
	}
	// nfpm would fill in variables only in some fields.
	variables := map[string]string{"ARCH": arch, "VERSION": version, "KUBERNETES": kubernetes, "SOURCE": r.source, "WORK": r.work}
	filled := os.Expand(string(text), func(name string) string { return variables[name] })
	config, err := nfpm.Parse(strings.NewReader(filled))
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.date
	_, err = writePackage(info, format, r.out)
	return err
}

// writePackage makes a package, and returns its path.
func writePackage(info *nfpm.Info, format, out string) (string, error) {
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	if format == "rpm" {
		markDocumentation(info.Contents)
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	var data bytes.Buffer
	if err := packager.Package(info, &data); err != nil {
		return "", err
	}
	path := filepath.Join(out, packager.ConventionalFileName(info))
	return path, os.WriteFile(path, data.Bytes(), 0o644)
}

// markDocumentation marks the files that `rpm --nodocs` leaves out. In nfpm.yaml, patterns can't have that mark.
func markDocumentation(contents files.Contents) {
	for _, content := range contents {
		documents := strings.HasPrefix(content.Destination, "/usr/share/man/") || strings.HasPrefix(content.Destination, "/usr/share/doc/")
		if documents && content.Type == files.TypeFile {
			content.Type = files.TypeRPMDoc
		}
	}
}

// sboms writes lists of the programs' modules in CycloneDX's format.
func (r *release) sboms(ctx context.Context) error {
	version, err := packageVersion(r.version, r.date)
	if err != nil {
		return err
	}
	for _, arch := range r.architectures {
		path, err := filepath.Abs(filepath.Join(r.out, fmt.Sprintf("slipway-%s-linux-%s.cdx.json", version, arch)))
		if err != nil {
			return err
		}
		list := exec.CommandContext(ctx, "go", "tool", "cyclonedx-gomod", "bin", "-json", "-std", "-noserial", "-notimestamp",
			"-version", r.version, "-output", path, r.program(arch))
		list.Dir = filepath.Join(r.source, "packaging")
		if _, err := output(list); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command, and returns its output. Its error includes the command's messages.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	return out.Bytes(), errors.Wrapf(err, "%s: %s", strings.Join(cmd.Args, " "), strings.TrimSpace(said.String()))
}
