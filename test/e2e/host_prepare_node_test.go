// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/bundles"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestHostPrepareNode upgrades a node made from a bundle to a newer bundle, without a network: its images, then the control
// plane, then the programs. The new kubelet may recreate the static Pods; no other container is restarted.
func TestHostPrepareNode(t *testing.T) {
	tier.OnlyFull(t, "TestUp")
	m := bare(t)
	m.hasProgram()
	newer := m.swapBundle(olderBundle(t))
	m.prepares()
	if err := m.node.ConfigurePods(); err != nil {
		t.Fatal(err)
	}
	older := m.node.VersionOf(olderKubernetes)
	m.init(document("", "kubernetesVersion: "+older+"\n"+podSubnet))
	m.ready("cp-1")
	m.podsRun(everything.pods)

	m.must("mv", newer, bundlePath)
	before := m.must("find", "/usr/local/bin", "/etc/containerd", "-printf", `%p %T@\n`)
	if out, err := m.try(prepareArgs...); err == nil || !strings.Contains(out, older) {
		t.Errorf("a kubelet that is newer than the control plane: %v\n%s", err, out)
	}
	if diff := cmp.Diff(before, m.must("find", "/usr/local/bin", "/etc/containerd", "-printf", `%p %T@\n`)); diff != "" {
		t.Errorf("a refused run changed something:\n%s", diff)
	}
	m.must("slipway", "host", "prepare", "phase", "images", "--bundle", bundlePath)
	m.apply()

	programs := []string{"kubelet", "containerd"}
	pids := m.mainPIDs(programs)
	started := m.containerStarts()
	m.prepares()
	if diff := cmp.Diff(started, m.containerStarts()); diff != "" {
		t.Errorf("containers were restarted (-before +after):\n%s", diff)
	}
	for i, pid := range m.mainPIDs(programs) {
		if pid == pids[i] {
			t.Errorf("%s was not restarted", programs[i])
		}
	}
	m.runsVersion(m.upgradesTo(), "cp-1")
	m.hasPinned(m.upgradesTo(), older)
	m.secondPrepareChangesNothing()
}

