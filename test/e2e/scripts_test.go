// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// answersPlaybooks runs Slipway through a link named kubeadm, and compares its standard output, which scripts read, with
// kubeadm's. The link comes from answersAsKubeadm.
func answersPlaybooks(m machine) {
	const link = "/root/kubeadm"
	shared := func(program string) (above []string, key string) {
		lines := strings.Split(strings.TrimSpace(m.must(program, "init", "phase", "--config", "/root/slipway.yaml", "upload-certs", "--upload-certs")), "\n")
		return lines[:len(lines)-1], lines[len(lines)-1]
	}
	got, key := shared(link)
	want, theirs := shared("kubeadm")
	if strings.Join(got, "\n") != strings.Join(want, "\n") || len(key) != len(theirs) {
		m.Errorf("upload-certs prints %q and a key of %d characters, kubeadm %q and one of %d", got, len(key), want, len(theirs))
	}
	token := func(program string) string {
		words := strings.Fields(m.must(program, "token", "create", "--print-join-command"))
		m.must(program, "token", "delete", words[4]) // kubeadm join HOST:PORT --token TOKEN
		words[4] = "TOKEN"
		return strings.Join(words, " ")
	}
	if got, want := token(link), token("kubeadm"); got != want {
		m.Errorf("token create prints %q, kubeadm %q", got, want)
	}
}

// bash runs a line of a playbook.
func (m machine) bash(line string) string {
	m.Helper()
	return m.must("bash", "-o", "pipefail", "-c", line)
}

// TestPlaybooks makes a cluster as kind does, from one file for all nodes, and lets other well-known tools work on it. The steps
// that need no cluster are rows of cmd/slipway's table.
func TestPlaybooks(t *testing.T) {
	tier.OnlyFull(t, "TestNode")
	cp := boot(t)
	cp2, w := cp.another("cp-2"), cp.another("worker-1")
	for _, m := range []machine{cp, cp2, w} {
		m.must("ln", "--symbolic", "/usr/local/bin/slipway", "/usr/local/sbin/kubeadm")
		m.hasKindConfig(cp)
	}
	if !cp.row("kind-init", machine.initsLikeKind) {
		return
	}
	cp.row("minikube-restart", machine.restartsLikeMinikube)
	if !cp.row("kind-join", func(m machine) { m.joinsLikeKind(machine{m.T, cp2.node}, machine{m.T, w.node}) }) {
		return
	}
	cp.row("kubespray-join", func(m machine) { m.joinsLikeKubespray(machine{m.T, w.node}) })
	cp.row("minikube-join", func(m machine) { m.joinsLikeMinikube(machine{m.T, w.node}) })
	cp.row("enix-join", func(m machine) { m.joinsLikeEnix(machine{m.T, w.node}) })
	cp.row("kubespray-renew", machine.renewsLikeKubespray)
	cp.row("kubespray-plane", func(m machine) { m.joinsPlaneLikeKubespray(machine{m.T, cp2.node}) })
}

// hasKindConfig writes kind's file, with the lab's settings for the kubelet and kube-proxy. Only a control plane's has the part of
// one.
func (m machine) hasKindConfig(first machine) {
	m.Helper()
	text := readFile(m.T, "../../testdata/playbooks/kind.yaml")
	if strings.HasPrefix(m.node.Name(), "worker") {
		text = strings.Replace(text, "controlPlane:\n  localAPIEndpoint: {advertiseAddress: \"192.0.2.11\", bindPort: 6443}\n", "", 1)
	}
	text = strings.ReplaceAll(text, `"192.0.2.11:6443"`, first.node.IP()+":6443")
	text = strings.NewReplacer("192.0.2.11", m.node.IP(), "cgroupDriver: systemd\ncgroupRoot: /kubelet", "cgroupDriver: cgroupfs\nfailCgroupV1: false", "maxPerCore: 0", "maxPerCore: 0, min: null").Replace(text)
	m.must("mkdir", "--parents", "/kind")
	m.write("/kind/kubeadm.conf", text)
}

