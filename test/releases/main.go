// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Releases makes the tables of the flags, feature gates and other facts of each minor release of Kubernetes and etcd
// (internal/releases/tables.tsv), or compares them with the released modules. It runs the programs in facts/ in the lab's
// component modules.
//
//	go run ./test/releases                   # compares what the lab builds: Kubernetes 1.36 and 1.37, etcd 3.6 and 3.7
//	go run ./test/releases 1.34 1.35         # compares these
//	go run ./test/releases -write 1.37 3.7   # generates the columns of Kubernetes 1.37 and etcd 3.7
//
// If Go's build cache has a release's packages, as it does after the lab was built, this takes half a minute; otherwise about
// five minutes on two processors. For releases that the lab doesn't build, a unit test compares the hash of their column's
// inputs: the programs in facts/, and the module's go.mod and go.sum. A released module never changes, so the same inputs give
// the same facts.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

const (
	tableFile  = "internal/releases/tables.tsv"
	factsDir   = "test/releases/facts"
	components = "test/lab/components"
)

// module is a minor release of Kubernetes or etcd, and the lab's component module that pins it.
type module struct {
	minor, component string
	// ofLab is set for releases that the lab builds. They're compared by default.
	ofLab bool
}

// kubernetes and etcds are the releases in the order of their columns. etcd's facts don't depend on Kubernetes: internal/config
// and the user decide which etcd a control plane gets.
var (
	kubernetes = []module{
		{"1.34", "kubernetes-1.34", false},
		{"1.35", "kubernetes-1.35", false},
		{"1.36", "kubernetes-1.36", true},
		{"1.37", "kubernetes", true},
	}
	etcds = []module{
		{"3.6", "etcd-3.6", true},
		{"3.7", "etcd", true},
	}
)

// programs are Kubernetes' programs, in the order in which rows name them.
var programs = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}

const etcd = "etcd"

// columns returns a program's releases.
func columns(program string) []module {
	if program == etcd {
		return etcds
	}
	return kubernetes
}

func main() {
	write := flag.Bool("write", false, "write the table instead of comparing it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, ".", *write, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "releases:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// run compares or writes the columns of the named minor releases, by default of the lab's.
func run(ctx context.Context, root string, write bool, minors []string) error {
	path := filepath.Join(root, tableFile)
	old, err := os.ReadFile(path)
	if err != nil && (!write || !os.IsNotExist(err)) {
		return err
	}
	t, err := parse(string(old))
	if err != nil {
		return errors.Wrap(err, path)
	}
	for _, list := range [][]string{programs, {etcd}} {
		for column, m := range columns(list[0]) {
			if len(minors) == 0 && !m.ofLab || len(minors) > 0 && !slices.Contains(minors, m.minor) {
				continue
			}
			if err := t.generate(ctx, root, column, list); err != nil {
				return errors.Wrapf(err, "release %s", m.minor)
			}
		}
	}
	text := t.String()
	if write {
		return os.WriteFile(path, []byte(text), 0o644)
	}
	if diff := firstDifference(string(old), text); diff != "" {
		return errors.Errorf("%s is out of date; run: go run ./test/releases -write %s\n%s", tableFile, strings.Join(minors, " "), diff)
	}
	return nil
}

// generate replaces a column with the facts of the release's modules, for a list of programs.
func (t *table) generate(ctx context.Context, root string, column int, list []string) error {
	m := columns(list[0])[column]
	version, hash, err := inputs(root, m)
	if err != nil {
		return err
	}
	t.clear(column, list)
	t.inputs[m.minor] = [2]string{version, hash}
	for _, program := range list {
		sources := []string{"facts.go", strings.ReplaceAll(program, "-", "_") + ".go"}
		if program == etcd {
			sources = sources[1:]
		}
		if err := t.collect(ctx, root, column, m.component, program, sources...); err != nil {
			return err
		}
	}
	return nil
}

// collect runs the generator for a program. It uses the flags of the lab's builds, and so the packages that they have compiled.
func (t *table) collect(ctx context.Context, root string, column int, component, program string, sources ...string) error {
	argv := []string{"run", "-trimpath", "-ldflags", "-s -w"}
	for _, source := range sources {
		path, err := filepath.Abs(filepath.Join(root, factsDir, source))
		if err != nil {
			return err
		}
		argv = append(argv, path)
	}
	cmd := exec.CommandContext(ctx, "go", argv...)
	cmd.Dir, cmd.Env = filepath.Join(root, components, component), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return errors.Wrapf(err, "%s: %s", program, stderr.String())
	}
	var found map[string]map[string]string
	if err := json.Unmarshal(out, &found); err != nil {
		return errors.Wrap(err, program)
	}
	for kind, names := range found {
		for name, state := range names {
			t.set(factKey{kind, name, program}, column, state)
		}
	}
	return nil
}

// inputs returns a release's version, and the hash of the generator's inputs: its own source, and the requirements of the module
// in which it runs.
func inputs(root string, m module) (version, hash string, err error) {
	files, err := filepath.Glob(filepath.Join(root, factsDir, "*.go"))
	if err != nil {
		return "", "", err
	}
	ofEtcd := slices.Contains(etcds, m)
	files = slices.DeleteFunc(files, func(file string) bool { return (filepath.Base(file) == "etcd.go") != ofEtcd })
	dir := filepath.Join(root, components, m.component)
	sum := sha256.New()
	for _, file := range append(files, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")) {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(data), data)
		if found := required[ofEtcd].FindSubmatch(data); found != nil {
			version = string(found[1])
		}
	}
	return version, hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// required matches the version in a module's requirements: of etcd, or of Kubernetes.
var required = map[bool]*regexp.Regexp{
	true:  regexp.MustCompile(`(?m)^\s+go\.etcd\.io/etcd/server/v3 (v\S+)`),
	false: regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v\S+)`),
}

// firstDifference returns the first few differing lines, if any.
func firstDifference(old, now string) string {
	if old == now {
		return ""
	}
	before, after := strings.Split(old, "\n"), strings.Split(now, "\n")
	var out []string
	for _, line := range before {
		if !slices.Contains(after, line) {
			out = append(out, "-"+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, "+"+line)
		}
	}
	return strings.Join(out[:min(len(out), 20)], "\n")
}
