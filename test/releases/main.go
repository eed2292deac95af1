// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Releases makes the tables of what each minor release of Kubernetes knows (internal/releases/tables.tsv), or checks
// that they are what the released modules say. It runs the programs in facts/ inside of the lab's component modules.
//
//	go run ./test/releases               # compares 1.36 and 1.37, which the lab builds
//	go run ./test/releases 1.34 1.35     # compares these
//	go run ./test/releases -write 1.37   # makes the part of 1.37 again
//
// With the packages of a release in Go's build cache, as they are after the lab was built, it takes half a minute;
// otherwise about five minutes on two processors. The lab builds 1.36 and 1.37 only. For the others, a unit test
// compares the hash of what their part of the table was made from: the programs in facts/, and the module's go.mod and
// go.sum. A released module does not change, so the same inputs give the same facts.
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

// module says in which component modules a release is pinned.
type module struct {
	minor, kubernetes, etcd string
	ofLab                   bool
}

// modules are the releases in the order of the table's columns, and the component modules that pin them. Those of
// the lab's own releases are compared by default.
var modules = []module{
	{"1.34", "kubernetes-1.34", "etcd-3.6", false},
	{"1.35", "kubernetes-1.35", "etcd-3.6", false},
	{"1.36", "kubernetes-1.36", "etcd-3.6", true},
	{"1.37", "kubernetes", "etcd", true},
}

// programs in the order in which rows name them; etcd is that of the release.
var programs = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}

const etcd = "etcd"

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

// run compares or writes the parts of the table for the named minor releases; none stands for the lab's.
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
	for column, m := range modules {
		if len(minors) == 0 && !m.ofLab || len(minors) > 0 && !slices.Contains(minors, m.minor) {
			continue
		}
		if err := t.generate(ctx, root, column); err != nil {
			return errors.Wrapf(err, "Kubernetes %s", m.minor)
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

// generate replaces a release's column with what its modules say.
func (t *table) generate(ctx context.Context, root string, column int) error {
	m := modules[column]
	version, hash, err := inputs(root, column)
	if err != nil {
		return err
	}
	t.clear(column)
	t.inputs[column] = [2]string{version, hash}
	if err := t.collect(ctx, root, column, m.etcd, etcd, "etcd.go"); err != nil {
		return err
	}
	for _, program := range programs {
		own := strings.ReplaceAll(program, "-", "_") + ".go"
		if err := t.collect(ctx, root, column, m.kubernetes, program, "facts.go", own); err != nil {
			return err
		}
	}
	return nil
}

// collect runs the generator for a program. Its flags are those of the lab's builds, so that the packages that those
// have compiled are used again.
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
	cmd.Dir, cmd.Env = filepath.Join(root, components, component), append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
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

// inputs are the version of Kubernetes that a column is about, and the hash of all that decides what the generator
// says: its own source, and the requirements of the modules in which it runs.
func inputs(root string, column int) (version, hash string, err error) {
	files, err := filepath.Glob(filepath.Join(root, factsDir, "*.go"))
	if err != nil {
		return "", "", err
	}
	for _, component := range []string{modules[column].kubernetes, modules[column].etcd} {
		dir := filepath.Join(root, components, component)
		files = append(files, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
	}
	sum := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(data), data)
		if found := requiredKubernetes.FindSubmatch(data); found != nil {
			version = string(found[1])
		}
	}
	return version, hex.EncodeToString(sum.Sum(nil))[:16], nil
}

var requiredKubernetes = regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v\S+)`)

// firstDifference shows the first few lines that differ, or nothing.
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
