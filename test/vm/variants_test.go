// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/bundles"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/lab/qemu"
)

// TestSwapKept leaves swap on, on a partition, and makes a node that tolerates it.
func TestSwapKept(t *testing.T) {
	m := newMachine(t, func(o *qemu.Options) { o.Swap = true })
	m.boots()
	m.getsSwap()
	m.installs()
	m.write("/root/up.yaml", upConfig+"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\n")
	m.takes(append(upArgs, "--swap=keep")...)
	m.hasSwap(true)
	m.runsPod()
	m.reboots()
	m.hasSwap(true)
	m.awaitsReady(m)
}

// TestJoin makes a cluster of two machines, each on the other end of a cable.
func TestJoin(t *testing.T) {
	cable := filepath.Join(t.TempDir(), "cable")
	m, _ := prepared(t, func(o *qemu.Options) { o.More = plug(cable, true) })
	w, _ := prepared(t, func(o *qemu.Options) { o.Name, o.More = "worker-1", plug(cable, false) })
	m.boots()
	m.installs()
	m.getsAddress("192.168.77.11")
	m.write("/root/up.yaml", upConfig)
	m.takes(upArgs...)
	w.boots()
	w.installs()
	w.getsAddress("192.168.77.21")
	w.write("/root/up.yaml", m.joinConfig())
	w.takes("slipway", "up", "--config", "/root/up.yaml", "--bundle", bundlePath)
	m.awaitsReady(m, w)
	w.importsProbe()
	m.importsProbe()
	m.asksFrom(w.Name(), "client", m.Name()) // through the cable, both ways
	m.getsFirewall()
	w.getsFirewall()
	m.asksFrom(w.Name(), "client-behind-firewall", m.Name())
}

const joinConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {apiServerEndpoint: "ENDPOINT", token: TOKEN, caCertHashes: ["HASH"]}}
` + slowTimeouts

// joinConfig makes a token, and returns a worker's configuration with it.
func (m machine) joinConfig() string {
	m.Helper()
	var args []string
	m.eventually("a command to join with", podLimit, func() error {
		out, err := m.try("slipway", "token", "create", "--print-join-command")
		_, command, _ := strings.Cut(out, " join ")
		if args = strings.Fields(command); err != nil || len(args) < 5 {
			return errors.Errorf("%s%v", out, err)
		}
		return nil
	})
	value := func(flag string) string { return args[slices.Index(args, flag)+1] }
	return strings.NewReplacer("ENDPOINT", args[0], "TOKEN", value("--token"), "HASH", value("--discovery-token-ca-cert-hash")).Replace(joinConfig)
}

// plug returns QEMU's arguments for a second network interface at one end of a cable.
func plug(cable string, first bool) []string {
	server, mac := "off", "52:54:00:00:01:21"
	if first {
		server, mac = "on", "52:54:00:00:01:11"
	}
	return []string{
		"-netdev", "stream,id=n1,server=" + server + ",addr.type=unix,addr.path=" + cable,
		"-device", "virtio-net-pci,netdev=n1,romfile=,mac=" + mac,
	}
}

// getsAddress sets up the cable's end, and leads the default route and the machine's name there: the other interface has the same
// address on all machines. The kubelet reports the address of its node's name.
func (m machine) getsAddress(address string) {
	m.Helper()
	m.must("sed", "-i", "/^Gateway=/d", "/etc/systemd/network/10-lab.network")
	m.write("/etc/systemd/network/20-cable.network", "[Match]\nMACAddress=52:54:00:00:01:11 52:54:00:00:01:21\n[Network]\nAddress="+
		address+"/24\nGateway=192.168.77.1\n")
	m.must("networkctl", "reload")
	m.must("/usr/lib/systemd/systemd-networkd-wait-online", "--ipv4", "--timeout=300")
	m.must("sed", "-i", "$ a "+address+" "+m.Name(), "/etc/hosts")
	m.eventually("a default route", 5*time.Minute, func() error {
		routes, err := m.try("ip", "route", "get", "192.0.2.1")
		if !strings.Contains(routes, address) {
			return errors.Errorf("%s%v", routes, err)
		}
		return nil
	})
}

// TestUpgrade makes a node of the release before, and upgrades it.
func TestUpgrade(t *testing.T) {
	m := bootOlder(t)
	m.takes("slipway", "host", "prepare", "phase", "images", "--bundle", bundlePath)
	m.eventually("the upgrade", commandLimit+podLimit, func() error { // some limits on looks are fixed, and the same command picks up where it stopped
		out, err := m.try(upgradeArgs(t)...)
		m.Log(out)
		return err
	})
	m.takes(prepareArgs...)
	m.awaitsReady(m)
	version := openLab(t).VersionOf("")
	for _, runs := range [][]string{
		{"get", "node", m.Name(), "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"},
		{"get", "pod", "kube-apiserver-" + m.Name(), "--namespace=kube-system", "-o", "jsonpath={.spec.containers[0].image}"},
	} {
		m.eventually(strings.Join(runs, " ")+" to say "+version, podLimit, func() error {
			out, err := m.try(kubectl(runs...)...)
			if err != nil || !strings.HasSuffix(out, version) {
				return errors.Errorf("%s%v", out, err)
			}
			return nil
		})
	}
	m.runsPod()
}

func upgradeArgs(t *testing.T) []string {
	t.Helper()
	return []string{"slipway", "upgrade", "apply", openLab(t).VersionOf(""), "--yes", "--config", "/root/upgrade.yaml"}
}

const upgradeConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
` + slowTimeouts

