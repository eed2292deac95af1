// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
	"github.com/slipway-k8s/slipway/test/lab/internal/tree"
	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// NodeSpec describes a new node.
type NodeSpec struct {
	Name       string   // also its host name; cp-N and worker-N have fixed addresses
	IP         string   // an address in 192.168.99.11-99; default by name
	PodSubnets []string // of the whole cluster; default DefaultPodSubnet
	Kubernetes string   // the minor version of its programs; default the newest
	With       []string // parts for some nodes only: Kubeadm, Flannel
	Bare       bool     // like a cloud's image: no runtime, kubelet, images or Pod network
}

// Node is one node of a lab. Its methods may be used side by side.
type Node struct {
	lab   *Lab
	state state // except for its cgroups, which change: see cgroups
}

// state is kept about a node between runs of programs.
type state struct {
	Name       string
	Index      int
	PodSubnets []string
	MachineID  string
	Layers     []string // of its root, the topmost first
	Cgroups    []string // directories of its cgroups since the last boot
	Bare       bool     // began without a runtime, kubelet, images or Pod network
}

const stateFile = "node.json"

var nodeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)

func (l *Lab) nodeDir(name string) string { return filepath.Join(l.NodesDir(), name) }

// LabName is the name of the node's lab.
func (n *Node) LabName() string { return n.lab.Name() }

// Node returns an existing node, running or not.
func (l *Lab) Node(name string) (*Node, error) {
	s, err := readState(filepath.Join(l.nodeDir(name), stateFile))
	if os.IsNotExist(errors.Cause(err)) {
		return nil, errors.Errorf("lab %s has no node %q", l.options.Name, name)
	}
	return &Node{lab: l, state: s}, err
}

// StartNode makes a node and boots it until its container runtime is ready and has the images. It boots an existing node as it
// is, or leaves it alone if it runs. Either way it installs kubeadm on request.
func (l *Lab) StartNode(ctx context.Context, spec NodeSpec) (*Node, error) {
	n, err := l.Node(spec.Name)
	if err != nil {
		machine, err := l.parts.Machine(ctx, l.need(spec))
		if err != nil {
			return nil, err
		}
		if n, err = l.create(ctx, spec, machine); err != nil {
			return nil, errors.WithMessagef(err, "node %s", spec.Name)
		}
	}
	if err := n.Start(ctx); err != nil || !slices.Contains(spec.With, Kubeadm) {
		return n, err
	}
	return n, n.Install(ctx, spec.Kubernetes, Kubeadm)
}

// create lays out a new node's directory. It writes the state file last: a directory without one is a leftover.
func (l *Lab) create(ctx context.Context, spec NodeSpec, machine *parts.Machine) (*Node, error) {
	if !nodeName.MatchString(spec.Name) {
		return nil, errors.New("not a host name")
	}
	unlock, err := filelock.Take(ctx, filepath.Join(l.dir, ".nodes.lock"), nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := l.newState(spec, machine.Layers)
	if err != nil {
		return nil, err
	}
	n := &Node{lab: l, state: s}
	if err := os.RemoveAll(n.dir()); err != nil {
		return nil, errors.Wrap(err, "cannot remove a leftover")
	}
	if err := n.layOut(machine); err != nil {
		return nil, err
	}
	return n, n.save(s)
}

// newState chooses everything the specification leaves open.
func (l *Lab) newState(spec NodeSpec, layers []string) (state, error) {
	s := state{Name: spec.Name, PodSubnets: spec.PodSubnets, Layers: layers, Bare: spec.Bare}
	if len(s.PodSubnets) == 0 {
		s.PodSubnets = []string{DefaultPodSubnet}
	}
	others, err := l.Nodes()
	if err != nil {
		return s, err
	}
	taken := map[int]bool{}
	for _, other := range others {
		taken[other.state.Index] = true
	}
	if spec.IP == "" {
		s.Index, err = indexFor(spec.Name, taken)
	} else {
		s.Index, err = indexOf(spec.IP, taken)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails: see its documentation
	s.MachineID = hex.EncodeToString(id)
	return s, err
}

// indexOf returns the index of a requested address.
func indexOf(text string, taken map[int]bool) (int, error) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return 0, errors.Wrap(err, "not an address")
	}
	for index := firstIndex; index <= lastIndex; index++ {
		if ipv4(index) != address.String() {
			continue
		}
		if taken[index] {
			return 0, errors.Errorf("the address %s belongs to another node", text)
		}
		return index, nil
	}
	return 0, errors.Errorf("the address %s is not in %s-%s", text, ipv4(firstIndex), ipv4(lastIndex))
}

