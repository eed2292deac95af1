// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// patchesEtcd upgrades a control plane to its current version, with a patch that changes only etcd. The API server stops before
// etcd, and comes back with it: otherwise its requests hang, and the kubelet with them, for minutes.
func (m machine) patchesEtcd() {
	m.Helper()
	m.write("/root/kept/etcd+json.json", `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--log-level=warn"}]`)
	before := m.containerIDs()
	since := m.now()
	m.apply("--patches=/root/kept") // it also has keepsEncryption's patches
	after := m.containerIDs()
	journal := m.must("journalctl", "--unit=containerd", "--output=cat", "--since=@"+since)
	stopped := map[string]int{}
	for _, component := range []string{"kube-apiserver", "etcd"} {
		if before[component] == "" || before[component] == after[component] {
			m.Errorf("%s was not restarted: %s, then %s", component, before[component], after[component])
		}
		stopped[component] = strings.Index(journal, `StopContainer for \"`+before[component])
		if stopped[component] < 0 {
			m.Errorf("nobody has stopped %s %s:\n%s", component, before[component], journal)
		}
	}
	if stopped["kube-apiserver"] > stopped["etcd"] {
		m.Errorf("etcd was stopped before the API server:\n%s", journal)
	}
	if command := m.must("cat", "/etc/kubernetes/manifests/etcd.yaml"); !strings.Contains(command, "--log-level=warn") {
		m.Errorf("the patch is not there:\n%s", command)
	}
	m.ready(m.node.Name())
}

// now returns the node's time, in seconds since 1970.
func (m machine) now() string {
	m.Helper()
	return strings.TrimSpace(m.must("date", "+%s"))
}

// containerIDs returns the IDs of the control-plane components' running containers.
func (m machine) containerIDs() map[string]string {
	m.Helper()
	ids := map[string]string{}
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		for id := range strings.Lines(m.must("ctr", "--namespace=k8s.io", "containers", "ls", "--quiet", `labels."io.kubernetes.container.name"==`+component)) {
			if id = strings.TrimSpace(id); m.hasTask(id) {
				ids[component] = id
			}
		}
	}
	return ids
}

func (m machine) hasTask(id string) bool {
	m.Helper()
	return strings.Contains(m.must("ctr", "--namespace=k8s.io", "tasks", "ls"), id)
}

const leaseHolder = "jsonpath={.spec.holderIdentity}"

