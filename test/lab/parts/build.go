// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pkg/errors"
)

// leftOut lists packages that a program's main.go imports for their registrations, and the lab leaves out. Of flannel's backends,
// udp is written in C, and tencent-vpc brings in the SDK of a single cloud.
var leftOut = map[string][]string{
	"flanneld": {flannelModule + "/pkg/backend/udp", flannelModule + "/pkg/backend/tencentvpc"},
}

// runGo runs a Go command, such as "build", for programs of the component in dir.
func runGo(ctx context.Context, env []string, dir string, programs []program, command string, flags ...string) error {
	args := append([]string{"go", command}, flags...)
	if leftOut[programs[0].name] == nil {
		for _, p := range programs {
			args = append(args, p.pkg)
		}
		_, err := output(ctx, dir, env, args...)
		return err
	}
	beside, err := os.MkdirTemp("", "lab-source-")
	if err != nil {
		return errors.Wrap(err, "cannot make a directory for a program's source")
	}
	defer os.RemoveAll(beside)
	overlay, err := programs[0].shorten(ctx, env, dir, beside)
	if err != nil {
		return err
	}
	_, err = output(ctx, dir, env, append(args, "-overlay", overlay, ".")...)
	return err
}

// built is the name that "go build" gives the program.
func (p program) built() string {
	if leftOut[p.name] != nil || p.pkg == "." {
		return p.component
	}
	if p.isTest() {
		return path.Base(p.pkg) + ".test"
	}
	return path.Base(majorVersion.ReplaceAllString(p.pkg, ""))
}

// majorVersion matches the end of an import path, which isn't part of the program's name.
var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// shorten writes the program's main.go, its only file, without the left-out imports, and an overlay that puts this file into dir:
// the Go command allows no overlay for files of other modules.
func (p program) shorten(ctx context.Context, env []string, dir, beside string) (overlay string, err error) {
	source, err := output(ctx, dir, env, "go", "list", "-find", "-f", "{{.Dir}}", p.pkg)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(source), "main.go"))
	if err != nil {
		return "", errors.Wrap(err, "cannot read a program's source")
	}
	shortened, err := withoutImports(string(text), leftOut[p.name])
	if err != nil {
		return "", errors.Wrapf(err, "the source of %s", p.pkg)
	}
	main, overlay := filepath.Join(beside, "main.go"), filepath.Join(beside, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, "main.go"): main}})
	if err != nil {
		return "", errors.Wrap(err, "cannot write an overlay")
	}
	if err := os.WriteFile(main, []byte(shortened), 0o644); err != nil {
		return "", errors.Wrap(err, "cannot write a program's source")
	}
	return overlay, errors.Wrap(os.WriteFile(overlay, list, 0o644), "cannot write an overlay")
}

// withoutImports removes blank imports from the text of a Go file.
func withoutImports(text string, packages []string) (string, error) {
	for _, pkg := range packages {
		line := regexp.MustCompile(`(?m)^\s*_ "` + regexp.QuoteMeta(pkg) + `"\n`)
		if !line.MatchString(text) {
			return "", errors.Errorf("no line is the blank import of %s, which the lab leaves out", pkg)
		}
		text = line.ReplaceAllString(text, "")
	}
	return text, nil
}
