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
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/progress"
	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// ProbeImage is an image that every node has, for Pods that tests start. Its
// commands: serve [ADDRESS], get URL, lookup NAME, sleep.
const ProbeImage = parts.ProbeImage

// ProbeArchive is the name of a file with it in the directory of BundleParts.
const ProbeArchive = parts.ProbeArchive

// DirVariable is the environment variable that names the lab's directory.
const DirVariable = "SLIPWAY_LAB_DIR"

const defaultDir = "/var/cache/slipway-lab"

// Options of a lab. The zero value is the lab that a contributor uses by hand.
type Options struct {
	Name    string // tells labs apart; default "slipway"
	Dir     string // keeps parts and nodes; default SLIPWAY_LAB_DIR or /var/cache/slipway-lab
	Source  string // the project's directory; default: found from the working directory upwards
	Slipway string // the program under test; default bin/slipway in Source
	// Kubernetes is the minor version of new nodes; default the newest. Older are
	// those that NodeSpec may name besides.
	Kubernetes string
	Older      []string
	Log        io.Writer // progress for people; default none
}

// Lab is a group of nodes on one network of their own.
type Lab struct {
	options Options
	log     *progress.Log
	dir     string // of this lab

	mu    sync.Mutex
	parts *parts.Parts
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
	return &Lab{options: o, log: progress.New(o.Log), dir: filepath.Join(o.Dir, "labs", o.Name)}, nil
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

// Build makes the parts that nodes consist of, as far as they are missing:
// minutes at first, no time later. StartNode does it too.
func (l *Lab) Build(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parts != nil {
		return nil
	}
	inUse, err := l.layersInUse()
	if err != nil {
		return err
	}
	older := l.options.Older
	if l.options.Kubernetes != "" {
		older = append([]string{l.options.Kubernetes}, older...)
	}
	l.parts, err = parts.Build(ctx, l.partsOptions(inUse, older))
	return err
}

func (l *Lab) partsOptions(inUse, older []string) parts.Options {
	return parts.Options{
		Components: filepath.Join(l.options.Source, "test", "lab", "components"),
		Dir:        l.options.Dir, Log: l.options.Log, InUse: inUse, Older: older,
	}
}

// BundleParts makes a directory with a list for `slipway bundle create`: the
// programs and images that nodes of the lab have, of a minor version of Kubernetes
// or, if it is empty, of the version of new nodes.
func (l *Lab) BundleParts(ctx context.Context, minor string) (string, error) {
	var older []string
	if minor = cmp.Or(minor, l.options.Kubernetes); minor != "" {
		older = []string{minor}
	}
	return parts.BundleParts(ctx, l.partsOptions(nil, older))
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

// KubernetesVersion is that of new nodes, such as v1.37.2. It is known once Build
// has run.
func (l *Lab) KubernetesVersion() string { return l.VersionOf("") }

// VersionOf is the version of a release that the lab has built, such as v1.36.4
// for "1.36"; "" is that of new nodes.
func (l *Lab) VersionOf(release string) string {
	r, _ := l.release(release)
	return r.Versions.Kubernetes
}

// release is one that Build has made; "" is that of new nodes.
func (l *Lab) release(name string) (parts.Release, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parts == nil {
		return parts.Release{}, errors.New("the lab has not been built")
	}
	r, ok := l.parts.Releases[cmp.Or(name, l.options.Kubernetes, l.parts.Default)]
	if !ok {
		return r, errors.Errorf("the lab was not built with Kubernetes %q", name)
	}
	return r, nil
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
// release have. Build must have run.
func (l *Lab) Program(name string) (string, error) {
	if name == "slipway" {
		return l.options.Slipway, nil
	}
	path, _, err := l.program("", name)
	return path, err
}

// program finds a program that nodes of a release have: its path on this
// machine, and in a node.
func (l *Lab) program(minor, name string) (here, inNode string, err error) {
	release, err := l.release(minor)
	if err != nil {
		return "", "", err
	}
	for _, layer := range release.Layers {
		for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
			inNode = path.Join(dir, name)
			here = filepath.Join(layer, inNode)
			if _, err := os.Stat(here); err == nil {
				return here, inNode, nil
			}
		}
	}
	return "", "", errors.Errorf("the nodes have no program %q", name)
}
