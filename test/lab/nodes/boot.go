// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

const (
	bootDeadline = 5 * time.Minute
	killDeadline = 5 * time.Minute // a busy disk holds up the end of the last process, which takes down the mounts
	pollInterval = 20 * time.Millisecond
)

// Start boots the node from its present state, with the current program under test, and waits until its container runtime is
// ready. For a running node it only waits.
func (n *Node) Start(ctx context.Context) error {
	unlock, err := n.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if n.Running() {
		ending, stop := context.WithCancel(ctx)
		err := n.waitBooted(ctx, n.gone(ending))
		stop()
		if n.Running() {
			return err
		} // it was shutting down
	}
	if err := n.lab.ensureNetwork(ctx); err != nil {
		return err
	}
	if err := n.routePods(ctx); err != nil {
		return err
	}
	return n.lab.log.Do("booting node "+n.state.Name, func() error { return n.boot(ctx) })
}

// lock keeps two programs from booting, killing or removing the node at the same time.
func (n *Node) lock(ctx context.Context) (unlock func(), err error) {
	return filelock.Take(ctx, filepath.Join(n.lab.dir, "."+n.state.Name+".lock"), nil)
}

func (n *Node) boot(ctx context.Context) error {
	all, err := machineHierarchies()
	if err != nil {
		return err
	}
	if err := n.kill(ctx); err != nil { // a node that ended by itself leaves things behind
		return err
	}
	s := n.state
	s.Cgroups = cgroupDirs(all, filepath.Join(n.lab.cgroupName(), n.state.Name))
	if err := n.save(s); err != nil {
		return err
	}
	for _, dir := range s.Cgroups {
		if err := makeCgroup(dir); err != nil {
			return err
		}
	}
	if !n.state.Bare { // a bare node gets it from a package, or by InstallSlipway
		if err := n.installSlipway(); err != nil {
			return err
		}
	}
	ended, err := n.launch()
	if err != nil {
		return err
	}
	if err := n.waitBooted(ctx, ended); err != nil {
		return errors.Wrapf(err, "node %s did not boot; its console says:\n%s", n.state.Name, n.console())
	}
	return nil
}

// launch starts the container. It outlives this program.
func (n *Node) launch() (ended <-chan error, err error) {
	console, err := os.Create(filepath.Join(n.dir(), "console.log"))
	if err != nil {
		return nil, errors.Wrap(err, "cannot open the console's log")
	}
	defer console.Close()
	cmd := exec.Command("systemd-nspawn", n.nspawnArgs()...)
	cmd.Env = append(os.Environ(), "SYSTEMD_SECCOMP=0", "SYSTEMD_NSPAWN_LOCK=0", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=1")
	cmd.Stdout, cmd.Stderr = console, console
	err = thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		if err := n.mountRoot(); err != nil {
			return err
		}
		if err := hideMachines(); err != nil {
			return err
		}
		if err := thread.EnterNet(n.lab.netnsPath()); err != nil {
			return err
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		done, err := joinCgroups(n.cgroups(), cmd.SysProcAttr)
		defer done()
		if err != nil {
			return err
		}
		return errors.Wrap(cmd.Start(), "cannot start systemd-nspawn")
	})
	if err != nil {
		return nil, errors.WithMessage(err, "cannot start the node")
	}
	result := make(chan error, 1)
	go func() { result <- cmd.Wait() }()
	return result, nil
}

// joinCgroups puts the next process that the calling thread starts with these attributes into the cgroups with these directories.
func joinCgroups(dirs []string, attributes *syscall.SysProcAttr) (done func(), err error) {
	done = func() {}
	var first []string // version 1 takes a thread, version 2 only a new process
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "tasks")); err == nil {
			first = append(first, dir)
			continue
		}
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return done, errors.Wrap(err, "cannot open a cgroup")
		}
		done = func() { unix.Close(fd) }
		attributes.UseCgroupFD, attributes.CgroupFD = true, fd
	}
	return done, thread.JoinCgroups(first)
}

// mountRoot assembles the node's root in the calling thread's mount namespace.
func (n *Node) mountRoot() error {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", strings.Join(n.state.Layers, ":"), n.upper(), n.work())
	return errors.Wrap(unix.Mount("overlay", n.root(), "overlay", 0, options), "cannot mount the node's root")
}

