// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/clients"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// newAddress is another address of a lab's node.
func (m machine) newAddress() string { return strings.Replace(m.node.IP(), ".99.", ".99.2", 1) }

// TestMove gives the only control plane of a cluster another address, with the former one gone.
func TestMove(t *testing.T) {
	tier.OnlyFull(t, "phases/address.TestMove")
	m := boot(t)
	m.init(document("", podSubnet))
	m.healthy(everything)
	m.changesAddress(m)
	out, err := m.try("slipway", "diagnose")
	if err == nil {
		t.Error("diagnose finds nothing wrong")
	}
	fact.In(t, out, "[address-changed]", m.node.IP(), m.newAddress(), "`slipway reconfigure node --advertise-address ADDRESS`")

	stop := m.watchAPI(m.newAddress() + ":6443")
	m.runs("slipway", "reconfigure", []string{"node", "--advertise-address", m.newAddress()})
	away := stop()
	t.Logf("the API was away for %.1fs", away.Seconds())
	m.hasMoved(m)
	m.healthy(everything)
	before := m.must("find", "/etc/kubernetes", "/var/lib/kubelet/kubeadm-flags.env", "-type", "f", "-printf", "%p %T@\n")
	m.runs("slipway", "reconfigure", []string{"node", "--advertise-address", m.newAddress()})
	if after := m.must("find", "/etc/kubernetes", "/var/lib/kubelet/kubeadm-flags.env", "-type", "f", "-printf", "%p %T@\n"); after != before {
		t.Errorf("the second run wrote files:\n%s\n%s", before, after)
	}
}