// initsLikeKind: all output goes into a log, and nothing but the exit code counts.
func (m machine) initsLikeKind() {
	m.Helper()
	m.bash("kubeadm init --config=/kind/kubeadm.conf --skip-token-print --v=6 --skip-phases=preflight >/kind/init.log 2>&1")
	if log := m.must("cat", "/kind/init.log"); !strings.Contains(log, "initialized successfully") || strings.Contains(log, "0123456789abcdef") {
		m.Errorf("the log:\n%s", log)
	}
	m.bash("kubectl --kubeconfig=/etc/kubernetes/admin.conf taint nodes --all node-role.kubernetes.io/control-plane-")
	m.healthy(everything)
}

// joinsLikeKind joins a control plane, which gets the CAs beforehand, and a worker beside it.
func (m machine) joinsLikeKind(cp2, w machine) {
	m.Helper()
	cp2.must("mkdir", "--parents", "/etc/kubernetes/pki/etcd")
	for _, name := range []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key", "etcd/ca.crt", "etcd/ca.key"} {
		cp2.write("/etc/kubernetes/pki/"+name, m.must("cat", "/etc/kubernetes/pki/"+name))
	}
	const join = "kubeadm join --config /kind/kubeadm.conf --skip-phases=preflight --v=6 2>&1 | tee /kind/join.log | grep 'This node has joined the cluster'"
	cp2.bash(join)
	w.bash(join)
	m.ready(w.node.Name())
}

// restartsLikeMinikube repeats the phases on a running node, as minikube does at each start, with an address that has changed, say.
func (m machine) restartsLikeMinikube() {
	m.Helper()
	m.must("rm", "/etc/kubernetes/scheduler.conf", "/etc/kubernetes/admin.conf") // stale, as minikube finds
	for _, phase := range []string{"certs all", "kubeconfig all", "kubelet-start", "control-plane all", "etcd local"} {
		m.bash("env PATH=/var/lib/minikube/binaries:$PATH kubeadm init phase " + phase + " --config /kind/kubeadm.conf")
	}
	m.healthy(everything)
	m.bash("kubeadm init phase addon all --config /kind/kubeadm.conf")
	m.healthy(everything)
}

// joinsLikeKubespray joins the worker again, with a discovery file, and lets its kubelet ask a load balancer.
func (m machine) joinsLikeKubespray(w machine) {
	m.Helper()
	m.forgets(w, "kubeadm reset -f --cert-dir /etc/kubernetes/pki")
	token := strings.TrimSpace(m.bash("kubeadm --kubeconfig /etc/kubernetes/admin.conf token create"))
	w.must("mkdir", "--parents", "/etc/kubernetes/manifests") // Kubespray puts the load balancer's Pod there
	w.write("/etc/kubernetes/cluster-info-discovery-kubeconfig.yaml", m.bash("kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-public get cm cluster-info -o jsonpath='{.data.kubeconfig}'"))
	w.write("/etc/kubernetes/kubeadm-client.conf", `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
caCertPath: /etc/kubernetes/pki/ca.crt
discovery: {file: {kubeConfigPath: /etc/kubernetes/cluster-info-discovery-kubeconfig.yaml}, tlsBootstrapToken: `+token+`}
timeouts: {discovery: 60s}
nodeRegistration: {name: '`+w.node.Name()+`', criSocket: "unix:///var/run/containerd/containerd.sock"}
`)
	w.bash("kubeadm config validate --config /etc/kubernetes/kubeadm-client.conf")
	w.bash("timeout -k 240s 240s kubeadm join --config /etc/kubernetes/kubeadm-client.conf " +
		"--ignore-preflight-errors=DirAvailable--etc-kubernetes-manifests," + nodes.IgnorePreflightErrors + " --skip-phases=")
	w.bash("sed -i 's#^    server: https.*#    server: https://" + m.node.IP() + ":6443#' /etc/kubernetes/kubelet.conf; grep '^    server: https://" + m.node.IP() + "' /etc/kubernetes/kubelet.conf && systemctl restart kubelet")
	m.ready(w.node.Name())
}

