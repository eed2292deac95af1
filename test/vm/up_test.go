// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// slowTimeouts suit an emulated machine.
const slowTimeouts = `timeouts:
  controlPlaneComponentHealthCheck: 45m
  kubeletHealthCheck: 45m
  tlsBootstrap: 45m
  discovery: 45m
  upgradeManifests: 45m
  kubernetesAPICall: 20m
  etcdAPICall: 20m
`

// upConfig is for an emulated machine. Without a lease to renew within 10 s, its only controller manager and scheduler don't restart
// whenever the API server is late; each of the API server's many connections to etcd would take long with RSA; and a program in Go
// that uses one processor wakes fewer threads.
const upConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
` + slowTimeouts + `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
encryptionAlgorithm: ECDSA-P256
etcd: {local: {extraEnvs: [{name: GOMAXPROCS, value: "1"}]}}
apiServer: {extraEnvs: [{name: GOMAXPROCS, value: "1"}]}
controllerManager: {extraEnvs: [{name: GOMAXPROCS, value: "1"}], extraArgs: [{name: leader-elect, value: "false"}]}
scheduler: {extraEnvs: [{name: GOMAXPROCS, value: "1"}], extraArgs: [{name: leader-elect, value: "false"}]}
`

var upArgs = []string{"slipway", "up", "--config", "/root/up.yaml", "--bundle", bundlePath, "--network", "flannel", "--schedulable"}

// TestUp makes a cluster of one prepared machine, with flannel, and runs a Pod. It reboots the machine in order, which comes back
// by itself. Then it takes everything away.
func TestUp(t *testing.T) {
	m, before := prepared(t, nil)
	m.boots()
	m.installs()
	m.becomesNode()
	m.reboots()
	m.comesBack()
	m.worksBehindFirewall()
	m.eventually("the end of the node", 2*podLimit, func() error { // a reset's limits are fixed, and the same command picks up where it stopped
		out, err := m.try("slipway", "down", "--host", "--force")
		m.Log(out)
		return err
	})
	m.reboots()
	m.isAsBefore(before, m.state())
}

// becomesNode makes a cluster of the machine, which is Ready then and runs a Pod.
func (m machine) becomesNode() {
	m.Helper()
	m.write("/root/up.yaml", upConfig)
	m.takes("sh", "-c", strings.Join(upArgs, " ")+"; up=$?; times; exit $up") // the second line has up's processor time
	m.kubectl("wait", "--for=condition=Ready", "--timeout=5m", "nodes", "--all")
	m.isNode()
	m.runsPod()
}

// kubectl repeats a command until it succeeds, as the API server of an emulated machine may be slow to answer.
func (m machine) kubectl(args ...string) {
	m.Helper()
	m.eventually("kubectl "+strings.Join(args, " "), podLimit, func() error {
		out, err := m.try(kubectl(args...)...)
		if err != nil {
			return errors.Errorf("%s%v", out, err)
		}
		return nil
	})
}

func kubectl(args ...string) []string {
	return slices.Concat([]string{"kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--request-timeout=5m"}, args)
}

// isNode checks what a node with a kernel of its own has, and one in a container hasn't.
func (m machine) isNode() {
	m.Helper()
	config := m.must("cat", "/var/lib/kubelet/config.yaml")
	for _, line := range []string{"cgroupDriver: systemd", "resolvConf: /run/systemd/resolve/resolv.conf"} {
		if !strings.Contains(config, line) {
			m.Errorf("the kubelet's configuration has no %q:\n%s", line, config)
		}
	}
	m.must("test", "-d", "/sys/fs/cgroup/kubepods.slice")
	if !m.hasModule("vxlan") {
		m.Error("flannel has loaded no vxlan")
	}
	if units := m.must("systemctl", "list-units", "--plain", "--no-legend", "--type=scope", "cri-containerd-*"); units == "" {
		m.Error("containers aren't in scopes of systemd")
	}
	if profiles := m.must("cat", "/sys/kernel/security/apparmor/profiles"); !strings.Contains(profiles, "cri-containerd.apparmor.d (enforce)") {
		m.Errorf("containerd's profile isn't enforced:\n%s", profiles)
	}
	m.eventually("CoreDNS to run with containerd's profile", podLimit, func() error {
		pid, err := m.try("pgrep", "--oldest", "coredns")
		if err != nil {
			return err
		}
		profile, err := m.try("cat", "/proc/"+strings.TrimSpace(pid)+"/attr/current")
		if err == nil && !strings.Contains(profile, "cri-containerd.apparmor.d (enforce)") {
			err = errors.Errorf("its profile is %s", profile)
		}
		return err
	})
}

const podManifest = `apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}}
spec:
  NODErestartPolicy: RESTARTS
  terminationGracePeriodSeconds: 0
  containers:
  - {name: probe, image: ` + nodes.ProbeImage + `, imagePullPolicy: Never, args: [ARGS]}
