// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestHardened creates a cluster with the profile cis: a second control plane and a worker join without mentioning it, Pods run, each
// control plane enforces what the profile promises, and kubeadm's own suite passes.
func TestHardened(t *testing.T) {
	tier.OnlyFull(t, "phases/bootstrap.TestProfileFiles")
	suite := kubeadmSuite(t)
	cp1 := boot(t)
	cp2, w := cp1.another("cp-2"), cp1.another("worker-1")
	planes, all := []machine{cp1, cp2}, []machine{cp1, cp2, w}
	for _, m := range all {
		m.knowsEndpoint(planes)
	}
	cp1.init(document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"), "--profile=cis", "--upload-certs")
	worker, plane := cp1.joinCommands()
	sideBySide(func() { cp2.runs("slipway", "join", plane) }, func() { w.runs("slipway", "join", worker) })
	for _, m := range all {
		cp1.ready(m.node.Name())
		m.hasHardenedKubelet()
	}
	if t.Failed() {
		return
	}
	for _, m := range planes {
		m.hasServingCertificate()
	}
	cp1.approvesServing(w)
	cp2.isControlPlaneLike(cp1)
	cp2.secondJoinChangesNothing(plane)
	cp1.serviceAnswers(everything.dnsName)
	for _, m := range planes {
		m.answersAnonymousProbesOnly()
		m.auditsWithoutSecrets(cp1)
		m.hasHardenedFiles()
	}
	cp1.refusesPrivilegedPods()
	for _, m := range planes {
		m.failsItems("1.1.12", "1.2.5", "4.1.1")
	}
	w.failsItems("4.1.1")
	cp1.initAgainChangesNothing()
	cp1.row("kubeadm-suite", func(m machine) { m.passesKubeadmSuite(suite) })
	for _, m := range all {
		m.diagnosedHealthy()
	}
}

// TestHardenedLive hardens a running cluster, one node after another: each gets the settings with their files, and works as before, also
// at another address. kubeadm's own suite passes. With the strictest settings, etcd is restored and recovered as without them.
func TestHardenedLive(t *testing.T) {
	tier.OnlyFull(t, "phases/reconfigure.TestHarden")
	suite := kubeadmSuite(t)
	cp1 := boot(t)
	cp2, cp3, w := cp1.another("cp-2"), cp1.another("cp-3"), cp1.another("worker-1")
	planes, all := []machine{cp1, cp2, cp3}, []machine{cp1, cp2, cp3, w}
	for _, m := range all {
		m.knowsEndpoint(planes)
	}
	cp1.init(document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"), "--upload-certs")
	worker, plane := cp1.joinCommands()
	sideBySide(func() { cp2.runs("slipway", "join", plane) }, func() { cp3.runs("slipway", "join", plane) }, func() { w.runs("slipway", "join", worker) })
	for _, m := range all {
		cp1.ready(m.node.Name())
	}
	fact.In(t, cp1.said("slipway", "reconfigure", "--profile=cis", "--diff"), "/etc/kubernetes/audit/audit.yaml", "protectKernelDefaults")
	fact.In(t, cp1.said("slipway", "reconfigure", "--profile=cis"), "cp-2", "cp-3", "worker-1")
	cp2.must("slipway", "reconfigure", "node")
	cp3.must("slipway", "reconfigure", "node")
	w.must("slipway", "reconfigure", "node")
	for _, m := range all {
		cp1.ready(m.node.Name())
		m.hasHardenedKubelet()
	}
	cp1.serviceAnswers(everything.dnsName)
	for _, m := range planes {
		m.hasServingCertificate()
		m.answersAnonymousProbesOnly()
		m.auditsWithoutSecrets(cp1)
		m.hasHardenedFiles()
		m.failsItems("1.1.12", "1.2.5", "4.1.1")
		m.showsLogs("kube-apiserver-" + m.node.Name())
	}
	cp1.refusesPrivilegedPods()
	w.failsItems("4.1.1")
	before := cp1.must("find", "/etc/kubernetes", "-type", "f", "-printf", `%p %m %T@\n`)
	cp1.must("slipway", "reconfigure", "--profile=cis")
	if after := cp1.must("find", "/etc/kubernetes", "-type", "f", "-printf", `%p %m %T@\n`); after != before {
		t.Errorf("the same command again changed files:\n%s\nwere\n%s", after, before)
	}
	cp1.row("kubeadm-suite", func(m machine) { m.passesKubeadmSuite(suite) })
	cp1.row("strict", func(m machine) { m.verifiesKubelets([]machine{cp2, cp3}, w) })
	cp1.row("restored", func(m machine) { m.restoresOneOfThree(planes, w) })
	cp1.row("recover", func(m machine) { m.recoversEtcd(planes) })
	cp3.row("moved", func(m machine) { m.movesWithServingCertificate(all) })
	for _, m := range all {
		m.diagnosedHealthy()
	}
}

// verifiesKubelets gives the API servers the flag with which they verify kubelets, once the worker, too, has its certificate.
func (m machine) verifiesKubelets(others []machine, w machine) {
	m.Helper()
	w.T = m.T
	if out, err := m.try("slipway", "reconfigure", "--profile=cis-strict"); err == nil {
		m.Fatalf("the API server verifies a kubelet without a certificate:\n%s", out)
	} else {
		fact.In(m.T, out, "KubeletCertificates", "worker-1")
	}
	m.approvesServing(w)
	m.must("slipway", "reconfigure", "--profile=cis-strict")
	for _, other := range others {
		other.T = m.T
		other.must("slipway", "reconfigure", "node")
	}
	for _, plane := range append([]machine{m}, others...) {
		plane.T = m.T
		plane.failsItems("1.1.12", "4.1.1")
		for _, of := range append([]machine{m, w}, others...) {
			m.logsThrough(plane.node.IP(), of.node.Name())
		}
	}
}

// logsThrough asks an API server for the logs of kube-proxy on a node.
func (m machine) logsThrough(address, name string) {
	m.Helper()
	pod := m.kubectl("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy", "--field-selector=spec.nodeName="+name, "-o", "name")
	logs := m.kubectl("--server=https://"+address+":6443", "-n", "kube-system", "logs", "--tail=1", strings.TrimSpace(pod))
	if strings.TrimSpace(logs) == "" {
		m.Errorf("through %s, %s of %s has no logs", address, pod, name)
	}
}

// movesWithServingCertificate: once a control plane has another address, API servers that verify kubelets still reach its kubelet.
func (m machine) movesWithServingCertificate(all []machine) {
	m.Helper()
	m.changesAddress(all...)
	m.runs("slipway", "reconfigure", []string{"node", "--advertise-address", m.newAddress()})
	m.hasServingCertificate()
	fact.In(m.T, m.must("openssl", "x509", "-in", "/var/lib/kubelet/pki/kubelet-server-current.pem", "-noout", "-ext", "subjectAltName"), m.newAddress())
	m.logsThrough(all[0].node.IP(), m.node.Name())
	m.logsThrough(m.newAddress(), all[0].node.Name())
}

// hasServingCertificate checks that the cluster has signed the certificate with which the kubelet serves.
func (m machine) hasServingCertificate() {
	m.Helper()
	m.must("openssl", "verify", "-CAfile", "/etc/kubernetes/pki/ca.crt", "/var/lib/kubelet/pki/kubelet-server-current.pem")
}

var approveCommand = regexp.MustCompile(`kubectl certificate approve (\S+)`)

// approvesServing approves the request of a worker's kubelet that the worker names.
func (m machine) approvesServing(w machine) {
	m.Helper()
	out := w.said("slipway", "reconfigure", "node")
	request := approveCommand.FindStringSubmatch(out)
	if request == nil {
		m.Fatalf("it names no request:\n%s", out)
	}
	m.kubectl("certificate", "approve", request[1])
	w.eventually("the kubelet to get its certificate", readyLimit, func() error {
		out, err := w.try("test", "-e", "/var/lib/kubelet/pki/kubelet-server-current.pem")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	w.hasServingCertificate()
}

// showsLogs asks a static Pod's kubelet, through the API, for its logs and for a process in it.
func (m machine) showsLogs(pod string) {
	m.Helper()
	if out := m.kubectl("-n", "kube-system", "logs", "--tail=1", pod); strings.TrimSpace(out) == "" {
		m.Errorf("Pod %s has no logs", pod)
	}
	fact.In(m.T, m.kubectl("-n", "kube-system", "exec", pod, "--", "/usr/local/bin/kube-apiserver", "--version"), "Kubernetes v1")
}

// kubeadmSuite builds the suite that kubeadm's own clusters have to pass.
func kubeadmSuite(t *testing.T) (path string) {
	t.Helper()
	path, err := openLab(t, labPrefix+"parts", "").Program(t.Context(), "e2e_kubeadm.test")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ranSpecs matches the suite's last line: how many specs ran, passed and failed.
var ranSpecs = regexp.MustCompile(`Ran (\d+) of \d+ Specs[^\n]*\n[^\n]*?(\d+) Passed[^\n]*?(\d+) Failed`)

// passesKubeadmSuite runs the suite on a control plane. Its specs look at the cluster's configuration, certificates, nodes, networks,
// tokens and add-ons.
func (m machine) passesKubeadmSuite(suite string) {
	m.Helper()
	const there = "/root/e2e_kubeadm.test"
	if err := m.node.CopyIn(suite, there); err != nil {
		m.Fatal(err)
	}
	out, err := m.try(there, "--kubeconfig=/etc/kubernetes/admin.conf", "--provider=skeleton", "--ginkgo.no-color")
	found := ranSpecs.FindStringSubmatch(out)
	if err != nil || found == nil {
		m.Fatalf("%v\n%s", err, out)
	}
	if ran, _ := strconv.Atoi(found[1]); ran < 20 || found[2] != found[1] || found[3] != "0" {
		m.Errorf("%s\n%s", found[0], out)
	}
	m.Log(found[0])
	m.must("rm", there)
}

// answersAnonymousProbesOnly asks m's API server without credentials.
func (m machine) answersAnonymousProbesOnly() {
	m.Helper()
	for path, want := range map[string]string{
		"/livez":   "200",
		"/readyz":  "200",
		"/healthz": "200",
		"/api/v1/namespaces/kube-public/configmaps/cluster-info": "200",
		"/api/v1/namespaces/kube-public/configmaps":              "401",
		"/api/v1/namespaces/kube-system/secrets":                 "401",
		"/version":                                               "401",
		"/metrics":                                               "401",
		"/debug/pprof/":                                          "401",
	} {
		if got := m.anonymously("6443", path); got != want {
			m.Errorf("%s answers an anonymous request for %s with %s, want %s", m.node.Name(), path, got, want)
		}
	}
	if got := m.anonymously("10250", "/pods"); got != "401" {
		m.Errorf("the kubelet of %s answers an anonymous request with %s", m.node.Name(), got)
	}
}

// anonymously returns the status of a GET request without credentials.
func (m machine) anonymously(port, path string) string {
	m.Helper()
	out, err := m.try("sh", "-c", fmt.Sprintf(`printf 'GET %s HTTP/1.0\r\n\r\n' | openssl s_client -quiet -connect %s:%s 2>/dev/null`, path, m.node.IP(), port))
	words := strings.Fields(out)
	if len(words) < 2 {
		m.Errorf("an anonymous request for %s: %v: %s", path, err, out)
		return ""
	}
	return words[1]
}

// auditsWithoutSecrets makes a Secret and a Pod through m's API server: its audit log has the requests, and the Pod's body, but not
// the Secret's content.
func (m machine) auditsWithoutSecrets(admin machine) {
	m.Helper()
	const log, content = "/var/log/kubernetes/audit/audit.log", "cGFzc3dvcmQtb2YtdGhlLXRlc3Q="
	name := "audited-by-" + m.node.Name()
	m.write("/root/audited.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: default}\ndata: {password: %s}\n"+
		"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: %[1]s, namespace: default}\n"+
		"rules: [{apiGroups: [\"\"], resources: [pods], resourceNames: [a-fact-of-the-body], verbs: [get]}]\n", name, content))
	m.kubectl("--server=https://"+m.node.IP()+":6443", "create", "-f", "/root/audited.yaml")
	m.eventually("the audit log of "+m.node.Name(), readyLimit, func() error {
		if out, err := m.try("grep", "-c", `"resource":"secrets".*"name":"`+name+`"`, log); err != nil {
			return fmt.Errorf("no entry of the Secret: %w: %s", err, out)
		}
		if out, err := m.try("grep", "-c", `"name":"`+name+`".*a-fact-of-the-body`, log); err != nil {
			return fmt.Errorf("no entry of the Role with its body: %w: %s", err, out)
		}
		return nil
	})
	if out, err := m.try("grep", "-e", content, "-e", "password-of-the-test", log); err == nil {
		m.Errorf("the audit log of %s has the content of a Secret:\n%s", m.node.Name(), out)
	}
	if tokens, err := m.try("grep", "-c", `"token":"ey`, log); err == nil {
		m.Errorf("the audit log of %s has tokens: %s", m.node.Name(), tokens)
	}
	admin.kubectl("delete", "secret/"+name, "role/"+name)
}

// hasHardenedFiles checks modes and owners: only certificates and directories may be readable by others.
func (m machine) hasHardenedFiles() {
	m.Helper()
	open := m.must("find", "/etc/kubernetes", "/var/log/kubernetes/audit", "/var/lib/kubelet/config.yaml", "-type", "f", "-perm", "/0077", "!", "-name", "*.crt", "!", "-name", "*.pub")
	foreign := m.must("find", "/etc/kubernetes", "/var/lib/etcd", "/var/log/kubernetes", "/var/lib/kubelet/pki", "!", "-uid", "0")
	m.must("test", "-s", "/etc/kubernetes/hardening/authentication.yaml", "-a", "-s", "/etc/kubernetes/hardening/admission.yaml", "-a", "-s", "/etc/kubernetes/audit/audit.yaml")
	if open != "" || foreign != "" {
		m.Errorf("%s: files that others can read:\n%s\nfiles that don't belong to root:\n%s", m.node.Name(), open, foreign)
	}
	if mode := m.must("stat", "-c", "%a", "/var/lib/etcd", "/var/log/kubernetes/audit"); mode != "700\n700\n" {
		m.Errorf("%s: modes of etcd's data and the audit log are %q", m.node.Name(), mode)
	}
}

func (m machine) hasHardenedKubelet() {
	m.Helper()
	fact.In(m.T, m.must("cat", "/var/lib/kubelet/config.yaml"), "protectKernelDefaults: true", "seccompDefault: true", "podPidsLimit: 4096", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
}

// refusesPrivilegedPods checks Pod Security in a namespace without labels.
func (m machine) refusesPrivilegedPods() {
	m.Helper()
	out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "run", "privileged", "--image=none", "--privileged")
	if err == nil {
		m.Errorf("a privileged Pod was admitted: %s", out)
	}
	fact.In(m.T, out, "PodSecurity", "baseline")
}

// initAgainChangesNothing runs the same command on the finished node.
func (m machine) initAgainChangesNothing() {
	m.Helper()
	before := m.must("find", "/etc/kubernetes", "-type", "f", "-printf", `%p %m %T@\n`)
	m.must("slipway", "init", "--config=/root/slipway.yaml", "--profile=cis")
	if after := m.must("find", "/etc/kubernetes", "-type", "f", "-printf", `%p %m %T@\n`); after != before {
		m.Errorf("init again changed files:\n%s\nwere\n%s", after, before)
	}
}

// failsItems runs the check: these items fail, and all others pass. etcd runs as root here, kubelets sign their own serving
// certificates, and the lab's unit has mode 0644.
func (m machine) failsItems(want ...string) {
	m.Helper()
	var check struct {
		Items []struct{ ID, Status, Subject, Found string }
	}
	out := m.must("sh", "-c", "slipway check cis -o json; test $? = 2")
	if err := json.Unmarshal([]byte(out), &check); err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
	for _, i := range check.Items {
		if passes := i.Status == "pass"; passes == slices.Contains(want, i.ID) {
			m.Errorf("%s: %+v", m.node.Name(), i)
		}
	}
	m.Logf("%s: %d items, of which %s fail", m.node.Name(), len(check.Items), strings.Join(want, ", "))
}