// olderBundle makes a bundle of the older Kubernetes. The lab has only one version of containerd and runc, so their files get a
// byte more than in the newer bundle.
func olderBundle(t *testing.T) string {
	t.Helper()
	list, err := bundles.Older(t.Context(), openLab(t, labName(t), ""), olderKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, part := range list.Parts {
		if part.Name == "containerd" || part.Name == "runc" {
			list.Parts[i].File = lengthened(t, part.File, dir)
		}
	}
	older, err := bundles.Create(t.Context(), programHere(), list, dir)
	if err != nil {
		t.Fatal(err)
	}
	return older
}

// lengthened copies a program and adds a byte, which nothing reads.
func lengthened(t *testing.T, file, dir string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	longer := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(longer, append(data, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	return longer
}

// programHere returns the path of the program under test on this machine.
func programHere() string {
	if program != "" {
		return program
	}
	return "../../bin/slipway"
}

// here runs a program on this machine, and returns its output.
func here(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestHostPrepareSigned: a host that trusts a key takes only bundles signed with it, and Slipway's signatures are the same as
// minisign's.
func TestHostPrepareSigned(t *testing.T) {
	tier.OnlyFull(t, "TestUp")
	m := bare(t)
	m.hasProgram()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	slipway := programHere()
	if err := openLab(t, labName(t), "").InstallHere(t.Context(), "minisign", "minisign"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ours", "other"} {
		here(t, "minisign", "-G", "-W", "-p", at(name+".pub"), "-s", at(name+".key"))
	}
	key, err := os.ReadFile(at("ours.pub"))
	if err != nil {
		t.Fatal(err)
	}
	m.write("/etc/slipway/bundle-keys.d/ours.pub", string(key))
	refuses := func(why string) {
		t.Helper()
		for _, args := range [][]string{prepareArgs, {"slipway", "bundle", "inspect", bundlePath}, {"slipway", "bundle", "verify", bundlePath}} {
			if out, err := m.try(args...); err == nil || !strings.Contains(out, why) {
				t.Errorf("%q: %v\n%s", args, err, out)
			}
		}
	}
	refuses("not signed")

	bundle := at("bundle.tar")
	if err := m.node.CopyOut(bundlePath, bundle); err != nil {
		t.Fatal(err)
	}
	for _, signer := range []string{"other", "ours"} {
		here(t, slipway, "bundle", "sign", bundle, "--sign-key", at(signer+".key"))
		for _, entry := range []string{"index.json", "index.json.minisig"} {
			if err := os.WriteFile(at(entry), []byte(here(t, "tar", "--extract", "--to-stdout", "--file", bundle, entry)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		here(t, "minisign", "-V", "-p", at(signer+".pub"), "-m", at("index.json"))
		if err := m.node.CopyIn(bundle, bundlePath); err != nil {
			t.Fatal(err)
		}
		if signer == "other" {
			refuses("bundle-keys.d")
		}
	}
	m.prepares()
	if out := m.must("slipway", "bundle", "inspect", bundlePath); !strings.Contains(out, "ours.pub") {
		t.Errorf("it is not said who has signed it:\n%s", out)
	}
}

// swapBundle replaces the node's bundle, and returns the former bundle's new path.
func (m machine) swapBundle(bundle string) string {
	m.Helper()
	const aside = "/root/newer.tar"
	m.must("mv", bundlePath, aside)
	if err := m.node.CopyIn(bundle, bundlePath); err != nil {
		m.Fatal(err)
	}
	return aside
}

func (m machine) mainPIDs(units []string) []string {
	m.Helper()
	return strings.Fields(m.must(append([]string{"systemctl", "show", "-p", "MainPID", "--value"}, units...)...))
}

// containerStarts lists the processes of CoreDNS's and kube-proxy's containers, with their start times in clock ticks since the
// boot.
func (m machine) containerStarts() []string {
	m.Helper()
	const script = `ids=$(ctr --namespace=k8s.io containers ls -q 'labels."io.kubernetes.pod.name"~="^(coredns|kube-proxy)-"')
ctr --namespace=k8s.io tasks ls | awk 'NR > 1 {print $1, $2}' | while read -r id pid; do
	case "$ids" in *"$id"*) echo "$id $pid $(cut -d ' ' -f 22 "/proc/$pid/stat")" ;; esac
done`
	lines := strings.Split(strings.TrimSpace(m.must("sh", "-c", script)), "\n")
	if len(lines) < 6 { // three Pods, each with a sandbox
		m.Fatalf("only %q", lines)
	}
	slices.Sort(lines)
	return lines
}

// hasPinned checks that a version's images are pinned, and that the older version's exist but aren't.
func (m machine) hasPinned(version, older string) {
	m.Helper()
	list := m.must("ctr", "--namespace=k8s.io", "images", "ls")
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(line, " ")
		pinned := strings.Contains(line, "io.cri-containerd.pinned=pinned")
		if strings.HasSuffix(name, ":"+version) && !pinned || strings.HasSuffix(name, ":"+older) && pinned {
			m.Errorf("pinned: %t, %s", pinned, name)
		}
	}
	for _, v := range []string{version, older} {
		if !strings.Contains(list, "registry.k8s.io/kube-apiserver:"+v) {
			m.Errorf("the API server's image of %s is missing:\n%s", v, list)
		}
	}
}

// containerdUnit is the path of containerd's unit in containerd's own guide and in bundles.
const containerdUnit = "/usr/local/lib/systemd/system/containerd.service"

// operatorsRuntimeSurvives prepares a bare machine without a bundle, installs containerd by its own guide, and runs a container.
// The next preparation, with a bundle, uses this containerd and changes nothing of it. Host reset refuses at first, and then
// leaves the runtime with its container and images.
func (m machine) operatorsRuntimeSurvives() {
	m.Helper()
	ignore := "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors
	m.must("slipway", "host", "prepare", ignore)
	list, err := bundles.List(m.Context(), openLab(m.T, labName(m.T), ""), "")
	if err != nil {
		m.Fatal(err)
	}
	for _, part := range list.Parts {
		if !slices.Contains([]string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"}, part.Name) {
			continue
		}
		if err := m.node.CopyIn(part.File, path.Join("/usr/local/bin", part.Name)); err != nil {
			m.Fatal(err)
		}
		m.must("chmod", "0755", path.Join("/usr/local/bin", part.Name))
	}
	m.must("mkdir", "-p", path.Dir(containerdUnit), "/etc/containerd")
	m.write(containerdUnit, "[Service]\nType=notify\nExecStart=/usr/local/bin/containerd\nDelegate=yes\nKillMode=process\n[Install]\nWantedBy=multi-user.target\n")
	m.write("/etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n")
	m.must("systemctl", "daemon-reload")
	m.must("systemctl", "enable", "--now", "containerd")
	m.must("ctr", "images", "import", "/root/probe.tar")
	m.must("ctr", "run", "--detach", "--net-host", nodes.ProbeImage, "mine", "/probe", "serve", ":18080")

	files := func() string {
		return m.must("find", "/etc/containerd", "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/local/bin", "/var/lib/containerd",
			"-maxdepth", "1", "-name", "*containerd*", "-printf", `%p %m %U\n`) + m.must("systemctl", "show", "containerd", "-p", "MainPID")
	}
	before := files()
	m.must(append(slices.Clone(prepareArgs), "--skip-phases=images")...)
	if after := files(); after != before {
		m.Errorf("host prepare changed the operator's runtime:\n%s\nwas\n%s", after, before)
	}
	if out, err := m.try("slipway", "host", "reset"); err == nil || !strings.Contains(out, "[ERROR NoContainers]") || !strings.Contains(out, "default/mine") {
		m.Errorf("host reset beside a container that runs: %v\n%s", err, out)
	}
	m.must("slipway", "host", "reset", "--ignore-preflight-errors=NoContainers")
	if after := files(); after != before {
		m.Errorf("host reset changed the operator's runtime:\n%s\nwas\n%s", after, before)
	}
	if tasks := m.must("ctr", "tasks", "ls"); !strings.Contains(tasks, "mine") || !strings.Contains(tasks, "RUNNING") {
		m.Errorf("the container does not run any more:\n%s", tasks)
	}
	m.must("ctr", "tasks", "exec", "--exec-id", "x", "mine", "/probe", "get", "http://127.0.0.1:18080/")
	if images := m.must("ctr", "images", "ls", "--quiet"); !strings.Contains(images, nodes.ProbeImage) {
		m.Errorf("its image is gone:\n%s", images)
	}
	if out, err := m.try("test", "-e", "/usr/local/bin/kubelet"); err == nil {
		m.Errorf("the bundle's kubelet is still there\n%s", out)
	}
	if forwards := m.must("cat", "/proc/sys/net/ipv4/ip_forward"); forwards != "1\n" {
		m.Errorf("net.ipv4.ip_forward is %q, and a container runtime may need it", forwards)
	}
}