// joinsLikeMinikube resets, and completes the printed command with flags.
func (m machine) joinsLikeMinikube(w machine) {
	m.Helper()
	join := strings.Replace(m.bash("kubeadm token create --print-join-command --ttl=0"), "kubeadm", "env PATH=/var/lib/minikube/binaries:$PATH kubeadm", 1)
	m.forgets(w, "kubeadm reset --force")
	w.bash(strings.TrimSpace(join) + " --ignore-preflight-errors=all --cri-socket unix:///run/containerd/containerd.sock --node-name=" + w.node.Name())
	w.bash("systemctl daemon-reload && systemctl enable kubelet && systemctl start kubelet")
	m.ready(w.node.Name())
}

// joinsLikeEnix hands the last configuration, which outlives a reset, to standard input. geerlingguy's role joins the node again.
func (m machine) joinsLikeEnix(w machine) {
	m.Helper()
	const ignored = " --ignore-preflight-errors=" + nodes.IgnorePreflightErrors
	m.forgets(w, "kubeadm reset -f")
	w.bash("kubeadm join --config=/dev/stdin" + ignored + " </etc/kubernetes/kubeadm-client.conf")
	m.ready(w.node.Name())
	w.bash(strings.TrimSpace(m.bash("kubeadm token create --print-join-command")) + ignored)
}

// renewsLikeKubespray renews one certificate after another, and restarts the static Pods by itself.
func (m machine) renewsLikeKubespray() {
	m.Helper()
	m.bash("for name in etcd-server etcd-peer etcd-healthcheck-client apiserver-etcd-client front-proxy-client apiserver apiserver-kubelet-client " +
		"controller-manager.conf scheduler.conf admin.conf; do kubeadm certs renew $name || exit; done")
	m.bash("cd /etc/kubernetes; mv manifests/*.yaml .; while printf '' 2>/dev/null >/dev/tcp/127.0.0.1/6443; do sleep 1; done; " +
		"mv *.yaml manifests; until printf '' 2>/dev/null >/dev/tcp/127.0.0.1/6443; do sleep 1; done")
	m.ready(m.node.Name())
	m.bash("kubeadm certs check-expiration | grep -c ' 36[45]d '")
}

// joinsPlaneLikeKubespray resets the second control plane, with its certificates' directory, and joins it with uploaded ones.
func (m machine) joinsPlaneLikeKubespray(cp2 machine) {
	m.Helper()
	m.forgets(cp2, "if [ -f /etc/kubernetes/manifests/kube-apiserver.yaml ]; then kubeadm reset -f --cert-dir /etc/kubernetes/pki; fi")
	key := strings.TrimSpace(m.bash("kubeadm init phase --config /kind/kubeadm.conf upload-certs --upload-certs | tail -n 1"))
	token := strings.TrimSpace(m.bash("kubeadm token create"))
	cp2.must("mkdir", "--parents", "/etc/kubernetes")
	cp2.write("/etc/kubernetes/kubeadm-controlplane.yaml", strings.NewReplacer("TOKEN", token, "KEY", key, "192.0.2.11:6443", m.node.IP()+":6443", "192.0.2.11", cp2.node.IP(),
		"name: ''", "name: cp-2").Replace(readFile(m.T, "../../testdata/playbooks/kubespray-join.yaml")))
	cp2.bash("kubeadm config validate --config /etc/kubernetes/kubeadm-controlplane.yaml")
	cp2.bash("kubeadm join --config /etc/kubernetes/kubeadm-controlplane.yaml --ignore-preflight-errors=" + nodes.IgnorePreflightErrors + " --skip-phases=")
	cp2.bash("test -f /etc/kubernetes/admin.conf -a -f /var/lib/kubelet/config.yaml")
	m.ready("cp-2")
}

