// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/schema"
	"github.com/slipway-k8s/slipway/test/tier"
)

// labSettings are for the kubelet and kube-proxy on a lab node, which shares the host's kernel, with cgroup v1.
const labSettings = `---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
` + fullDisk + `---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0, min: null}
`

// fullDisk keeps Pods running, and images in place, however little space is left on the disk shared by all nodes.
const fullDisk = `imageGCHighThresholdPercent: 100
evictionHard: {imagefs.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%"}
`

// document builds a configuration file from the inner lines of its two main documents.
func document(init, cluster string) string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  ignorePreflightErrors: [SystemVerification]
%s
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
%s
%s`, init, cluster, labSettings)
}

const podSubnet = "networking: {podSubnet: 10.244.0.0/16}"

// isAdministrated makes administrators' usual changes to a cluster of one node: it lets other Pods run there, and adds a zone to
// the cluster's DNS.
func (m machine) isAdministrated() {
	m.Helper()
	m.kubectl("taint", "node", "cp-1", "node-role.kubernetes.io/control-plane-")
	zone := m.kubectl("get", "configmap", "coredns", "-n", "kube-system", "-o", "jsonpath={.data.Corefile}") +
		"example.org:53 {\n    forward . 192.0.2.53\n}\n"
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"Corefile": zone}})
	if err != nil {
		m.Fatal(err)
	}
	m.kubectl("patch", "configmap", "coredns", "-n", "kube-system", "--type=merge", "--patch", string(patch))
}

// printsJoinCommand checks that stdout, which scripts read, holds the command and nothing else.
func (m machine) printsJoinCommand(out string) {
	m.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "slipway join 192.168.99.11:6443 --token ") ||
		!strings.HasPrefix(strings.TrimSpace(lines[1]), "--discovery-token-ca-cert-hash sha256:") {
		m.Errorf("stdout is not just the join command:\n%s", out)
	}
}

// TestInitConfigured combines settings: keys, lifetimes, networks, arguments and patches.
func TestInitConfigured(t *testing.T) {
	tier.OnlyFull(t, "TestNode")
	m := boot(t, "10.99.0.0/16")
	m.must("mkdir", "/root/patches")
	m.write("/root/patches/kube-scheduler+merge.yaml", "metadata: {labels: {patched: merge}}\n")
	m.write("/root/patches/kube-apiserver0+strategic.yaml",
		"spec: {containers: [{name: kube-apiserver, resources: {requests: {cpu: 111m}}}]}\n")
	m.write("/root/patches/etcd+json.json", `[{"op": "add", "path": "/metadata/labels/patched", "value": "json"}]`)
	m.write("/root/patches/kubeletconfiguration.yaml", "maxPods: 55\n")
	m.init(document(`  kubeletExtraArgs:
  - {name: node-labels, value: "lab=one,lab2=two"}
  - {name: v, value: "3"}
patches: {directory: /root/patches}`, `clusterName: lab
networking: {podSubnet: 10.99.0.0/16, serviceSubnet: 172.30.0.0/20, dnsDomain: lab.local}
controlPlaneEndpoint: 192.168.99.11
encryptionAlgorithm: ECDSA-P256
certificateValidityPeriod: 2h0m0s
caCertificateValidityPeriod: 48h0m0s
apiServer:
  certSANs: [api.lab.example, 192.0.2.7]
  extraArgs:
  - {name: profiling, value: "false"}
  - {name: enable-admission-plugins, value: "NodeRestriction,DenyServiceExternalIPs"}
  - {name: service-account-issuer, value: "https://issuer.lab.example"}
  - {name: service-account-issuer, value: "https://kubernetes.default.svc.cluster.local"}
  extraEnvs:
  - {name: LAB, value: here}
controllerManager:
  extraArgs:
  - {name: bind-address, value: 0.0.0.0}