// TestMoveOneOfThree changes the configuration of three control planes 20 times, and moves one of them, while clients write. No write
// fails.
func TestMoveOneOfThree(t *testing.T) {
	tier.OnlyFull(t, "phases/address.TestMove")
	cp1 := boot(t)
	cp2, cp3 := cp1.another("cp-2"), cp1.another("cp-3")
	planes := []machine{cp1, cp2, cp3}
	for _, m := range planes {
		m.knowsEndpoint(planes)
	}
	cp1.init(document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"), "--upload-certs")
	_, plane := cp1.joinCommands()
	cp2.runs("slipway", "join", plane)
	cp3.runs("slipway", "join", plane)
	for _, m := range planes {
		cp1.ready(m.node.Name())
	}
	cp1.hasVoters(planes...)
	cp1.row("edits", func(m machine) { m.takesEdits(planes) })
	w := cp1.startWriters("cp-1", planes)
	// Until cp-3 has moved, the Service also leads to its former address.
	w.names = slices.DeleteFunc(w.names, func(name string) bool { return name == "service" })
	cp3.changesAddress(planes...)
	w.succeedDuring(cp3, func() {
		cp3.runs("slipway", "reconfigure", []string{"node", "--advertise-address", cp3.newAddress()})
	})
	cp3.hasMoved(cp1)
	cp1.hasVoters(planes...)
	cp1.ready("cp-3")
}

// serviceURL is the API's address in the cluster's network, which kube-proxy leads to one of the API servers.
const serviceURL = "https://10.96.0.1"

// rounds of edits are made on each control plane in turn.
const rounds = 5

// edits are the changes of a round: of the API server, etcd, the other components, and the kubelets. The last round takes them back.
func edits(round int) []string {
	const cluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
	flag := func(name, value string) string {
		if round == rounds-1 {
			return "{extraArgs: null}"
		}
		return fmt.Sprintf("{extraArgs: [{name: %s, value: %q}]}", name, value)
	}
	maxPods := fmt.Sprint(90 + round)
	if round == rounds-1 {
		maxPods = "null"
	}
	verbosity := flag("v", fmt.Sprint(1+round%2))
	return []string{
		cluster + "apiServer: " + flag("event-ttl", fmt.Sprintf("%dh0m0s", 2+round)) + "\n",
		cluster + "etcd: {local: " + flag("log-level", []string{"warn", "error"}[round%2]) + "}\n",
		cluster + "controllerManager: " + verbosity + "\nscheduler: " + verbosity + "\n",
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: " + maxPods + "\n",
	}
}

// takesEdits makes 20 changes of the configuration, each on trial, while clients write through the Service every 50 ms. In each round,
// one control plane gets four changes, and then the others follow. No write fails or is lost, and in the end all files are as before.
func (m machine) takesEdits(planes []machine) {
	m.Helper()
	var before []string
	for _, p := range planes {
		before = append(before, machine{m.T, p.node}.configured())
	}
	writing, err := clients.Start(m.Context(), m.node, clients.Order{
		Count: 2, URL: serviceURL, Kubeconfig: "/etc/kubernetes/admin.conf", Interval: 50 * time.Millisecond,
	})
	if err != nil {
		m.Fatal(err)
	}
	started := time.Now()
	for round := range rounds {
		first := machine{m.T, planes[round%len(planes)].node}
		for _, edit := range edits(round) {
			first.runs("slipway", "reconfigure", first.reconfigureWith(edit)[2:])
		}
		for _, p := range planes {
			if p.node != first.node {
				machine{m.T, p.node}.runs("slipway", "reconfigure", []string{"node"})
			}
		}
		if m.Failed() {
			break
		}
	}
	m.lostNoWrite(writing, time.Since(started))
	for i, p := range planes {
		p.T = m.T
		if now := p.configured(); now != before[i] && !m.Failed() {
			m.Errorf("%s is not as before (-before +after):\n%s", p.node.Name(), cmp.Diff(before[i], now))
		}
		m.ready(p.node.Name())
		p.must("rm", "-r", "/etc/kubernetes/tmp") // it has the former address
	}
}

// configured is the text of a control plane's files that a change of the configuration writes.
func (m machine) configured() string {
	m.Helper()
	return m.must("sh", "-c", "cat /etc/kubernetes/manifests/*.yaml /var/lib/kubelet/config.yaml")
}

// lostNoWrite ends the clients. A client may send a write once more after its connection broke, as any client does, but no more.
func (m machine) lostNoWrite(writing *clients.Running, took time.Duration) {
	m.Helper()
	r, err := writing.Stop()
	if err != nil {
		m.Fatal(err)
	}
	m.Logf("in %s: %d writes confirmed, %d repeated, %d answers to wait, %d failed, %d lost; the slowest took %s, the longest gap was %s",
		took.Round(time.Second), r.Confirmed, r.Repeated, r.Delayed, len(r.Failed), len(r.Lost), r.Slowest, r.Gap)
	if least := int(took.Seconds()); r.Confirmed < least { // of 40 a second
		m.Errorf("only %d writes in %s", r.Confirmed, took)
	}
	if len(r.Lost) > 0 {
		m.Errorf("lost, though confirmed: %q", r.Lost)
	}
	for _, failure := range r.Failed {
		if lostInTransfer(failure) {
			m.Logf("while another member of etcd became the leader: %s", failure)
			continue
		}
		m.Error(failure)
	}
}

// TestEndpoint gives a cluster another controlPlaneEndpoint. A worker follows, and the former name works until it's taken out.
func TestEndpoint(t *testing.T) {
	tier.OnlyFull(t, "phases/reconfigure.TestEndpoint")
	const next = "next.slipway.test"
	m := boot(t)
	w := m.another("worker-1")
	both := []machine{m, w}
	for _, n := range both {
		n.knowsEndpoint(both[:1])
	}
	m.init(document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"))
	worker, _ := m.joinCommands()
	w.runs("slipway", "join", worker)
	m.ready("worker-1")

	const head = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
	change := m.reconfigureWith(head + "controlPlaneEndpoint: " + next + ":6443\n")
	before := m.everyFile()
	out, err := m.try(change...)
	if err == nil || m.everyFile() != before {
		t.Errorf("an endpoint that leads nowhere: %v\n%s", err, out)
	}
	fact.In(t, out, "NextEndpoint", next+":6443")
	for _, n := range both {
		n.write("/etc/hosts", n.must("cat", "/etc/hosts")+m.node.IP()+" "+next+"\n")
		n.must("chmod", "0644", "/etc/hosts")
	}
	fact.In(t, m.must(append(slices.Clone(change), "--diff")...), "/etc/kubernetes/admin.conf", "cluster-info", next+":6443")
	fact.In(t, m.said(change...), "`slipway reconfigure node`", "worker-1")
	m.leadsClients(next)
	m.answersAt(sharedEndpoint, true)
	m.ready("worker-1")

	w.must("slipway", "reconfigure", "node")
	fact.In(t, w.must("cat", "/etc/kubernetes/kubelet.conf"), "https://"+next+":6443")
	files := w.everyFile()
	w.must("slipway", "reconfigure", "node")
	if now := w.everyFile(); now != files {
		t.Errorf("the second time, files have changed:\n%s\nbefore:\n%s", now, files)
	}
	m.must(m.reconfigureWith(head + "apiServer: {certSANs: null}\n")...)
	m.answersAt(sharedEndpoint, false)
	m.answersAt(next, true)
	report := func() string {
		return m.kubectl("-n", "kube-node-lease", "get", "lease", "worker-1", "-o", "jsonpath={.spec.renewTime}")
	}
	w.must("systemctl", "restart", "kubelet")
	last := report()
	m.eventually("a report of the worker", readyLimit, func() error {
		if report() == last {
			return errors.New("none since " + last)
		}
		return nil
	})
	m.kubectl("-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=120s")
	worker, _ = m.joinCommands()
	fact.In(t, strings.Join(worker, " "), next+":6443")
}

// leadsClients looks for an endpoint in the files and ConfigMaps of its clients.
func (m machine) leadsClients(endpoint string) {
	m.Helper()
	server := "https://" + endpoint + ":6443"
	for _, name := range []string{"admin.conf", "super-admin.conf"} {
		fact.In(m, m.must("cat", "/etc/kubernetes/"+name), server)
	}
	for _, name := range []string{"kubelet.conf", "controller-manager.conf", "scheduler.conf"} {
		fact.In(m, m.must("cat", "/etc/kubernetes/"+name), "https://"+m.node.IP()+":6443")
	}
	fact.In(m, m.kubectl("-n", "kube-public", "get", "configmap", "cluster-info", "-o", "yaml"), server)
	fact.In(m, m.kubectl("-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "yaml"), server)
	fact.In(m, m.storedText("kubeadm-config", "ClusterConfiguration"), "controlPlaneEndpoint: "+endpoint+":6443")
}

// answersAt asks the API under a name, once it has read its certificate again.
func (m machine) answersAt(name string, should bool) {
	m.Helper()
	m.eventually("the API's answer at "+name, readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://"+name+":6443", "get", "--raw", "/readyz")
		if (err == nil) != should {
			return fmt.Errorf("it answers: %t\n%s", err == nil, out)
		}
		return nil
	})
}

// changesAddress takes a node's address away after it has got another one. The nodes in all know it by name.
func (m machine) changesAddress(all ...machine) {
	m.Helper()
	for _, line := range []string{
		"sysctl -q net.ipv4.conf.host0.promote_secondaries=1",
		"ip addr add " + m.newAddress() + "/24 dev host0",
		"ip addr del " + m.node.IP() + "/24 dev host0",
		"ip route replace default via 192.168.99.1",
	} {
		m.must(strings.Fields(line)...)
	}
	for _, other := range all {
		other.must("sed", "-i", "s/"+m.node.IP()+" /"+m.newAddress()+" /; s/"+m.node.IP()+"\\t/"+m.newAddress()+"\\t/", "/etc/hosts")
	}
}

// hasMoved looks for the former address everywhere. from is a control plane to ask.
func (m machine) hasMoved(from machine) {
	m.Helper()
	former := m.node.IP()
	m.eventually("the former address to be in no file", readyLimit, func() error {
		out, err := m.try("grep", "-rlIwF", "--", former, "/etc/kubernetes", "/var/lib/kubelet")
		if err == nil {
			return fmt.Errorf("it is in %s", strings.Join(strings.Fields(out), ", "))
		}
		return nil
	})
	for _, name := range []string{"apiserver", "etcd/server", "etcd/peer"} {
		cert := m.certificate("/etc/kubernetes/pki/" + name + ".crt")
		if cert.VerifyHostname(m.newAddress()) != nil || cert.VerifyHostname(former) == nil {
			m.Errorf("%s.crt is for %v", name, cert.IPAddresses)
		}
	}
	members, err := m.etcdctl("member", "list")
	if err != nil || strings.Contains(members, former+":") || !strings.Contains(members, m.newAddress()+":2380") {
		m.Errorf("etcd's members: %v\n%s", err, members)
	}
	for _, args := range [][]string{
		{"get", "endpointslices", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[0]}"},
		{"get", "node", m.node.Name(), "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`},
	} {
		from.eventually(strings.Join(args[:3], " "), readyLimit, func() error {
			out, err := from.try(append([]string{"kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, args...)...)
			if words := strings.Fields(out); err != nil || slices.Contains(words, former) || !slices.Contains(words, m.newAddress()) {
				return fmt.Errorf("%s: %w", out, err)
			}
			return nil
		})
	}
	for _, args := range [][]string{{"-n", "kube-public", "get", "configmap", "cluster-info"}, {"-n", "kube-system", "get", "configmap", "kubeadm-config", "kube-proxy"}} {
		if out := from.kubectl(append(args, "-o", "yaml")...); strings.Contains(out, former+":") {
			m.Errorf("the former address is in\n%s", out)
		}
	}
}

// watchAPI asks an API server every 50 ms whether it's ready. stop returns the longest time without a good answer.
func (m machine) watchAPI(address string) (stop func() time.Duration) {
	m.Helper()
	lab := openLab(m.T, m.node.LabName(), "")
	ctx, cancel := context.WithCancel(m.Context())
	longest := make(chan time.Duration, 1)
	go func() {
		good, most := time.Now(), time.Duration(0)
		for ctx.Err() == nil {
			asked := time.Now()
			if err := lab.InNetwork(func() error { return askReady(address) }); err == nil {
				good, most = time.Now(), max(most, asked.Sub(good))
			}
			time.Sleep(50 * time.Millisecond)
		}
		longest <- max(most, time.Since(good))
	}()
	return func() time.Duration {
		m.eventually("the API", readyLimit, func() error { return lab.InNetwork(func() error { return askReady(address) }) })
		cancel()
		return <-longest
	}
}

// askReady stays on its goroutine, which is in the lab's network.
func askReady(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // The certificate isn't valid for the address yet.
	if _, err := fmt.Fprintf(client, "GET /readyz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}
