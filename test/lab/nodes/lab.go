// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodes boots real Linux nodes on one machine, each with systemd, D-Bus, containerd and a kubelet unit, in an isolated
// network namespace. The end-to-end tests and the lab's command use it.
package nodes

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/progress"
	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// ProbeImage is an image on every node, for the tests' Pods. Its commands: serve [ADDRESS], get URL, lookup NAME, sleep.
const ProbeImage = parts.ProbeImage

// Values for NodeSpec.With.
const (
	Kubeadm = parts.Kubeadm // the program
	flannel = parts.Flannel // the images of this Pod network
)

// ProbeArchive is the name of the file with ProbeImage in BundleParts' directory.
const ProbeArchive = parts.ProbeArchive

// DirVariable is the environment variable that names the lab's directory.
const DirVariable = "SLIPWAY_LAB_DIR"

const defaultDir = "/var/cache/slipway-lab"

// Options of a lab. The zero value is the lab that contributors use by hand.
type Options struct {
	Name       string // tells labs apart; default "slipway"
	Dir        string // keeps parts and nodes; default SLIPWAY_LAB_DIR or /var/cache/slipway-lab
	Source     string // the project's directory; default: found from the working directory upwards
	Slipway    string // the program under test; default bin/slipway in Source
	Kubernetes string // the minor version of new nodes; default the newest
	// Architecture is that of bundles and of virtual machines' disks, as Go calls it; nodes can only have this machine's, the default.
	Architecture string
	// Log gets progress for people, by default none, and BuildLog the progress of building parts, by default the same.
	Log, BuildLog io.Writer
}

// Lab is a group of nodes on their own network.
type Lab struct {
	options Options
	log     *progress.Log
	dir     string // of this lab
	parts   *parts.Builder
}

var labName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,20}$`)

// Open prepares to use the lab called o.Name, whether it exists already or not. It changes nothing yet. The lab needs root.
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
	if o.Architecture == "" {
		o.Architecture = runtime.GOARCH
	}
	if o.BuildLog == nil {
		o.BuildLog = o.Log
	}
	l := &Lab{options: o, log: progress.New(o.Log), dir: filepath.Join(o.Dir, "labs", o.Name)}
	l.parts, err = parts.New(parts.Options{
		Components: filepath.Join(o.Source, "test", "lab", "components"), Dir: o.Dir, Architecture: o.Architecture, Log: o.BuildLog, InUse: l.layersInUse,
	})
	return l, err
}

// sourceDir returns the nearest directory upwards that holds the component modules.
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

// Names lists the labs that have left anything below dir, by default the lab's directory.
func Names(dir string) ([]string, error) {
	if dir == "" {
		dir = os.Getenv(DirVariable)
	}
	if dir == "" {
		dir = defaultDir
	}
	return dirNames(filepath.Join(dir, "labs"))
}

// Build makes the missing parts of new nodes, which takes minutes the first time. StartNode does it too. Existing nodes need
// nothing.
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

// BundleParts makes a directory with a list for `slipway bundle create`: the lab nodes' programs and images for a minor version
// of Kubernetes or, if it's empty, for the version of new nodes.
func (l *Lab) BundleParts(ctx context.Context, minor string) (string, error) {
	return l.parts.Bundle(ctx, cmp.Or(minor, l.options.Kubernetes))
}

// Disk makes the disk of virtual machines, with Debian and further packages.
func (l *Lab) Disk(ctx context.Context, packages ...string) (*parts.Disk, error) {
	return l.parts.Disk(ctx, packages...)
}

// InstallHere installs a program from a Debian package on this machine, if it's missing.
func (l *Lab) InstallHere(ctx context.Context, program, debianPackage string) error {
	return l.parts.InstallHere(ctx, [2]string{program, debianPackage})
}

// layersInUse returns the layers of all nodes of all labs.
func (l *Lab) layersInUse() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(l.options.Dir, "labs", "*", "nodes", "*", stateFile))
	if err != nil {
		return nil, errors.Wrap(err, "cannot list the labs")
	}
	var layers []string
	for _, file := range files {
		if s, err := readState(file); err == nil { // otherwise it's just being made or removed
			layers = append(layers, s.Layers...)
		}
	}
	return layers, nil
}

// NodesDir is the directory of the lab's nodes. Before the lab has any, a disk may be mounted there; Down unmounts it.
func (l *Lab) NodesDir() string { return filepath.Join(l.dir, "nodes") }

// Name is the lab's name.
func (l *Lab) Name() string { return l.options.Name }

// Architecture is that of the bundles and disks that the lab makes, as Go calls it.
func (l *Lab) Architecture() string { return l.options.Architecture }

// KubernetesVersion is the version of new nodes, such as v1.37.2.
func (l *Lab) KubernetesVersion() string { return l.VersionOf("") }

// VersionOf returns the lab's version of a minor release, such as v1.36.4 for "1.36", or "" if there's none. The empty release
// means that of new nodes.
func (l *Lab) VersionOf(minor string) string {
	versions, _ := l.parts.VersionsOf(cmp.Or(minor, l.options.Kubernetes))
	return versions.Kubernetes
}

// Nodes returns all nodes of the lab, running or not, sorted by name.
func (l *Lab) Nodes() ([]*Node, error) {
	names, err := dirNames(l.NodesDir())
	if err != nil {
		return nil, err
	}
	var all []*Node
	for _, name := range names {
		if n, err := l.Node(name); err == nil { // otherwise it was never complete
			all = append(all, n)
		}
	}
	return all, nil
}

// dirNames returns the sorted names of the directories in dir; none if it's missing.
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

// Program returns the path, on this machine, of a program of the default release, for nodes or for their images. It builds the
// program if it's missing.
func (l *Lab) Program(ctx context.Context, name string) (string, error) {
	if name == "slipway" {
		return l.options.Slipway, nil
	}
	here, _, err := l.parts.Program(ctx, l.options.Kubernetes, name)
	return here, err
}

// program builds a program for nodes of a release and returns its paths on this machine and in a node.
func (l *Lab) program(ctx context.Context, minor, name string) (here, inNode string, err error) {
	here, inNode, err = l.parts.Program(ctx, cmp.Or(minor, l.options.Kubernetes), name)
	if err == nil && inNode == "" {
		err = errors.Errorf("the nodes have no program %q", name)
	}
	return here, inNode, err
}