// hideMachines gives systemd-nspawn its own runtime directory, as nodes of two labs may have the same machine name.
func hideMachines() error {
	const dir = "/run/systemd/nspawn"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return errors.Wrap(err, "cannot make systemd-nspawn's directory")
	}
	return errors.Wrap(unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"), "cannot mount systemd-nspawn's directory")
}

// machine is the node's name for systemd-nspawn. It's short so that the name of its network interface on the bridge, "vb-" plus
// this, isn't cut.
func (n *Node) machine() string { return fmt.Sprintf("n%d", n.state.Index) }

func (n *Node) nspawnArgs() []string {
	id := n.state.MachineID
	args := []string{
		"--quiet", "--boot", "--register=no", "--keep-unit", "--settings=no",
		"--directory=" + n.root(),
		"--machine=" + n.machine(), "--hostname=" + n.state.Name,
		"--uuid=" + strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-"),
		"--capability=all", "--private-users=no", "--console=read-only",
		"--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--network-bridge=" + bridge,
		"--bind=/dev/kmsg", "--bind=/dev/fuse",
	}
	for _, name := range diskDirs {
		args = append(args, "--bind="+n.disk(name)+":/var/lib/"+name)
	}
	if _, err := os.Stat("/lib/modules"); err == nil {
		args = append(args, "--bind-ro=/lib/modules")
	}
	return args
}

// waitBooted waits until systemd has started everything and containerd answers.
func (n *Node) waitBooted(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- n.pollBooted(ctx) }()
	select {
	case err := <-ended:
		return errors.Errorf("it ended: %v", err)
	case err := <-ready:
		return err
	}
}

// gone reports on its channel when a running node has ended, unless ctx ends earlier.
func (n *Node) gone(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := n.leader(); err != nil {
				ended <- err
				return
			}
			time.Sleep(5 * pollInterval)
		}
	}()
	return ended
}

func (n *Node) pollBooted(ctx context.Context) error {
	for {
		missing, err := n.missing(ctx)
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Wrap(ctx.Err(), missing)
		case <-time.After(pollInterval):
		}
	}
}

// missing says what the node still lacks to count as booted, if anything. It returns an error if waiting longer won't help.
func (n *Node) missing(ctx context.Context) (string, error) {
	leader, _ := n.leader() // 0 if there's none yet
	if leader == 0 {
		return "its init is not there", nil
	}
	if sockets, _ := filepath.Glob(inRoot(leader, "run/dbus/system_bus_socket")); len(sockets) == 0 {
		return "D-Bus is not there", nil
	}
	units := []string{"lab-node.service"}
	if !n.state.Bare {
		units = append(units, "containerd.service")
	}
	said, _ := n.Output(ctx, append([]string{"systemctl", "is-active"}, units...)...) // exits with 1 until all are active
	if strings.Contains(said, "failed") {
		log, _ := n.Logs(ctx, "", "--lines=30")
		return "", errors.Errorf("one of %v failed:\n%s", units, log)
	}
	if said != strings.Repeat("active\n", len(units)) {
		return fmt.Sprintf("%v are not there", units), nil
	}
	return "", nil
}

func (n *Node) console() string {
	data, _ := os.ReadFile(filepath.Join(n.dir(), "console.log"))
	const most = 4000
	return string(data[max(len(data)-most, 0):])
}

// Running reports whether the node's init runs.
func (n *Node) Running() bool {
	_, err := n.leader()
	return err == nil
}

// leader returns the process id, on this machine, of the node's init: the process in the node's cgroups with id 1 in a process
// namespace directly below this program's.
func (n *Node) leader() (int, error) {
	own, err := namespaceIDs(os.Getpid())
	if err != nil {
		return 0, err
	}
	for _, dir := range n.cgroups() {
		for _, pid := range members(dir) {
			ids, err := namespaceIDs(pid)
			if err == nil && len(ids) == len(own)+1 && ids[len(ids)-1] == "1" {
				return pid, nil
			}
		}
	}
	return 0, errors.Errorf("node %s is not running", n.state.Name)
}

// namespaceIDs returns a process's ids in its process namespaces, outermost first.
func namespaceIDs(pid int) ([]string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, errors.Wrap(err, "cannot read a process's ids")
	}
	for _, line := range strings.Split(string(data), "\n") {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(ids), nil
		}
	}
	return nil, errors.New("this kernel does not tell ids in process namespaces")
}

// inRoot returns a path as a running process sees it. Symbolic links in it are resolved on this machine.
func inRoot(pid int, path string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), "root", path)
}