scheduler:
  extraArgs:
  - {name: v, value: "4"}
  extraVolumes:
  - {name: hosts, hostPath: /etc/hosts, mountPath: /etc/lab-hosts, readOnly: true, pathType: File}`))
	want := everything
	want.dnsName = "probe.default.svc.lab.local"
	m.healthy(want)

	for file, hours := range map[string]float64{"apiserver.crt": 2, "ca.crt": 48, "etcd/server.crt": 2} {
		cert := m.certificate("/etc/kubernetes/pki/" + file)
		if cert.PublicKeyAlgorithm.String() != "ECDSA" {
			t.Errorf("%s has a key of kind %s", file, cert.PublicKeyAlgorithm)
		}
		if got := cert.NotAfter.Sub(cert.NotBefore).Hours(); got < hours || got > hours+0.2 {
			t.Errorf("%s is valid for %.2f hours, want %.0f", file, got, hours)
		}
	}
	if cert := m.certificate("/etc/kubernetes/pki/apiserver.crt"); cert.VerifyHostname("api.lab.example") != nil || cert.VerifyHostname("192.0.2.7") != nil {
		t.Errorf("the API server's certificate lacks a name: %v %v", cert.DNSNames, cert.IPAddresses)
	}

	m.prints("one", "get", "node", "cp-1", "-o", "jsonpath={.metadata.labels.lab}")
	m.prints("here", "get", "pod", "-n", "kube-system", "kube-apiserver-cp-1", "-o", `jsonpath={.spec.containers[0].env[?(@.name=="LAB")].value}`)
	m.prints("/etc/lab-hosts", "get", "pod", "-n", "kube-system", "kube-scheduler-cp-1", "-o",
		`jsonpath={.spec.containers[0].volumeMounts[?(@.name=="hosts")].mountPath}`)

	m.prints("merge", "get", "pod", "-n", "kube-system", "kube-scheduler-cp-1", "-o", "jsonpath={.metadata.labels.patched}")
	m.prints("json", "get", "pod", "-n", "kube-system", "etcd-cp-1", "-o", "jsonpath={.metadata.labels.patched}")
	m.prints("111m", "get", "pod", "-n", "kube-system", "kube-apiserver-cp-1", "-o", "jsonpath={.spec.containers[0].resources.requests.cpu}")
	m.prints("55", "get", "node", "cp-1", "-o", "jsonpath={.status.capacity.pods}")

	m.prints("172.30.0.1", "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	m.prints("172.30.0.10", "get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIP}")
	m.prints("10.99.0.0/24", "get", "node", "cp-1", "-o", "jsonpath={.spec.podCIDR}")
}

// TestInitGivenCA makes a cluster without add-ons from an existing CA.
func TestInitGivenCA(t *testing.T) {
	tier.OnlyFull(t, "TestNode")
	m := boot(t)
	m.must("slipway", "init", "phase", "certs", "ca")
	before := m.must("cat", "/etc/kubernetes/pki/ca.crt")
	m.init(document("", podSubnet+"\ndns: {disabled: true}\nproxy: {disabled: true}"))
	m.healthy(expectation{pods: []string{"etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"}})
	if after := m.must("cat", "/etc/kubernetes/pki/ca.crt"); after != before {
		t.Error("the given CA was replaced")
	}
}

func TestInitExternalCA(t *testing.T) {
	tier.OnlyFull(t, "TestNode")
	m := boot(t)
	config := document("", podSubnet)
	m.write("/root/slipway.yaml", config)
	m.must("slipway", "init", "phase", "certs", "all", "--config", "/root/slipway.yaml")
	m.must("slipway", "init", "phase", "kubeconfig", "all", "--config", "/root/slipway.yaml")
	for _, ca := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
		m.must("rm", "/etc/kubernetes/pki/"+ca+".key")
	}
	m.init(config)
	m.healthy(everything)
	if out, err := m.try("ls", "/etc/kubernetes/pki/ca.key"); err == nil {
		t.Errorf("found a key of the external CA: %s", out)
	}
}

// prints compares kubectl's output.
func (m machine) prints(want string, args ...string) {
	m.Helper()
	if got := strings.TrimSpace(m.kubectl(args...)); got != want {
		m.Errorf("kubectl %s prints %q, want %q", strings.Join(args, " "), got, want)
	}
}

// result is the last event of a run; see docs/machine-output.md.
type result struct {
	Node, Endpoint, Token string
	CACertHashes          []string
	Seconds               float64
	Files                 []struct{ Path, Change string }
}

// tells runs slipway with -o json. Every event must match the schema.
func (m machine) tells(args ...string) result {
	m.Helper()
	events, err := schema.Events()
	if err != nil {
		m.Fatal(err)
	}
	out := []byte(m.must(append(append([]string{"slipway"}, args...), "-o", "json")...))
	if _, err := events.CheckLines(out); err != nil {
		m.Error(err)
	}
	var r result
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &r); err != nil {
		m.Fatal(err)
	}
	return r
}

// initForJoin creates a cluster, and returns a worker's join arguments from init's result.
func (m machine) initForJoin(config string) []string {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	r := m.tells("init", "--config", "/root/slipway.yaml", "--timeline", "/root/run.json")
	m.Logf("init took %.1fs and changed %d files", r.Seconds, len(r.Files))
	written := func(path string) bool {
		return slices.ContainsFunc(r.Files, func(f struct{ Path, Change string }) bool { return f.Path == path && f.Change == "created" })
	}
	for _, path := range []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/manifests/etcd.yaml", "/var/lib/kubelet/config.yaml"} {
		if !written(path) {
			m.Errorf("%s is missing from the files of the result", path)
		}
	}
	m.hasTimeline("/root/run.json")
	args := []string{r.Endpoint, "--token", r.Token, "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors}
	for _, hash := range r.CACertHashes {
		args = append(args, "--discovery-token-ca-cert-hash", hash)
	}
	return args
}

// hasTimeline checks that the timeline has a waiting phase, and rows of phases beside it.
func (m machine) hasTimeline(path string) {
	m.Helper()
	var trace struct {
		TraceEvents []struct {
			Name string
			Tid  int
		}
	}
	if err := json.Unmarshal([]byte(m.must("cat", path)), &trace); err != nil {
		m.Fatal(err)
	}
	lanes := map[int]bool{}
	found := false
	for _, e := range trace.TraceEvents {
		lanes[e.Tid] = true
		found = found || e.Name == "wait-control-plane/health"
	}
	if !found || len(lanes) < 2 {
		m.Errorf("the timeline has %d events in %d rows", len(trace.TraceEvents), len(lanes))
	}
}