// holdsLease makes a control plane the holder of the Lease, or nobody.
func (m machine) holdsLease(holder string) {
	m.Helper()
	m.kubectl("-n", "kube-system", "patch", "lease", "slipway-upgrade", "--type=merge", "-p", fmt.Sprintf(
		`{"spec": {"holderIdentity": %q, "renewTime": %q}}`, holder, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
}

// renewsInTurn renews a certificate while another control plane is being upgraded. It restarts nothing until that's over. etcd
// takes its API server along.
func (m machine) renewsInTurn(other machine) {
	m.Helper()
	m.runs("slipway", "certs", []string{"renew", "scheduler.conf", "--restart"}) // this creates the Lease
	m.prints("", "get", "lease", "slipway-upgrade", "-n", "kube-system", "-o", leaseHolder)
	m.holdsLease(other.node.Name())
	before := m.containerIDs()
	const log = "/root/renewal.log"
	ended := make(chan error, 1)
	go func() {
		_, err := m.try("sh", "-c", "slipway certs renew etcd-server --restart >"+log+" 2>&1")
		ended <- err
	}()
	m.eventually("the renewal to wait", readyLimit, func() error {
		if out, err := m.try("cat", log); err != nil || !strings.Contains(out, "control plane "+other.node.Name()+" ") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if now := m.containerIDs(); now["etcd"] != before["etcd"] || now["kube-apiserver"] != before["kube-apiserver"] { // the others may lose their leases
		m.Errorf("it restarted something out of turn: %v, then %v", before, now)
	}
	m.holdsLease("")
	if err := <-ended; err != nil {
		m.Errorf("%v:\n%s", err, m.must("cat", log))
	}
	said, now := m.must("cat", log), m.containerIDs()
	for component, id := range before {
		restarts := component == "etcd" || component == "kube-apiserver"
		if restarts && id == now[component] {
			m.Errorf("%s runs in the same container as before", component)
		}
		// The others may end by themselves while there's no API server, as they lose their leases.
		if restarts != strings.Contains(said, "Restarting "+component) {
			m.Errorf("%s:\n%s", component, said)
		}
	}
	m.prints("", "get", "lease", "slipway-upgrade", "-n", "kube-system", "-o", leaseHolder)
}

// reconfigureWith returns the command for a change of the cluster's configuration.
func (m machine) reconfigureWith(documents string) []string {
	m.Helper()
	m.write("/root/change.yaml", documents)
	return []string{"slipway", "reconfigure", "--config", "/root/change.yaml"}
}

// reconfiguresWorker changes the kubelets' settings, and brings a worker to them. A setting that its kubelet refuses is put back there.
func (m machine) reconfiguresWorker(w machine) {
	m.Helper()
	w.T = m.T
	out := m.said(m.reconfigureWith("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 98\n")...)
	fact.In(m, out, "`slipway reconfigure node`", "worker-1, worker-2")
	before := w.everyFile()
	fact.In(w, w.must("slipway", "reconfigure", "node", "--diff"), "+maxPods: 98")
	w.write("/root/refused/kubeletconfiguration.yaml", "maxPods: -1\n")
	if out, err := w.try("slipway", "reconfigure", "node", "--patches=/root/refused"); err == nil {
		w.Errorf("a kubelet that does not start counts:\n%s", out)
	}
	if now := w.must("cat", "/var/lib/kubelet/config.yaml"); strings.Contains(now, "maxPods: 98") || strings.Contains(now, "maxPods: -1") {
		w.Errorf("it is not put back:\n%s\nfiles before:\n%s", now, before)
	}
	w.must("slipway", "reconfigure", "node")
	m.eventually("the worker to take 98 Pods", readyLimit, func() error {
		if got := m.kubectl("get", "node", "worker-1", "-o", "jsonpath={.status.capacity.pods}"); got != "98" {
			return fmt.Errorf("it takes %s", got)
		}
		return nil
	})
	m.ready("worker-1")
	files := w.everyFile()
	w.must("slipway", "reconfigure", "node")
	if now := w.everyFile(); now != files {
		w.Errorf("the second time, files have changed:\n%s\nbefore:\n%s", now, files)
	}
	w.must("rm", "-r", "/etc/kubernetes/tmp", "/root/refused") // resets leave the former
}

// reconfiguresPlanes changes the control planes one after another, and back. A second change waits until the first is there.
func (m machine) reconfiguresPlanes(other machine) {
	m.Helper()
	other.T = m.T
	const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	of := func(args, maxPods string) string {
		return "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {extraArgs: " + args + "}\n---\n" +
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: " + maxPods + "\n"
	}
	before := other.must("cat", manifest, "/var/lib/kubelet/config.yaml")
	out := m.said(m.reconfigureWith(of("[{name: profiling, value: 'false'}]", "97"))...)
	fact.In(m, out, "cp-2", "cp-3", "worker-1")

	back := other.reconfigureWith(of("null", "null"))
	out, err := other.try(back...)
	if err == nil {
		other.Errorf("a second change before the first:\n%s", out)
	}
	fact.In(other, out, "PendingConfiguration", manifest)
	other.must("slipway", "reconfigure", "node")
	fact.In(other, other.must("cat", manifest), "--profiling=false")
	fact.In(other, other.must("cat", "/var/lib/kubelet/config.yaml"), "maxPods: 97")

	other.must(back...)
	m.must("slipway", "reconfigure", "node")
	fact.NotIn(m, m.must("cat", manifest, "/var/lib/kubelet/config.yaml"), "--profiling=false", "maxPods: 97")
	if now := other.must("cat", manifest, "/var/lib/kubelet/config.yaml"); now != before {
		other.Errorf("the files have changed:\n%s\nbefore:\n%s", now, before)
	}
	for _, p := range []machine{m, other} {
		m.ready(p.node.Name())
		p.must("rm", "-r", "/etc/kubernetes/tmp")
	}
}

// triesChange changes a flag of the controller manager and a setting of the kubelet with --try: a run that's killed while it waits is
// put back by systemd, which also waits in the place of one whose session ends, a confirmed change counts, and --revert takes it back.
func (m machine) triesChange() {
	m.Helper()
	m.write("/root/try.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"+
		"controllerManager: {extraArgs: [{name: profiling, value: \"false\"}]}\n---\n"+
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 88\n")
	command := []string{"slipway", "reconfigure", "--config", "/root/try.yaml", "--try"}
	state := func() string {
		return m.must("cat", "/etc/kubernetes/manifests/kube-controller-manager.yaml", "/var/lib/kubelet/config.yaml") +
			m.storedText("kubeadm-config", "ClusterConfiguration") + m.storedText("kubelet-config", "kubelet")
	}
	before := state()

	for way, end := range map[string]func(){
		"killed": func() {
			if !m.killedAt(instant{"--confirm", 0}, nothingMore, append(command, "5s")...) {
				m.Fatal("it was not killed while it waited")
			}
		},
		"its session is gone": func() {
			m.losesSession(append(command, "10m"))
			m.must("slipway", "reconfigure", "--revert") // fails if nothing waits for an answer
		},
	} {
		end()
		started := time.Now()
		m.eventually("the unconfirmed change to be put back", readyLimit, func() error {
			if _, err := m.try("ls", "/etc/systemd/system/slipway-watch.service"); err == nil {
				return errors.New("slipway-watch.service is still there")
			}
			return nil
		})
		m.Logf("%s: put back after %.1fs", way, time.Since(started).Seconds())
		if now := state(); now != before {
			m.Fatalf("%s: the unconfirmed change is still there (-before +after):\n%s", way, cmp.Diff(before, now))
		}
	}
	out, err := m.try("slipway", "reconfigure", "--confirm")
	if err == nil {
		m.Errorf("a change that was put back was confirmed:\n%s", out)
	}
	fact.In(m, out, "put back")

	ended := make(chan error, 1)
	go func() {
		out, err := m.try(append(command, "2m")...)
		if err != nil {
			err = fmt.Errorf("%w:\n%s", err, out)
		}
		ended <- err
	}()
	m.eventually("the change to be confirmed", readyLimit, func() error {
		_, err := m.try("slipway", "reconfigure", "--confirm")
		return err
	})
	if err := <-ended; err != nil {
		m.Fatalf("the run whose change was confirmed: %v", err)
	}
	fact.In(m, state(), "--profiling=false", "maxPods: 88")
	m.healthy(everything)

	started := time.Now()
	m.must("slipway", "reconfigure", "--revert")
	m.Logf("taken back in %.1fs", time.Since(started).Seconds())
	if now := state(); now != before {
		m.Errorf("--revert does not lead to the state before (-before +after):\n%s", cmp.Diff(before, now))
	}
	files := m.everyFile()
	m.must("slipway", "reconfigure", "--revert")
	if now := m.everyFile(); now != files {
		m.Errorf("the second time, files have changed (-before +after):\n%s", cmp.Diff(files, now))
	}
	m.healthy(everything)
	m.must("rm", "-r", "/etc/kubernetes/tmp") // resets leave it
}

// putsAddOnBack gives kube-proxy a setting with which it doesn't start: it's put back, and so is the kubelets' setting that came
// before it.
func (m machine) putsAddOnBack() {
	m.Helper()
	state := func() string {
		return m.must("cat", "/var/lib/kubelet/config.yaml") + m.storedText("kubelet-config", "kubelet") +
			m.storedText("kube-proxy", `config\.conf`) + m.kubectl("get", "daemonset", "kube-proxy", "-n", "kube-system", "-o", "jsonpath={.spec.template.spec}")
	}
	before := state()
	command := m.reconfigureWith("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
		"bindAddressHardFail: true\nhealthzBindAddress: 203.0.113.1:10256\n---\n" +
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 87\n")
	watch := &stopwatch{text: "putting this node back"}
	if err := m.node.Exec(m.Context(), nodes.Cmd{Args: command, Stdout: watch, Stderr: watch}); err == nil || watch.at.IsZero() {
		m.Fatalf("kube-proxy counts, but doesn't start: %v\n%s", err, &watch.said)
	}
	m.Logf("put back in %.1fs", time.Since(watch.at).Seconds())
	fact.In(m, watch.said.String(), "kube-proxy", "203.0.113.1")
	if now := state(); now != before {
		m.Errorf("it is not put back (-before +after):\n%s", cmp.Diff(before, now))
	}
	m.healthy(everything)
	m.must("rm", "-r", "/etc/kubernetes/tmp") // resets leave it
}

// losesSession runs a command in a session with a terminal, as in SSH, and takes the terminal away while the change waits for its
// confirmation.
func (m machine) losesSession(command []string) {
	m.Helper()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP) // otherwise, under nohup, the command inherits that it's ignored
	defer signal.Stop(hangups)
	ctx, hangUp := context.WithCancel(m.Context())
	defer hangUp()
	ended := make(chan error, 1)
	go func() {
		ended <- m.node.Exec(ctx, nodes.Cmd{Args: []string{"script", "--quiet", "--return", "--command", strings.Join(command, " "), "/dev/null"}})
	}()
	m.eventually("the change to wait for its confirmation", readyLimit, func() error {
		select {
		case err := <-ended:
			m.Fatalf("it has ended: %v", err)
		default:
		}
		if _, err := m.try("sh", "-c", "grep -l '^state: on trial' /etc/kubernetes/tmp/*/change.yaml | xargs grep -q ^until:"); err != nil {
			return errors.New("it does not wait yet")
		}
		return nil
	})
	hangUp() // kills only the terminal's other end: the command is in a session of its own
	<-ended
	m.eventually("the run to end with its session", readyLimit, func() error {
		if out, err := m.try("pgrep", "-a", "-f", strings.Join(command, " ")); err == nil {
			return errors.New(out)
		}
		return nil
	})
}