// podNetworkWithFaults passes the checks that need no API. The DaemonSet has no selector for the labels on line 11.
const podNetworkWithFaults = `apiVersion: v1
kind: Namespace
metadata: {name: pod-network}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: pod-network}

spec:
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: example.org/agent}]}
---
apiVersion: policy/v1beta1
kind: PodSecurityPolicy
metadata: {name: agent}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: agent, namespace: pod-network}
spec: {podSelecto: {}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fine, namespace: pod-network}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.net.example}
spec:
  group: net.example
  scope: Cluster
  names: {kind: Pool, plural: pools}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: net.example/v1
kind: Pool
metadata: {name: all}
`

// asksOfPodNetwork checks that a real API finds a Pod network's faults before anything of it is created.
func asksOfPodNetwork(m machine) {
	m.write("/root/net.yaml", podNetworkWithFaults)
	out, err := m.try("slipway", "init", "phase", "addon", "network", "--config", "/root/slipway.yaml", "--network", "/root/net.yaml")
	for _, want := range []string{
		"/root/net.yaml:11: DaemonSet pod-network/agent: spec.template.metadata.labels: ", "/root/net.yaml:14: PodSecurityPolicy agent: apiVersion", "/root/net.yaml:18: NetworkPolicy pod-network/agent: ", `"spec.podSelecto"`,
		"takes Pool all: ",
	} {
		if err == nil || !strings.Contains(out, want) {
			m.Errorf("no %q (%v) in:\n%s", want, err, out)
		}
	}
	for _, never := range []string{"ConfigMap pod-network/fine", "CustomResourceDefinition pools"} {
		if strings.Contains(out, never) {
			m.Errorf("a fault of %s in:\n%s", never, out)
		}
	}
	if left := m.kubectl("get", "namespace", "pod-network", "--ignore-not-found"); left != "" {
		m.Errorf("something was created:\n%s", left)
	}
}

// TestPackageOnNode installs, upgrades and removes the package on a running node, without touching the node, and boots it without
// the package. The package's messages about that must be true, and reinstalling it must be enough.
func TestPackageOnNode(t *testing.T) {
	tier.OnlyFull(t, "TestUp")
	m := boot(t)
	m.init(document("", podSubnet))
	m.ready("cp-1")
	m.podsRun(everything.pods)
	deb := slipwayPackage(t)
	before := m.nodeState()
	untouched := func(what string) {
		t.Helper()
		if diff := cmp.Diff(before, m.nodeState()); diff != "" {
			t.Errorf("%s the package changed the node (-before +after):\n%s", what, diff)
		}
	}
	m.installsPackage(deb)
	untouched("installing")
	if out := m.installsPackage(deb); strings.Contains(out, "next boot") {
		t.Errorf("an upgrade speaks of a removal:\n%s", out)
	}
	untouched("upgrading")
	if out, err := m.try("dpkg", "--remove", "slipway"); err != nil || !strings.Contains(out, "next boot") {
		t.Errorf("a removal does not say what it means: %v\n%s", err, out)
	}
	untouched("removing")

	if err := m.node.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw", "/readyz", "--request-timeout=5s"); err == nil {
		t.Errorf("the control plane is there without the drop-in: %s", out)
	}
	m.installsPackage(deb)
	m.must("systemctl", "restart", "kubelet")
	m.eventually("the API", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw", "/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	m.healthy(everything)
}

// nodeState lists the things a package mustn't touch: the running kubelet, the cluster's files, and the containers.
func (m machine) nodeState() string {
	m.Helper()
	return m.must("systemctl", "show", "kubelet", "-p", "MainPID", "-p", "ActiveEnterTimestamp") +
		m.must("find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env", "-printf", `%p %m %T@\n`) +
		m.must("sh", "-c", "ctr --namespace=k8s.io tasks ls | sort")
}
