// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// The minor versions before and after the upgrades.
const (
	olderKubernetes  = "1.36"
	newestKubernetes = ""
)

// olderNode is a node of an older cluster.
var olderNode = nodes.NodeSpec{Kubernetes: olderKubernetes, With: []string{nodes.Kubeadm}}

// bootOlder starts a node with older programs, but without Slipway, in a lab that ends with the test. Its network plugin gives
// Pods addresses from podSubnets.
func bootOlder(t *testing.T, podSubnets ...string) machine {
	t.Helper()
	beside(t, olderNode)
	downAfter(t, openLab(t, labName(t), ""))
	return boots(t, nodes.NodeSpec{Name: "cp-1", PodSubnets: podSubnets}, olderKubernetes)
}

// boots starts a node with the programs of a minor version, including kubeadm. It has the images of that version and of all newer
// ones.
func boots(t *testing.T, spec nodes.NodeSpec, minor string) machine {
	t.Helper()
	spec.Kubernetes, spec.With = minor, olderNode.With
	node, err := openLab(t, labName(t), "").StartNode(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	m := machine{t, node}
	t.Cleanup(func() {
		if t.Failed() {
			m.explain()
		}
	})
	return m
}

func (m machine) anotherOlder(name string, podSubnets ...string) machine {
	m.Helper()
	return boots(m.T, nodes.NodeSpec{Name: name, PodSubnets: podSubnets}, olderKubernetes)
}

// kubeadmInit makes an older cluster with kubeadm.
func (m machine) kubeadmInit(cluster string) {
	m.Helper()
	m.write("/root/kubeadm.yaml", document("", cluster))
	m.runs("kubeadm", "init", []string{"--config=/root/kubeadm.yaml", "--upload-certs"})
}

// upgradesTo returns the version of the lab's newest Kubernetes, to which nodes are upgraded.
func (m machine) upgradesTo() string { return m.node.VersionOf(newestKubernetes) }

// littleRoom: the checks want a tenth of the disk free, but the lab's disk may be fuller.
const littleRoom = "--ignore-preflight-errors=EtcdSnapshotSpace,EtcdRestoreSpace"

// apply upgrades the first control plane and the cluster's shared objects.
func (m machine) apply(more ...string) {
	m.Helper()
	m.runs("slipway", "upgrade", append([]string{"apply", m.upgradesTo(), "--yes", littleRoom}, more...))
}

// installs replaces the kubelet and the tools with those of a minor version, as the operator's package manager does after
// `upgrade`.
func (m machine) installs(minor string) {
	m.Helper()
	if err := m.node.InstallKubernetes(m.Context(), minor); err != nil {
		m.Fatal(err)
	}
	m.must("systemctl", "restart", "kubelet")
}

// runsVersion waits until all control-plane and kube-proxy Pods, and the named nodes' kubelets, have a version.
func (m machine) runsVersion(version string, names ...string) {
	m.Helper()
	m.eventually("everything to run "+version, readyLimit, func() error {
		images, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "pods", "-n", "kube-system",
			"-o", `jsonpath={range .items[*]}{.spec.nodeName} {.spec.containers[0].image}{"\n"}{end}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, images)
		}
		for line := range strings.Lines(images) {
			_, image, _ := strings.Cut(strings.TrimSpace(line), "/kube-")
			if image != "" && !strings.HasSuffix(image, ":"+version) {
				return fmt.Errorf("%s", line)
			}
		}
		for _, name := range names {
			got, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
			if err != nil || got != version {
				return fmt.Errorf("the kubelet of %s: %s: %w", name, got, err)
			}
		}
		return nil
	})
}

// TestUpgrade upgrades kubeadm's cluster, made like the reference: a control plane and a worker. Afterwards everything must be as
// kubeadm makes it with the newer version.
func TestUpgrade(t *testing.T) {
	cp := bootOlder(t)
	w := cp.anotherOlder("worker-1")
	for _, m := range []machine{cp, w} {
		m.hasFullDisk()
	}
	config := strings.Replace(document("", podSubnet+"\ncontrolPlaneEndpoint: 192.168.99.11:6443"), fullDisk, "", 1)
	cp.write("/root/kubeadm.yaml", config)
	cp.runs("kubeadm", "init", []string{"--config=/root/kubeadm.yaml", "--upload-certs"})
	worker, _ := cp.joinCommands()
	w.runs("kubeadm", "join", worker)
	cp.ready("worker-1")

	cp.row("hostile-worker", func(m machine) { m.trustsNoWorker(w) })
	cp.refusesUpgradeUnasked()
	cp.isAtLocalhost()
	cp.apply() // it waits for no Pod of the worker's
	w.isHonest()
	cp.row("rollback", machine.rollsBack)
	cp.appliesLikeKubespray()
	cp.installs(newestKubernetes)
	cp.drains(w)
	w.installs(newestKubernetes)
	cp.runsVersion(cp.upgradesTo(), "cp-1", "worker-1")
	cp.healthy(everything)
	cp.isWhole()
	if tier.Full() {
		cp.filesEqualFresh(config)
	}
	cp.objectsEqualReference("kube-system_configmap_kube-proxy.yaml") // its settings are given, so they stay

	before := cp.containers()
	cp.apply()
	w.must("ln", "--symbolic", "/usr/local/bin/slipway", "/root/kubeadm")
	w.bash("/root/kubeadm upgrade node --certificate-renewal=false --skip-phases preflight") // as Sealos does
	if after := cp.containers(); after != before {
		t.Errorf("a second upgrade restarted something, before:\n%s\nafter:\n%s", before, after)
	}
	cp.initOnlyAddsToken(config)
	w.row("kubelet-edit", machine.keepsKubeletEdit)
	cp.row("encryption", machine.keepsEncryption)
	cp.row("etcd-only", machine.patchesEtcd)
}

// isAtLocalhost moves the only member of etcd to a loopback peer URL, as under kubeadm 1.12, or after a restore by hand without the
// cluster's flags.
func (m machine) isAtLocalhost() {
	m.Helper()
	members, err := m.etcdMembers()
	if err == nil {
		_, err = m.etcdctl("member", "update", fmt.Sprintf("%x", members["cp-1"].ID), "--peer-urls=http://localhost:2380")
	}
	if err != nil {
		m.Fatal(err)
	}
	if status, err := m.etcdStatus(); err != nil || len(status.Members) != 1 || !status.Members[0].ThisHost {
		m.Errorf("%+v, %v", status, err)
	}
}

// appliesLikeKubespray plans and applies through a link named kubeadm, with the flags of Kubespray's role.
func (m machine) appliesLikeKubespray() {
	m.Helper()
	m.must("ln", "--symbolic", "/usr/local/bin/slipway", "/root/kubeadm")
	m.bash("/root/kubeadm upgrade plan | grep 'kubeadm upgrade apply " + m.upgradesTo() + "'")
	m.bash("timeout -k 280s 280s /root/kubeadm upgrade apply -y " + m.upgradesTo() + " --certificate-renewal=True --ignore-preflight-errors=all " +
		"--allow-experimental-upgrades --etcd-upgrade=true --force | grep SUCCESS")
}

// rollsBack takes back a finished upgrade, except for etcd.
func (m machine) rollsBack() {
	m.Helper()
	m.runs("slipway", "upgrade", []string{"rollback", "--yes"})
	old := m.node.VersionOf(olderKubernetes)
	m.runsImages(map[string]string{"etcd": "3.7.0-0", "kube-apiserver": old, "kube-controller-manager": old, "kube-scheduler": old})
	if stored := m.storedText("kubeadm-config", "ClusterConfiguration"); !strings.Contains(stored, "kubernetesVersion: "+old+"\n") {
		m.Errorf("the stored configuration is\n%s", stored)
	}
}

// refusesUpgradeUnasked: the question says what can't be undone, and no answer means no.
func (m machine) refusesUpgradeUnasked() {
	m.Helper()
	before := m.containers()
	out, err := m.try("sh", "-c", "slipway upgrade apply "+m.upgradesTo()+" --print-config </dev/null")
	if err == nil {
		m.Errorf("the upgrade does not ask:\n%s", out)
	}
	for _, want := range []string{"\tkind: ClusterConfiguration\n", "\tkubernetesVersion: " + m.node.VersionOf(olderKubernetes) + "\n", "etcd 3.6"} {
		if !strings.Contains(out, want) {
			m.Errorf("before the answer, the upgrade does not say %q:\n%s", want, out)
		}
	}
	after := m.containers()
	for line := range strings.Lines(before) {
		started := strings.Contains(line, "containerd://") // the cluster is new, so others may start meanwhile
		if started && !strings.Contains(after, line) {
			m.Errorf("an upgrade that was not confirmed restarted something, before:\n%s\nafter:\n%s", before, after)
		}
	}
}

// filesEqualFresh compares Slipway's files, except for keys and certificates, with those of a host on which init has run with the
// same configuration.
func (m machine) filesEqualFresh(config string) {
	m.Helper()
	files := func(m machine) map[string]string {
		contents := map[string]string{}
		list := m.must("find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env",
			"-path", "/etc/kubernetes/tmp", "-prune", "-o", "-type", "f", "-print")
		for path := range strings.Lines(list) {
			path = strings.TrimSpace(path)
			contents[path] = ""
			if ext := filepath.Ext(path); ext == ".yaml" || ext == ".env" {
				contents[path] = m.must("cat", path)
			}
		}
		return contents
	}
	m.Run("fresh", func(t *testing.T) {
		fresh := bootBeside(t)
		fresh.init(config)
		if diff := cmp.Diff(files(fresh), files(machine{t, m.node})); diff != "" {
			t.Errorf("an upgraded node has other files than a new one (-new +upgraded):\n%s", diff)
		}
	})
}

// initOnlyAddsToken runs init with the configuration of kubeadm's cluster: init doesn't know its bootstrap tokens, and finds
// nothing else to do.
func (m machine) initOnlyAddsToken(config string) {
	m.Helper()
	state := func() []string {
		return slices.DeleteFunc(m.state(), func(line string) bool {
			return strings.Contains(line, " bootstrap-token-") || strings.Contains(line, " cluster-info ")
		})
	}
	before := state()
	m.init(config)
	if diff := cmp.Diff(before, state()); diff != "" {
		m.Errorf("init after the upgrade changed something (-before +after):\n%s", diff)
	}
}

// containers lists the running containers in kube-system, except leader-elected components, which exit on losing their leases.
func (m machine) containers() string {
	m.Helper()
	return m.kubectl("get", "pods", "-n", "kube-system", "--sort-by=.metadata.name", "-l", "component notin (kube-controller-manager, kube-scheduler)",
		"-o", `jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].containerID}{"\n"}{end}`)
}

// hasFullDisk makes fullDisk's settings by the kubelet's flags instead of its configuration.
func (m machine) hasFullDisk() {
	m.Helper()
	m.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--image-gc-high-threshold=100"+
		" --eviction-hard=imagefs.available<0%,nodefs.available<0%,nodefs.inodesFree<0%\n")
}

// TestUpgradeChain upgrades a cluster made by kubeadm 1.35 over two minor releases, following the plan: the control plane to 1.36
// and then to 1.37, the worker at the end.
func TestUpgradeChain(t *testing.T) {
	if os.Getenv("SLIPWAY_E2E_CHAIN") == "" {
		t.Skip("the lab builds Kubernetes 1.35 in nine minutes: set SLIPWAY_E2E_CHAIN=1")
	}
	downAfter(t, openLab(t, labName(t), ""))
	cp := boots(t, nodes.NodeSpec{Name: "cp-1"}, "1.35")
	w := boots(t, nodes.NodeSpec{Name: "worker-1"}, "1.35")
	for _, m := range []machine{cp, w} {
		m.hasImagesOfKubeadm()
	}
	cp.kubeadmInit(podSubnet)
	worker, _ := cp.joinCommands()
	w.runs("kubeadm", "join", worker)
	cp.ready("worker-1")
	cp.plansChain()

	for _, minor := range []string{olderKubernetes, newestKubernetes} {
		writers := cp.startWriters("worker-1", []machine{cp})
		version := cp.node.VersionOf(minor)
		since := time.Now().UTC()
		cp.runs("slipway", "upgrade", []string{"apply", version, "--yes", littleRoom})
		if t.Failed() {
			return
		}
		for _, name := range writers.names {
			lines := strings.Split(strings.TrimSpace(cp.kubectl("logs", "writer-"+name, "--since-time="+since.Format(time.RFC3339))), "\n")
			t.Logf("writer-%s: %s", name, lines[len(lines)-1])
		}
		cp.installs(minor)
		cp.healthy(everything)
		cp.kubectl("delete", "-f", "/root/writers.yaml")
	}
	w.runs("slipway", "upgrade", []string{"node"})
	w.installs(newestKubernetes)
	cp.runsVersion(cp.upgradesTo(), "cp-1", "worker-1")
	cp.healthy(everything)
	before := cp.containers()
	cp.apply()
	if after := cp.containers(); after != before {
		t.Errorf("a second upgrade restarted something, before:\n%s\nafter:\n%s", before, after)
	}
}

// hasImagesOfKubeadm gives the lab's images the tags that this kubeadm asks for: the lab has no other patch release.
func (m machine) hasImagesOfKubeadm() {
	m.Helper()
	present := strings.Fields(m.must("ctr", "--namespace=k8s.io", "images", "list", "--quiet"))
	for _, image := range strings.Fields(m.must("kubeadm", "config", "images", "list", "--kubernetes-version="+m.node.VersionOf("1.35"))) {
		if slices.Contains(present, image) {
			continue
		}
		repository, _, _ := strings.Cut(image, ":")
		same := slices.IndexFunc(present, func(other string) bool { return strings.HasPrefix(other, repository+":") })
		if same < 0 {
			m.Fatalf("the lab has nothing like %s", image)
		}
		m.Logf("%s stands for %s", present[same], image)
		m.must("ctr", "--namespace=k8s.io", "images", "tag", present[same], image)
	}
}

func (m machine) plansChain() {
	m.Helper()
	plan := m.must("slipway", "upgrade", "plan", m.upgradesTo())
	rest := plan
	for _, command := range []string{"slipway upgrade apply " + m.node.VersionOf(olderKubernetes), "slipway upgrade apply " + m.upgradesTo(), "slipway upgrade node"} {
		_, after, found := strings.Cut(rest, command)
		if !found {
			m.Errorf("the plan lacks %q in its place:\n%s", command, plan)
		}
		rest = after
	}
}
