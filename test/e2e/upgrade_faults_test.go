// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// upgradeInstants are in the order of an upgrade. Each run picks up where the one before was killed, and gets at least as far as
// the next instant.
var upgradeInstants = []instant{
	{"[preflight] Checking", 0},
	{"[control-plane] Keeping … manifests", 0},
	{"[control-plane] Writing … etcd", 20 * time.Millisecond},
	{"[control-plane] … whole", 0},
	{"[control-plane] Upgrading ", 0},
	{"[control-plane] Upgrading ", 400 * time.Millisecond},
	{"[control-plane] Upgrading ", 2 * time.Second},
	{"[control-plane] Upgrading kube-controller-manager", 0},
	{"[control-plane] Upgrading kube-controller-manager", 300 * time.Millisecond},
	{"[upload-config] … ClusterConfiguration", 0},
	{"[upload-config] … KubeletConfiguration", 10 * time.Millisecond},
	{"[addon] Upgrading ", 20 * time.Millisecond},
}

// TestUpgradeCrash kills one upgrade twelve times, once with the whole node. The same command finishes it.
func TestUpgradeCrash(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	m := bootOlder(t)
	m.kubeadmInit(podSubnet)
	command := []string{"slipway", "upgrade", "apply", m.upgradesTo(), "--yes", littleRoom}
	for i, at := range upgradeInstants {
		end := nothingMore
		if i == 6 {
			end = m.node.Kill
		}
		if !m.killedAt(at, end, command...) {
			m.Errorf("it ended before %s", at)
		}
		if i == 6 {
			if err := m.node.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.apply()
	m.installs(newestKubernetes)
	m.runsVersion(m.upgradesTo(), "cp-1")
	m.isWhole()
	m.healthy(everything)
	m.initOnlyAddsToken(document("", podSubnet))
}

// TestUpgradeFails upgrades with an API server that doesn't start. By then etcd is upgraded, and stays; the former API server
// serves again.
func TestUpgradeFails(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	m := bootOlder(t)
	m.kubeadmInit(podSubnet)
	m.must("mkdir", "/root/patches")
	m.write("/root/patches/kube-apiserver0+json.yaml", "- {op: add, path: /spec/containers/0/command/-, value: --no-such-flag=1}\n")
	image := func() string {
		return strings.TrimSpace(m.must("grep", "-o", "registry.k8s.io/kube-apiserver:.*", "/etc/kubernetes/manifests/kube-apiserver.yaml"))
	}
	before := image()
	out, err := m.try("slipway", "upgrade", "apply", m.upgradesTo(), "--yes", "--patches=/root/patches", littleRoom+",flag-removed")
	if err == nil {
		t.Fatalf("the upgrade succeeded:\n%s", out)
	}
	for _, want := range []string{"[bad-flag] kube-apiserver", "unknown flag: --no-such-flag", before, "etcd stays"} {
		if !strings.Contains(out, want) {
			t.Errorf("the upgrade does not say %q:\n%s", want, out)
		}
	}
	if after := image(); after != before {
		t.Errorf("the API server is %s, before %s", after, before)
	}
	if stored := m.storedText("kubeadm-config", "ClusterConfiguration"); !strings.Contains(stored, "kubernetesVersion: v"+olderKubernetes) {
		t.Errorf("the failed upgrade stored another version:\n%s", stored)
	}
	m.apply()
	m.runsVersion(m.upgradesTo())
	m.healthy(everything)
}

// TestUpgradeExternal upgrades a control plane with an external etcd.
func TestUpgradeExternal(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	m := bootOlder(t)
	m.servesEtcd()
	m.kubeadmInit(fmt.Sprintf(`%s
etcd:
  external:
    endpoints: [https://%s:12379]
    caFile: %[3]s
    certFile: %[4]s
    keyFile: %[5]s`, podSubnet, m.node.IP(), path.Join(externalPKI, "ca.crt"), path.Join(externalPKI, "client.crt"), path.Join(externalPKI, "client.key")))
	before := m.must("pidof", "etcd")
	m.apply()
	m.runsVersion(m.upgradesTo())
	if after := m.must("pidof", "etcd"); after != before {
		t.Errorf("etcd was restarted: process %s, then %s", before, after)
	}
	want := everything
	want.pods = []string{"coredns-", "kube-apiserver-", "kube-controller-manager-", "kube-proxy-", "kube-scheduler-"}
	m.healthy(want)
}

// The worker's unit trap records connections to trapPort.
const (
	trap     = "trap"
	trapPort = "9443"
	trapped  = "/root/trapped"
)

// pretends makes a worker claim to be a control plane, as far as a kubelet can. It gets an API server that records its clients,
// and a runtime version with terminal escapes.
func (m machine) pretends(admin machine) {
	m.Helper()
	m.must("systemd-run", "--unit="+trap, "systemd-socket-activate", "--accept", "--listen="+trapPort, "--", "sh", "-c", "echo asked >>"+trapped)
	address := admin.kubectl("get", "node", m.node.Name(), "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	pause := strings.TrimSpace(m.must("sh", "-c", "ctr -n k8s.io images ls -q | grep -m1 registry.k8s.io/pause:"))
	m.must("mkdir", "-p", "/etc/kubernetes/manifests")
	for name, annotation := range map[string]string{
		"kube-apiserver": "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: " + address + ":" + trapPort,
		"etcd":           "kubeadm.kubernetes.io/etcd.advertise-client-urls: https://" + address + ":" + trapPort,
	} {
		m.write("/etc/kubernetes/manifests/pretends-"+name+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: kube-system, labels: {component: %[1]s, tier: control-plane}, annotations: {%[2]s}}
spec: {hostNetwork: true, containers: [{name: %[1]s, image: %[3]q, imagePullPolicy: IfNotPresent}]}
`, name, annotation, pause))
	}
	for _, name := range []string{"kube-apiserver-", "etcd-"} {
		m.eventually("the Pod in the API", readyLimit, func() error {
			_, err := admin.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "pod", "-n", "kube-system", name+m.node.Name())
			return err
		})
	}
	m.must("systemctl", "stop", "kubelet") // it would correct the Node's status
	// A kubelet may write this itself, but not read the Node first, as kubectl does.
	admin.kubectl("patch", "node", m.node.Name(), "--subresource=status", "--type=merge",
		"-p", `{"status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2\u001b[2J\nn9\tcontrol-plane"}}}`)
}

// isHonest undoes pretends.
func (m machine) isHonest() {
	m.Helper()
	m.must("sh", "-c", "rm /etc/kubernetes/manifests/pretends-*; systemctl stop "+trap)
}

// trustsNoWorker plans an upgrade beside a worker that pretends to be a control plane: the administrator's credentials don't go
// there, and the plan names its Pods.
func (m machine) trustsNoWorker(w machine) {
	m.Helper()
	w.T = m.T
	w.pretends(m)
	plan := m.must("slipway", "upgrade", "plan", m.upgradesTo())
	if i := strings.IndexFunc(plan, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		m.Errorf("a control character in %q", plan[i:])
	}
	for line := range strings.Lines(plan) {
		if strings.HasPrefix(line, "n9 ") {
			m.Errorf("a line of the worker's: %q", line)
		}
	}
	_, label, _ := strings.Cut(plan, "\n  ControlPlaneLabel: ")
	fact.In(m.T, label, w.node.Name(), "etcd-"+w.node.Name(), "kube-apiserver-"+w.node.Name())
	if out, err := w.try("cat", trapped); err == nil {
		m.Errorf("the worker was asked:\n%s", out)
	}
	w.must("systemctl", "start", "kubelet")
}

const encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: one, secret: c2xpcHdheSBzbGlwd2F5IHNsaXB3YXkgc2xpcHdheSE=}]}
  - identity: {}
`

// keepsEncryption: an operator has configured encryption by hand, and has changed the ClusterConfiguration since. The upgrade
// doesn't drop the encryption, and keeps it with the patches that the plan prints: the Secret stays readable.
func (m machine) keepsEncryption() {
	m.Helper()
	const manifest, flag = "/etc/kubernetes/manifests/kube-apiserver.yaml", "--encryption-provider-config=/etc/kubernetes/enc/enc.yaml"
	m.must("mkdir", "-m", "0700", "/etc/kubernetes/enc", "/root/kept")
	m.write("/etc/kubernetes/enc/enc.yaml", encryption)
	pod := m.must("cat", manifest)
	for _, edit := range [][2]string{
		{"    - kube-apiserver\n", "    - kube-apiserver\n    - " + flag + "\n"},
		{"    volumeMounts:\n", "    volumeMounts:\n    - {mountPath: /etc/kubernetes/enc, name: enc, readOnly: true}\n"},
		{"  volumes:\n", "  volumes:\n  - {name: enc, hostPath: {path: /etc/kubernetes/enc, type: Directory}}\n"},
	} {
		pod = strings.Replace(pod, edit[0], edit[1], 1)
	}
	m.write(manifest, pod)
	m.eventually("a Secret that is stored encrypted", readyLimit, func() error {
		out, err := m.try("sh", "-c", "kubectl --kubeconfig=/etc/kubernetes/admin.conf create secret generic kept --from-literal=key=value --dry-run=client -o yaml | "+
			"kubectl --kubeconfig=/etc/kubernetes/admin.conf replace --force -f -")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if out, err = m.etcdctl("get", "/registry/secrets/default/kept"); err != nil || !strings.Contains(out, "k8s:enc:secretbox:v1:one:") {
			return fmt.Errorf("%w: %q", err, out)
		}
		return nil
	})
	m.eventually("the API to show the edited API server's Pod", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "-n", "kube-system", "get", "pod", "kube-apiserver-cp-1", "-o", "yaml")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !strings.Contains(out, flag) {
			return fmt.Errorf("it lacks %s", flag)
		}
		return nil
	})
	m.editStored("kubeadm-config", "ClusterConfiguration", func(text string) string {
		return strings.Replace(text, "apiServer: {}\n", "apiServer: {extraArgs: [{name: profiling, value: \"false\"}]}\n", 1)
	})

	out, err := m.try("slipway", "upgrade", "apply", m.upgradesTo(), "--yes", "--ignore-preflight-errors=all")
	if err == nil {
		m.Fatalf("the upgrade goes on:\n%s", out)
	}
	fact.In(m.T, out, "StaticPodProtection", flag, "/etc/kubernetes/enc")
	var plan struct {
		Upgrades []struct {
			Patches []struct{ FileName, Content string }
		} `json:"availableUpgrades"`
	}
	if err := json.Unmarshal([]byte(m.must("slipway", "upgrade", "plan", "v1.38.0", "-o", "json")), &plan); err != nil || len(plan.Upgrades) != 1 {
		m.Fatalf("the plan: %v, %+v", err, plan)
	}
	for _, p := range plan.Upgrades[0].Patches {
		m.write(filepath.Join("/root/kept", p.FileName), p.Content)
	}
	m.apply("--patches=/root/kept")
	if value := m.kubectl("get", "secret", "kept", "-o", "jsonpath={.data.key}"); value != "dmFsdWU=" {
		m.Errorf("the Secret has %q", value)
	}
	fact.In(m.T, m.must("cat", manifest), flag, "mountPath: /etc/kubernetes/enc", "--profiling=false")
}

// keepsKubeletEdit: `upgrade node` on a worker doesn't drop an operator's setting in the kubelet's config.yaml, and its error has
// the patch that keeps it.
func (m machine) keepsKubeletEdit() {
	m.Helper()
	const config = "/var/lib/kubelet/config.yaml"
	m.must("sh", "-c", "echo 'maxPods: 77' >>"+config+"; mkdir /root/kept")
	out, err := m.try("slipway", "upgrade", "node")
	if err == nil {
		m.Fatalf("the upgrade goes on:\n%s", out)
	}
	fact.In(m.T, out, "KubeletConfigEdits", "kubeletconfiguration0+merge.yaml", "maxPods: 77")
	m.write("/root/kept/kubeletconfiguration0+merge.yaml", "maxPods: 77\n")
	m.runs("slipway", "upgrade", []string{"node", "--patches=/root/kept"})
	fact.In(m.T, m.must("cat", config), "maxPods: 77")
}