// bootOlder makes a node of the release before.
func bootOlder(t *testing.T) machine {
	t.Helper()
	lab := openLab(t)
	list, err := bundles.Older(t.Context(), lab, "1.36")
	if err != nil {
		t.Fatal(err)
	}
	const olderPath = "/mnt/older.tar"
	share := shareWith(t, lab, map[string]string{filepath.Base(olderPath): createBundle(t, list)})
	m := newMachineOf(t, lab, func(o *qemu.Options) { o.Share = share })
	m.boots()
	m.installs()
	m.write("/root/up.yaml", upConfig)
	m.write("/root/upgrade.yaml", upgradeConfig)
	m.takes("slipway", "up", "--config", "/root/up.yaml", "--bundle", olderPath, "--network", "flannel", "--schedulable")
	return m
}

// A variant is a host whose container runtime, or whose Linux Security Module, isn't the lab's usual.
type variant struct {
	name     string
	packages []string
	selinux  bool
	settings map[string]string
	lacks    []string // facts in the refusal of the host without these settings
	state    string   // the name of its program's file about a running container
}

var variants = []variant{
	{name: "containerd-1.7", packages: []string{"containerd", "runc"}, settings: debianSettings, lacks: debianLacks},
	{name: "docker.io", packages: []string{"docker.io"}, settings: debianSettings, lacks: debianLacks},
	{name: "crun", packages: []string{"crun"}, settings: crunSettings, state: "status"},
	{name: "selinux", packages: selinuxPackages, selinux: true},
}

var selinuxPackages = []string{"selinux-basics", "selinux-policy-default", "policycoreutils", "auditd"}

// Debian's containerd has an older sandbox image, the cgroup driver cgroupfs, and a directory of its own for network plugins.
var (
	debianLacks    = []string{"registry.k8s.io/pause:3.8", config.SandboxImage()}
	debianSettings = map[string]string{"/etc/containerd/config.toml": `version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "` + config.SandboxImage() + `"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
`}
)

var crunSettings = map[string]string{"/etc/containerd/conf.d/crun.toml": `version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'crun'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
BinaryName = '/usr/bin/crun'
SystemdCgroup = true
`}

// TestRuntimes makes a node of each variant, and runs a Pod. SELinux only warns at first, and then enforces its policy.
func TestRuntimes(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			m := newMachine(t, nil, v.packages...)
			if v.selinux {
				m.bootsSELinux()
				t.Cleanup(m.logsDenials)
			} else {
				m.boots()
			}
			m.installs()
			m.write("/root/up.yaml", upConfig)
			m.gets(v)
			m.takes(append(upArgs, "--dry-run")...)
			m.takes(upArgs...)
			m.runsPod()
			if v.state != "" {
				if found, err := m.try("find", "/run/containerd/runc/k8s.io", "-name", v.state); !strings.Contains(found, "/"+v.state+"\n") { // it fails if a container has just gone
					t.Errorf("no container has a file %s, so another program runs them: %v", v.state, err)
				}
			}
			if v.selinux {
				m.enforcesSELinux()
			}
		})
	}
}

// gets writes a variant's settings. If its runtime is there already, up first refuses it.
func (m machine) gets(v variant) {
	m.Helper()
	if v.lacks != nil {
		said, err := m.try(upArgs...)
		if err == nil {
			m.Error("up takes this machine as it is")
		}
		fact.In(m.T, said, v.lacks...)
	}
	for path, content := range v.settings {
		m.must("mkdir", "--parents", filepath.Dir(path))
		m.write(path, content)
	}
	if v.lacks != nil {
		m.must("systemctl", "restart", "containerd")
	}
}

// bootsSELinux boots a new machine with SELinux, which enforces nothing yet. Its files get their contexts in a first boot. Debian's own
// units may fail with SELinux.
func (m machine) bootsSELinux() {
	m.Helper()
	m.Options.Boot = []string{"security=selinux", "enforcing=0"}
	m.Log(m.bootsAnyhow())
	m.takesAnyhow("restorecon", "-R", "-F", "-x", "/")         // fails if a file has just gone
	m.takesAnyhow("setsebool", "-P", "ssh_sysadm_login", "on") // otherwise root can't log in over SSH
	m.shutsDown()
	m.Log(m.bootsAnyhow())
	if is := strings.TrimSpace(m.must("getenforce")); is != "Permissive" {
		m.Fatalf("SELinux is %s", is)
	}
}

// enforcesSELinux restarts the kubelet, the runtime and the network under SELinux's policy, and runs another Pod.
func (m machine) enforcesSELinux() {
	m.Helper()
	m.logsDenials()
	m.must("setenforce", "1")
	m.must("systemctl", "restart", "containerd", "kubelet")
	m.restartsFlannel()
	m.asks("client-under-policy")
}

func (m machine) logsDenials() {
	ctx, cancel := context.WithTimeout(context.Background(), explainLimit)
	defer cancel()
	if m.Failed() {
		_, _ = m.tryFor(ctx, "setenforce", "0") // the policy may keep everybody else from logging in
	}
	denied, _ := m.tryFor(ctx, "ausearch", "--input-logs", "-m", "avc", "-i") // by default, it reads standard input; none is an error
	m.Logf("SELinux's denials, %d in all:\n%s", strings.Count(denied, "type=AVC"), denied[max(0, len(denied)-20000):])
	journal, _ := m.tryFor(ctx, "journalctl", "--no-pager", "--boot", "--grep=avc: +denied") // without auditd, they're here
	m.Logf("and in the journal, %d:\n%s", strings.Count(journal, "avc:"), journal[max(0, len(journal)-20000):])
}

// takesAnyhow logs a command's output and error.
func (m machine) takesAnyhow(args ...string) {
	m.Helper()
	out, err := m.try(args...)
	m.Logf("$ %s\n%s%v", strings.Join(args, " "), out, err)
}
