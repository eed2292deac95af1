// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodes boots real Linux nodes on one machine, each with systemd,
// D-Bus, containerd and a kubelet unit, in a network namespace that no packet
// leaves. The end-to-end tests and the lab's command are made of it.
package nodes

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/progress"
	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// ProbeImage is an image that every node has, for Pods that tests start. Its
// commands: serve [ADDRESS], get URL, lookup NAME, sleep.
const ProbeImage = parts.ProbeImage

// What a node may be With.
const (
	Kubeadm = parts.Kubeadm // the program
	Flannel = parts.Flannel // the images of this Pod network
)

// ProbeArchive is the name of a file with it in the directory of BundleParts.
const ProbeArchive = parts.ProbeArchive

// DirVariable is the environment variable that names the lab's directory.
const DirVariable = "SLIPWAY_LAB_DIR"

const defaultDir = "/var/cache/slipway-lab"

// Options of a lab. The zero value is the lab that a contributor uses by hand.
type Options struct {
	Name       string // tells labs apart; default "slipway"
	Dir        string // keeps parts and nodes; default SLIPWAY_LAB_DIR or /var/cache/slipway-lab
	Source     string // the project's directory; default: found from the working directory upwards
	Slipway    string // the program under test; default bin/slipway in Source
	Kubernetes string // the minor version of new nodes; default the newest
	// Log gets progress for people, by default none, and BuildLog that of building
	// parts, by default the same.
	Log, BuildLog io.Writer
}

// Lab is a group of nodes on one network of their own.
type Lab struct {
	options Options
	log     *progress.Log
	dir     string // of this lab
	parts   *parts.Builder
}

var labName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,20}$`)

// Open prepares to use the lab called o.Name, whether it exists already or
// not. It changes nothing yet. The lab needs root.
func Open(o Options) (*Lab, error) {
	if o.Name == "" {
		o.Name = "slipway"
	}
	if !labName.MatchString(o.Name) {
		return nil, errors.Errorf("%q does not do as a lab's name: use up to 21 small letters, digits and dashes", o.Name)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab boots nodes and makes networks, which needs root: run it with sudo")
	}
	if o.Dir == "" {
		o.Dir = os.Getenv(DirVariable)
	}
	if o.Dir == "" {
		o.Dir = defaultDir
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, errors.Wrap(err, "cannot find the lab's directory")
	}
	if o.Source == "" {
		if o.Source, err = sourceDir(); err != nil {
			return nil, err
		}
	}
	if o.Slipway == "" {
		o.Slipway = filepath.Join(o.Source, "bin", "slipway")
	}
	if o.BuildLog == nil {
		o.BuildLog = o.Log
	}
	l := &Lab{options: o, log: progress.New(o.Log), dir: filepath.Join(o.Dir, "labs", o.Name)}
	l.parts, err = parts.New(parts.Options{
		Components: filepath.Join(o.Source, "test", "lab", "components"), Dir: o.Dir, Log: o.BuildLog, InUse: l.layersInUse,
	})
	return l, err
}

// sourceDir is the nearest directory upwards that holds the component modules.
func sourceDir() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", errors.Wrap(err, "cannot find the project's directory")
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "lab", "components")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.Errorf("%s is not inside the project", start)
		}
	}
}

// Names lists the labs that have left something below dir, "" being the default.
func Names(dir string) ([]string, error) {
	if dir == "" {
		dir = os.Getenv(DirVariable)
	}
	if dir == "" {
		dir = defaultDir
	}
	return dirNames(filepath.Join(dir, "labs"))
}

// Build makes the parts that new nodes consist of, as far as they are missing:
// minutes at first, no time later. StartNode does it, too. A node that exists
// already needs nothing.
func (l *Lab) Build(ctx context.Context, specs ...NodeSpec) error {
	for _, spec := range specs {
		if _, err := l.Node(spec.Name); spec.Name != "" && err == nil {
			continue
		}
		if _, err := l.parts.Machine(ctx, l.need(spec)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) need(spec NodeSpec) parts.Need {
	return parts.Need{Bare: spec.Bare, Kubernetes: cmp.Or(spec.Kubernetes, l.options.Kubernetes), With: spec.With}
}

// BundleParts makes a directory with a list for `slipway bundle create`: the
// programs and images that nodes of the lab have, of a minor version of Kubernetes
// or, if it is empty, of the version of new nodes.
func (l *Lab) BundleParts(ctx context.Context, minor string) (string, error) {
	return l.parts.Bundle(ctx, cmp.Or(minor, l.options.Kubernetes))
}

// InstallHere installs a program on this machine if it's missing, from a package of Debian.
func (l *Lab) InstallHere(ctx context.Context, program, debianPackage string) error {
	return l.parts.InstallHere(ctx, [2]string{program, debianPackage})
}

// layersInUse are those of all nodes of all labs.
func (l *Lab) layersInUse() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(l.options.Dir, "labs", "*", "nodes", "*", stateFile))
	if err != nil {
		return nil, errors.Wrap(err, "cannot list the labs")
	}
	var layers []string
	for _, file := range files {
		if s, err := readState(file); err == nil { // else a node that is just being made or removed
			layers = append(layers, s.Layers...)
		}
	}
	return layers, nil
}

// Name is the lab's name.
func (l *Lab) Name() string { return l.options.Name }

// KubernetesVersion is that of new nodes, such as v1.37.2.
func (l *Lab) KubernetesVersion() string { return l.VersionOf("") }

// VersionOf is the version of a release that nodes may have, such as v1.36.4
// for "1.36", or "" if there is none; "" is that of new nodes.
func (l *Lab) VersionOf(minor string) string {
	versions, _ := l.parts.VersionsOf(cmp.Or(minor, l.options.Kubernetes))
	return versions.Kubernetes
}

// Nodes are all nodes of the lab, running or not, sorted by name.
func (l *Lab) Nodes() ([]*Node, error) {
	names, err := dirNames(filepath.Join(l.dir, "nodes"))
	if err != nil {
		return nil, err
	}
	var all []*Node
	for _, name := range names {
		if n, err := l.Node(name); err == nil { // else a node that was never complete
			all = append(all, n)
		}
	}
	return all, nil
}

// dirNames are the sorted names of the directories in dir; none if it is missing.
func dirNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, errors.Wrap(err, "cannot list the lab")
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() })
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// Program is the path, on this machine, of a program that nodes of the default
// release have, or may have. It is built if it is missing.
func (l *Lab) Program(ctx context.Context, name string) (string, error) {
	if name == "slipway" {
		return l.options.Slipway, nil
	}
	here, _, err := l.program(ctx, "", name)
	return here, err
}

// program builds a program that nodes of a release have: its path on this
// machine, and in a node.
func (l *Lab) program(ctx context.Context, minor, name string) (here, inNode string, err error) {
	here, inNode, err = l.parts.Program(ctx, cmp.Or(minor, l.options.Kubernetes), name)
	if err == nil && inNode == "" {
		err = errors.Errorf("the nodes have no program %q", name)
	}
	return here, inNode, err
}
