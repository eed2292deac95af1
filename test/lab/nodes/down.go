// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/internal/tree"
)

// Kill ends all processes of the node at once, like a power failure. The node's state stays; Start boots it again.
func (n *Node) Kill(ctx context.Context) error {
	unlock, err := n.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return n.kill(ctx)
}

func (n *Node) kill(ctx context.Context) error {
	if err := n.cleanCgroups(); err != nil {
		return err
	}
	return n.unplug(ctx)
}

// unplug removes the node's interface from the bridge. The kernel would remove it too, but only after giving up the node's last
// connections.
func (n *Node) unplug(ctx context.Context) error {
	link := "vb-" + n.machine()
	there := func() bool { return ip(ctx, "-n", n.lab.netns(), "link", "show", link) == nil }
	if !there() {
		return nil
	}
	err := ip(ctx, "-n", n.lab.netns(), "link", "del", link)
	if err != nil && !there() {
		return nil // it has just gone by itself
	}
	return err
}

// cleanCgroups ends the node's processes and removes its cgroups, if they still exist.
func (n *Node) cleanCgroups() error {
	cgroups := n.cgroups()
	if len(cgroups) == 0 {
		return nil
	}
	if leader, err := n.leader(); err == nil {
		killMember(leader, cgroups[0]) // the kernel then ends all others in its namespace
	}
	if err := killCgroups(cgroups, killDeadline); err != nil {
		return err
	}
	return removeCgroups(cgroups)
}

func (n *Node) Restart(ctx context.Context) error {
	if err := n.Kill(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Remove kills the node and removes all its files.
func (n *Node) Remove(ctx context.Context) error {
	if err := n.Kill(ctx); err != nil {
		return err
	}
	return wipe(n.dir())
}

// InstallSlipway puts the current program under test into the node. Start does it too, except for bare nodes.
func (n *Node) InstallSlipway() error {
	if _, err := os.Stat(n.lab.options.Slipway); err != nil {
		return errors.Wrap(err, "cannot find the program under test: run make build")
	}
	return n.CopyIn(n.lab.options.Slipway, slipwayPath)
}

// slipwayPath is the path of the program under test in a node.
const slipwayPath = "/usr/local/bin/slipway"

// installSlipway installs it in a stopped node. Without a program under test it does nothing, as the node is useful anyway.
func (n *Node) installSlipway() error {
	if _, err := os.Stat(n.lab.options.Slipway); os.IsNotExist(err) {
		return nil
	}
	target := filepath.Join(n.upper(), slipwayPath)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return errors.Wrap(err, "cannot make a directory of the node")
	}
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return errors.Wrap(err, "cannot replace the program under test")
	}
	return errors.Wrap(tree.CopyFile(n.lab.options.Slipway, target), "cannot copy the program under test")
}

// InstallKubernetes replaces the programs that a package manager would upgrade by those of another minor release, empty for the
// newest. Running programs keep running from their old files.
func (n *Node) InstallKubernetes(ctx context.Context, minor string) error {
	return n.Install(ctx, minor, Kubeadm, "kubectl", "kubelet")
}

// Install puts programs of a minor release where the node's packages would, building them if they're missing.
func (n *Node) Install(ctx context.Context, minor string, programs ...string) error {
	for _, name := range programs {
		here, inNode, err := n.lab.program(ctx, minor, name)
		if err != nil {
			return err
		}
		if err := n.CopyIn(here, inNode); err != nil {
			return err
		}
	}
	return nil
}

// VersionOf returns the version that InstallKubernetes installs, such as v1.36.4 for "1.36", or "" if there's none.
func (n *Node) VersionOf(minor string) string { return n.lab.VersionOf(minor) }

// Down ends and removes the whole lab in any state. It keeps only the parts that all labs share, and doesn't touch other labs.
func (l *Lab) Down(ctx context.Context) error {
	return l.log.Do("taking lab "+l.options.Name+" down", func() error {
		nodes, err := l.Nodes()
		if err := unlessDiskIsGone(err); err != nil {
			return err
		}
		for _, n := range nodes {
			if err := unlessDiskIsGone(n.Kill(ctx)); err != nil {
				return err
			}
		}
		if err := l.removeCgroups(nodes); err != nil {
			return err
		}
		if err := l.removeNetwork(ctx); err != nil {
			return err
		}
		return wipe(l.dir)
	})
}

// unlessDiskIsGone drops errors of a disk that was mounted for the nodes and went with the program that served it. Their processes
// are then found by their cgroups.
func unlessDiskIsGone(err error) error {
	if errors.Is(err, unix.EIO) {
		return nil
	}
	return err
}

// removeCgroups removes the lab's cgroups, both below this program's own and below those of the programs that started its nodes.
func (l *Lab) removeCgroups(nodes []*Node) error {
	all, err := machineHierarchies()
	if err != nil {
		return err
	}
	dirs := cgroupDirs(all, l.cgroupName())
	for _, n := range nodes {
		for _, dir := range n.cgroups() {
			dirs = append(dirs, filepath.Dir(dir))
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	if err := killCgroups(dirs, killDeadline); err != nil {
		return err
	}
	return removeCgroups(dirs)
}

// wipe removes a directory after unmounting everything below it. It never removes through a mount.
func wipe(dir string) error {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return errors.Wrap(err, "cannot read this machine's mounts")
	}
	for _, path := range slices.Backward(mountsBelow(string(mountinfo), dir)) {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return errors.Wrapf(err, "cannot unmount %s", path)
		}
	}
	return errors.Wrap(os.RemoveAll(dir), "cannot remove the lab's files")
}

// mountsBelow lists the mount points in dir, in mount order.
func mountsBelow(mountinfo, dir string) []string {
	var found []string
	for _, line := range strings.Split(mountinfo, "\n") {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], filepath.Clean(dir)+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}