---
`

// pod is the manifest of a Pod on a node; the scheduler chooses one if it's empty.
func pod(name, node, restarts string, args ...string) string {
	if node != "" {
		node = "nodeName: " + node + "\n  "
	}
	return strings.NewReplacer("NAME", name, "NODE", node, "RESTARTS", restarts, "ARGS", `"`+strings.Join(args, `", "`)+`"`).Replace(podManifest)
}

const serviceManifest = `apiVersion: v1
kind: Service
metadata: {name: server}
spec: {selector: {app: server}, ports: [{port: 80, targetPort: 8080}]}
---
`

// runsPod runs a server, and a client that finds it by the name of its Service.
func (m machine) runsPod() {
	m.Helper()
	m.importsProbe()
	m.asks("client")
}

func (m machine) importsProbe() {
	m.Helper()
	m.must("ctr", "--namespace=k8s.io", "images", "import", probePath)
}

// asks runs a client of the server in a Pod with this name.
func (m machine) asks(client string) { m.Helper(); m.asksFrom("", client, "") }

// asksFrom runs the client on a node, and the server on another.
func (m machine) asksFrom(node, client, ofNode string) {
	m.Helper()
	started := time.Now()
	m.write("/root/pods.yaml", pod("server", ofNode, "Always", "serve", ":8080")+serviceManifest+
		pod(client, node, "OnFailure", "get", "http://server.default.svc.cluster.local./")) // with the dot, one question to DNS is enough
	m.kubectl("apply", "-f", "/root/pods.yaml")
	m.eventually("a Pod to reach a Service by its name", podLimit, func() error {
		out, err := m.try(kubectl("get", "pod", client, "-o", "jsonpath={.status.phase}")...)
		if err != nil || out != "Succeeded" {
			return errors.Errorf("the client is %q: %v", out, err)
		}
		return nil
	})
	m.Logf("a Pod reached a Service by its name in %s", since(started))
}

// awaitsReady waits until this machine's API server knows that nodes are Ready since their latest boot. Until a kubelet's first
// report, it has the report from the boot before.
func (m machine) awaitsReady(nodes ...machine) {
	m.Helper()
	for _, n := range nodes {
		want := strings.TrimSpace(n.must("cat", "/proc/sys/kernel/random/boot_id")) + " True"
		m.eventually(n.Name()+" to be Ready", podLimit, func() error {
			const report = `jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type=="Ready")].status}`
			out, err := m.try(kubectl("get", "node", n.Name(), "-o", report)...)
			if err != nil || out != want {
				return errors.Errorf("it reports %q and not %q: %v", out, want, err)
			}
			return nil
		})
	}
}

// comesBack waits until a node that has booted is Ready, and its Pods run and answer.
func (m machine) comesBack() {
	m.Helper()
	started := time.Now()
	m.awaitsReady(m)
	m.Logf("Ready %s after the boot", since(started))
	m.kubectl("delete", "pod", "client", "--ignore-not-found")
	m.asks("client-after-boot")
	m.hasSwap(false)
}