// The directories of a node: the writable layer of its root, overlay's work directory, the assembled root, and the directories
// bound in from the disk, because overlays (a container's, etcd's fsync) don't stack well.
func (n *Node) dir() string   { return n.lab.nodeDir(n.state.Name) }
func (n *Node) upper() string { return filepath.Join(n.dir(), "upper") }
func (n *Node) work() string  { return filepath.Join(n.dir(), "work") }
func (n *Node) root() string  { return filepath.Join(n.dir(), "root") }

func (n *Node) disk(name string) string { return filepath.Join(n.dir(), "disk", name) }

// diskDirs are the directories of /var/lib that are bound in.
var diskDirs = []string{"containerd", "kubelet", "etcd"}

func (n *Node) layOut(m *parts.Machine) error {
	for _, dir := range []string{n.upper(), n.work(), n.root(), filepath.Join(n.upper(), "etc"), n.disk("kubelet"), n.disk("etcd"), n.disk("containerd")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return errors.Wrap(err, "cannot make its directories")
		}
	}
	if !n.state.Bare {
		if err := tree.Link(m.Containerd, n.disk("containerd")); err != nil {
			return err
		}
	}
	all, err := machineHierarchies()
	if err != nil {
		return err
	}
	files, err := nodeFiles(n.state, controllers(all))
	if err != nil {
		return err
	}
	for _, file := range files {
		path := filepath.Join(n.upper(), file.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return errors.Wrap(err, "cannot make its directories")
		}
		if err := os.WriteFile(path, []byte(file.data), file.mode); err != nil {
			return errors.Wrap(err, "cannot write its files")
		}
	}
	return nil
}

// controllers returns the directory names below /sys/fs/cgroup of the version 1 hierarchies.
func controllers(all []hierarchy) []string {
	var names []string
	for _, h := range all {
		if h.controllers != "" {
			names = append(names, filepath.Base(h.mount))
		}
	}
	slices.Sort(names)
	return names
}

func readState(path string) (state, error) {
	var s state
	data, err := os.ReadFile(path)
	if err != nil {
		return s, errors.Wrap(err, "cannot read a node's state")
	}
	return s, errors.Wrapf(json.Unmarshal(data, &s), "cannot read %s", path)
}

// save replaces the state file atomically.
func (n *Node) save(s state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return errors.Wrap(err, "cannot write a node's state")
	}
	path := filepath.Join(n.dir(), stateFile)
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return errors.Wrap(err, "cannot write a node's state")
	}
	return errors.Wrap(os.Rename(path+".new", path), "cannot write a node's state")
}

// cgroups returns the directories of the node's cgroups since its last boot, whichever program booted it; none if it never
// booted.
func (n *Node) cgroups() []string {
	s, err := readState(filepath.Join(n.dir(), stateFile))
	if err != nil {
		return nil // removed
	}
	return s.Cgroups
}

// Name is the node's name and host name.
func (n *Node) Name() string { return n.state.Name }

// IP is the node's IPv4 address.
func (n *Node) IP() string { return ipv4(n.state.Index) }

// IPv6 is the node's IPv6 address.
func (n *Node) IPv6() string { return ipv6(n.state.Index) }

// NetworkNamespace is the path of the lab's network namespace, for programs on this machine that talk to nodes.
func (n *Node) NetworkNamespace() string { return n.lab.netnsPath() }
