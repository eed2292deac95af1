// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// upArgs make a node from a bare machine.
func upArgs(more ...string) []string {
	return slices.Concat([]string{"slipway", "up", "--bundle", bundlePath, "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors}, more)
}

// firstArgs make it the first node of a cluster with a network.
var firstArgs = upArgs("--config", "/root/up.yaml", "--network", "flannel", "--schedulable")

// TestUp makes a cluster of machines with only an init system, in a network without a way out, with one command on each. The
// worker has the package, and was prepared before. Then the test takes everything away, and the worker gets an operator's
// container runtime. In the full tier there's a second control plane.
func TestUp(t *testing.T) {
	m := bare(t)
	w := m.anotherBare("worker-1")
	all := []machine{m, w}
	if tier.Full() {
		all = append(all, m.anotherBare("cp-2"))
	}
	before := map[string][]string{}
	for _, n := range all {
		if n == w {
			n.installsPackage(slipwayPackage(t))
		} else {
			n.hasProgram()
		}
		before[n.node.Name()] = n.everyState()
	}
	m.write("/root/up.yaml", document("", podSubnet+"\ncontrolPlaneEndpoint: 192.168.99.11:6443"))
	first := append(slices.Clone(firstArgs), "--upload-certs")
	m.upPlanIsTrue(before["cp-1"], first)
	started := time.Now()
	r := m.tells(first[1:]...) // one result for all parts
	m.Logf("up on cp-1 took %.1fs", time.Since(started).Seconds())
	if r.Node != "cp-1" || r.Endpoint != "192.168.99.11:6443" || r.Token == "" || len(r.CACertHashes) != 1 {
		t.Errorf("the result is %+v", r)
	}
	w.prepares() // so up finds the preparation done
	w.secondPrepareChangesNothing()
	worker, plane := m.joinCommands()
	joined := map[string][]string{"cp-2": upArgs(plane...), "worker-1": upArgs(worker...)}
	var joins []func()
	for _, n := range all[1:] {
		joins = append(joins, func() { n.goesUp(joined[n.node.Name()]...) })
	}
	sideBySide(joins...)
	for _, n := range all {
		m.ready(n.node.Name())
	}
	m.reachAcross(all)
	m.secondUpChangesNothing(first)
	for _, n := range all[1:] {
		n.secondUpChangesNothing(joined[n.node.Name()])
	}
	if tier.Full() {
		m.prints("etcd-cp-1 etcd-cp-2", "--namespace=kube-system", "get", "pods", "-l", "component=etcd", "-o", "jsonpath={.items[*].metadata.name}")
	}
	for _, n := range slices.Backward(all) {
		n.must("slipway", "down", "--host", "--force")
		n.isBareAgain(before[n.node.Name()])
	}
	w.operatorsRuntimeSurvives()
}

// TestUpDualStack is TestUp with addresses of both families and rules of nftables.
func TestUpDualStack(t *testing.T) {
	tier.OnlyFull(t, "TestUp")
	m := bare(t)
	w := m.anotherBare("worker-1")
	all := []machine{m, w}
	before := map[string][]string{}
	for _, n := range all {
		n.hasProgram()
		before[n.node.Name()] = n.everyState()
	}
	config := document("", `networking: {podSubnet: "10.244.0.0/16,`+podsIPv6+`", serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}`)
	m.write("/root/up.yaml", strings.Replace(config, "kind: KubeProxyConfiguration\n", "kind: KubeProxyConfiguration\nmode: nftables\n", 1))
	m.goesUp(firstArgs...)
	worker, _ := m.joinCommands()
	w.goesUp(upArgs(worker...)...)
	m.reachAcross(all)
	if tables := m.must("nft", "list", "tables"); !strings.Contains(tables, "flannel-ipv6") || !strings.Contains(tables, "kube-proxy") {
		t.Errorf("the rules are not in nftables:\n%s", tables)
	}
	for _, n := range []machine{w, m} {
		n.must("slipway", "down", "--host", "--force")
		n.isBareAgain(before[n.node.Name()])
	}
}

// upInstants are 10 instants spread over up, in order. Init's lines are those on a host on which init has begun before.
var upInstants = []instant{
	{"[prepare/kernel] Set net.ipv4.ip_forward", 0},
	{"[prepare/programs] Verifying", 400 * time.Millisecond},
	{"[prepare/container-runtime] Starting containerd.service", 0},
	{"[prepare/images] Importing", 300 * time.Millisecond},
	{"[init/preflight] Checking", 0},
	{`[init/certs] … "ca"`, 0},
	{"[init/kubelet-start] Starting", 0},
	{"[init/wait-control-plane] Waiting", time.Second},
	{"[init/addon] … flannel", 20 * time.Millisecond},
	{"[wait-node] Waiting", 200 * time.Millisecond},
}

// TestUpKilled runs one command again and again, and kills it each time at a later instant; the last run finishes.
func TestUpKilled(t *testing.T) {
	tier.OnlyFull(t, "TestCrashInit")
	m := bare(t)
	m.hasProgram()
	before := m.everyState()
	m.write("/root/up.yaml", document("", podSubnet))
	late := 0
	for _, at := range upInstants {
		if !m.killedAt(at, nothingMore, firstArgs...) {
			late++
			m.Logf("it ended before %s", at)
		}
	}
	if late > 3 {
		t.Errorf("%d of %d runs finished before they were killed", late, len(upInstants))
	}
	m.goesUp(firstArgs...)
	m.isWhole()
	if left := m.must("find", "/usr/local", "/opt", "/etc", "-name", ".*.slipway-*"); left != "" {
		t.Errorf("the killed runs left:\n%s", left)
	}
	m.secondUpChangesNothing(firstArgs)
	m.must("slipway", "down", "--host", "--force")
	m.isBareAgain(before)
}

func (m machine) goesUp(args ...string) {
	m.Helper()
	started := time.Now()
	if out, err := m.try(args...); err != nil {
		m.Fatalf("%q on %s: %v\n%s", args, m.node.Name(), err, out)
	}
	m.Logf("up on %s took %.1fs", m.node.Name(), time.Since(started).Seconds())
}

// upPlanIsTrue makes a plan, which changes nothing, and looks for steps of a run.
func (m machine) upPlanIsTrue(before, args []string) {
	m.Helper()
	plan := m.must(append(slices.Clone(args), "--dry-run")...)
	for _, step := range []string{
		"write /usr/local/bin/kubelet 0755", "start unit containerd.service", "write /etc/kubernetes/manifests/kube-apiserver.yaml 0600",
		"ensure DaemonSet kube-flannel/kube-flannel-ds",
	} {
		if !strings.Contains(plan, step) {
			m.Errorf("the plan lacks %q:\n%s", step, plan)
		}
	}
	if after := m.everyState(); !slices.Equal(before, after) {
		m.Errorf("a plan changed something:\n%s\nwas\n%s", after, before)
	}
}

// secondUpChangesNothing compares the times and modes of all of up's files.
func (m machine) secondUpChangesNothing(args []string) {
	m.Helper()
	files := func() string {
		return m.must("find", "/etc", "/usr/local", "/opt/cni", "/var/lib/slipway", "/var/lib/kubelet/config.yaml", "-printf", `%p %M %U %T@\n`)
	}
	before := files()
	m.goesUp(args...)
	if after := files(); after != before {
		m.Errorf("a second run on %s changed files, before:\n%s\nafter:\n%s", m.node.Name(), before, after)
	}
}

// reachAcross runs a server on each machine, and clients on each that ask all servers: by their Pods' addresses, one of each IP
// family of the cluster, and by their Services' names.
func (m machine) reachAcross(all []machine) {
	m.Helper()
	for _, n := range all {
		n.must("ctr", "--namespace=k8s.io", "images", "import", "/root/probe.tar")
		m.write("/root/server.yaml", strings.NewReplacer("IMAGE", nodes.ProbeImage, "NODE", n.node.Name()).Replace(serverManifest))
		m.create("/root/server.yaml")
	}
	var urls []string
	for _, n := range all {
		urls = append(urls, "http://server-"+n.node.Name()+".default.svc.cluster.local/")
		for _, ip := range m.podAddresses("server-" + n.node.Name()) {
			urls = append(urls, "http://"+netip.AddrPortFrom(ip, 8080).String()+"/")
		}
	}
	asked := 0
	for _, n := range all {
		for _, url := range urls {
			asked++
			m.write("/root/client.yaml", strings.NewReplacer("IMAGE", nodes.ProbeImage, "NODE", n.node.Name(), "URL", url, "NUMBER", fmt.Sprint(asked)).
				Replace(clientManifest))
			m.create("/root/client.yaml")
		}
	}
	m.eventually("all clients to reach all servers", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "pods", "-l", "app=client", "--field-selector=status.phase!=Succeeded",
			"-o", `jsonpath={range .items[*]}{.spec.nodeName} {.spec.containers[0].args} {.status.phase}{"\n"}{end}`)
		if err != nil || out != "" {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
	m.kubectl("delete", "pods,services", "-l", "app in (client,server)", "--force", "--grace-period=0")
	m.Logf("%d requests between %d machines", asked, len(all))
}

// podAddresses returns the addresses of a Pod once it's Ready.
func (m machine) podAddresses(name string) (addresses []netip.Addr) {
	m.Helper()
	m.eventually(name+" to have an address", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "pod", name, "-o", "jsonpath={.status.podIPs[*].ip}")
		addresses = nil
		for _, text := range strings.Fields(out) {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return fmt.Errorf("%s: %w", out, err)
			}
			addresses = append(addresses, a)
		}
		if err != nil || len(addresses) == 0 {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	return addresses
}

const serverManifest = `apiVersion: v1
kind: Pod
metadata: {name: server-NODE, labels: {app: server, on: NODE}}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers:
  - {name: server, image: IMAGE, imagePullPolicy: Never, args: [serve, ":8080"]}
---
apiVersion: v1
kind: Service
metadata: {name: server-NODE, labels: {app: server}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {on: NODE}
  ports: [{port: 80, targetPort: 8080}]
`

const clientManifest = `apiVersion: v1
kind: Pod
metadata: {name: client-NUMBER, labels: {app: client}}
spec:
  nodeName: NODE
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers:
  - {name: client, image: IMAGE, imagePullPolicy: Never, args: [get, "URL"]}
`
