// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

const startRuntime = "start it, or name its socket with --cri-socket; `slipway host prepare --bundle FILE` installs one"

func runtimeReady(ctx context.Context, h View, socket string) []fault.Finding {
	info, err := h.RuntimeInfo(ctx, socket)
	if err != nil {
		return fail("the container runtime does not answer: %v", err).remedy("%s", cmp.Or(fault.Remedy(err), startRuntime))
	}
	if !info.Ready {
		return fail("the container runtime %s %s is not ready: %s", info.Name, info.Version, info.Reason).
			remedy("see its journal, such as `journalctl -u %s`", host.RuntimeService(socket))
	}
	return nil
}

// runtimeVersion is about the cgroup driver. The kubelet asks the runtime for it (KEP-4033); a runtime too old to answer has to
// use the driver in the kubelet's configuration.
func runtimeVersion(ctx context.Context, h View, m *config.Machine) []fault.Finding {
	info, err := h.RuntimeInfo(ctx, m.CRISocket)
	if err != nil {
		return fail("cannot read the container runtime's version: it does not answer at %s", m.CRISocket).remedy(startRuntime)
	}
	if reportsDriver(info) {
		return nil
	}
	if info.Name == "" { // every running runtime has a name
		return unasked("the version of a container runtime that does not run yet")
	}
	if want := effectiveKubelet(m, h).cgroupDriver.value; info.CgroupDriver != "" && want != info.CgroupDriver {
		return fail("%s %s uses the cgroup driver %s, but the kubelet would use %s", info.Name, info.Version, info.CgroupDriver, want).
			remedy("set the same driver in both, or " + updateRuntime)
	}
	return warn("%s %s cannot report its cgroup driver to the kubelet, and kubelets from 1.38 on require that", info.Name, info.Version).
		remedy(updateRuntime)
}

// updateRuntime names the first versions with a reported cgroup driver.
const updateRuntime = "update the container runtime to containerd 2.0, CRI-O 1.28 or later"

// reportsDriver reports whether the runtime knows CRI's RuntimeConfig, as containerd does since 2.0; before, its driver is elsewhere.
func reportsDriver(info host.RuntimeInfo) bool {
	if info.CgroupDriver == "" {
		return false
	}
	v, err := version.ParseGeneric(info.Version)
	return info.Name != "containerd" || err != nil || v.AtLeast(version.MustParseGeneric("2.0"))
}

func noContainers(_ context.Context, h View) []fault.Finding {
	running, err := RunningContainers(h)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return skip("only root can see that")
	case err != nil:
		return fail("cannot list the running containers: %v", err).remedy("check that /proc is mounted, and shows the processes of others to root")
	case len(running) > 0:
		return fail("containers run on this host: %s", strings.Join(running, ", ")).remedy("stop and remove them: `ps -fp PID` shows a process "+
			"with its user and, for a containerd's, its SOCKET. `ctr --address SOCKET --namespace NAMESPACE tasks ls`, `crictl ps` or, "+
			"as that user, `podman ps` lists them. "+
			"Containers of a runtime that is not from a bundle may also keep running, with %s", fault.Ignoring("NoContainers"))
	}
	return nil
}

// RunningContainers lists the containers of any containerd, as NAMESPACE/ID, and of CRI-O and Podman, as conmon/NAME, with their
// processes. It finds them without the runtimes, which may be stopped while their containers run on.
func RunningContainers(h View) ([]string, error) {
	processes, err := allProcesses(h)
	if err != nil {
		return nil, err
	}
	dirs := slices.Clone(taskDirs)
	var running, names []string
	for _, p := range processes {
		if name := p.container(); name != "" {
			names = append(names, name)
			running = append(running, name+p.origin(h))
			dirs = append(dirs, taskDirsBeside(argument(p.args, "-address"))...)
		}
	}
	tasks, err := runningTasks(h, dirs)
	for _, name := range tasks {
		if !slices.Contains(names, name) {
			running = append(running, name)
		}
	}
	slices.Sort(running)
	return slices.Compact(running), err
}

type process struct {
	pid  string
	args []string
}

// container names the container that a process watches over; empty for other processes. A shim counts even if its containerd's
// directories aren't found: it has at least one container, or a Pod's, with the sandbox's ID.
func (p process) container() string {
	switch program := filepath.Base(p.args[0]); {
	case strings.HasPrefix(program, "containerd-shim"): // the earliest have no ID
		return argument(p.args, "-namespace") + "/" + filepath.Base(argument(p.args, "-id", "-workdir"))
	case program == "conmon":
		return "conmon/" + argument(p.args, "-n", "--name", "-c", "--cid")
	case program == "conmonrs": // one for each Pod
		return "conmonrs/" + filepath.Base(filepath.Dir(argument(p.args, "--runtime-dir")))
	}
	return ""
}

// origin says where to find a process, whose user may have a runtime unknown to root's tools.
func (p process) origin(h View) string {
	text, _ := h.ReadFile(filepath.Join("/proc", p.pid, "status")) // missing if it has just ended
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Uid:" {
			return " (process " + p.pid + " of user " + fields[1] + ")"
		}
	}
	return " (process " + p.pid + ")"
}

// TasksName is a directory in containerd's state, with a subdirectory for each namespace, which has a subdirectory for each running
// container. containerd's data has the same directory, where a namespace's subdirectory stays.
const TasksName = "io.containerd.runtime.v2.task"

// taskDirs belong to containerd as a service, and to Docker's own containerd where there's no service.
var taskDirs = []string{"/run/containerd/" + TasksName, "/run/docker/containerd/daemon/" + TasksName}

// taskDirsBeside belong to the containerd with this socket: k3s, MicroK8s and Docker from a snap each have their own.
func taskDirsBeside(socket string) []string {
	dir := filepath.Dir(socket)
	if !filepath.IsAbs(dir) {
		return nil
	}
	return []string{filepath.Join(dir, TasksName), filepath.Join(dir, "daemon", TasksName)}
}

func runningTasks(h View, dirs []string) ([]string, error) {
	var tasks []string
	for _, dir := range dirs {
		namespaces, err := h.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, n := range namespaces {
			ids, err := h.ReadDir(filepath.Join(dir, n.Name()))
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				tasks = append(tasks, n.Name()+"/"+id.Name())
			}
		}
	}
	return tasks, nil
}

// allProcesses lists processes with a command line, from proc(5): the kernel's have none. The first process always exists: if
// it's hidden, others are, too.
func allProcesses(h View) ([]process, error) {
	const first = "1"
	entries, err := h.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all, complete := []process{}, false
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		text, err := h.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH): // it has ended
			continue
		case err != nil:
			return nil, err
		}
		complete = complete || e.Name() == first
		if args := strings.Split(string(text), "\x00"); args[0] != "" {
			all = append(all, process{e.Name(), args})
		}
	}
	switch {
	case complete:
		return all, nil
	case !seenByRoot(h): // proc(5), hidepid
		return nil, fs.ErrPermission
	}
	return nil, errors.New("/proc shows no processes of others")
}

// seenByRoot reports whether this process, which sees itself in any /proc, is root's. A plan always says that it is.
func seenByRoot(h View) bool {
	info, err := h.Stat("/proc/self")
	if err != nil {
		return h.EffectiveUID() == 0
	}
	owner, known := host.OwnerIn(info)
	return !known || owner.UID == 0
}

// argument returns the value of the first of these options in a program's arguments.
func argument(args []string, options ...string) string {
	for _, option := range options {
		if i := slices.Index(args, option); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}
