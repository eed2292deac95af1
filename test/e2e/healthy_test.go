// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// readyLimit is for things that take seconds, or minutes on a busy machine. The kubelet delays the restart of a container that has
// ended several times by up to five.
const readyLimit = 10 * time.Minute

// expectation describes the healthy cluster of a test.
type expectation struct {
	pods    []string // prefixes of the names of the Pods in kube-system
	dnsName string   // of the probe's Service; empty where there is no DNS
}

var everything = expectation{
	pods:    []string{"coredns-", "etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-proxy-", "kube-scheduler-"},
	dnsName: "probe.default.svc.cluster.local",
}

// healthy fails the test unless a one-node cluster works: the node is Ready, every Pod runs, a Service is found by name and
// answers, and the kubelet can renew its client certificate.
func (m machine) healthy(want expectation) {
	m.Helper()
	name := m.node.Name()
	m.eventually("node Ready", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "node", name,
			"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil || out != "True" {
			return fmt.Errorf("Ready is %q: %v", out, err)
		}
		return nil
	})
	m.podsRun(want.pods)
	m.rotatable(name)
	if want.dnsName != "" {
		m.serviceAnswers(want.dnsName)
	}
}

// podsRun waits until kube-system has exactly the Pods with these prefixes, all Ready.
func (m machine) podsRun(prefixes []string) {
	m.Helper()
	m.eventually("every Pod Ready", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "kube-system", "get", "pods",
			"-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if err != nil {
			return fmt.Errorf("%v: %s", err, out)
		}
		missing := append([]string(nil), prefixes...)
		for line := range strings.Lines(out) {
			pod, ready, _ := strings.Cut(strings.TrimSpace(line), " ")
			if ready != "True" {
				return fmt.Errorf("Pod %s is not Ready", pod)
			}
			known := false
			for i, p := range missing {
				if strings.HasPrefix(pod, p) {
					missing = append(missing[:i], missing[i+1:]...)
					known = true
					break
				}
			}
			for _, p := range prefixes {
				known = known || strings.HasPrefix(pod, p)
			}
			if !known {
				return fmt.Errorf("Pod %s is not expected", pod)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("no Pod %v", missing)
		}
		return nil
	})
}

// rotatable checks that the kubelet reads its rotated certificate, and that the controller manager would approve the renewal.
func (m machine) rotatable(node string) {
	m.Helper()
	const pem = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	if conf := m.must("cat", "/etc/kubernetes/kubelet.conf"); !strings.Contains(conf, "client-certificate: "+pem) {
		m.Error("kubelet.conf does not point at the certificate that the kubelet rotates")
	}
	m.must("test", "-s", pem)
	for _, verb := range [][]string{
		{"create", "certificatesigningrequests.certificates.k8s.io"},
		{"create", "certificatesigningrequests.certificates.k8s.io/selfnodeclient"},
	} {
		m.kubectl(append([]string{"auth", "can-i", "--as", "system:node:" + node, "--as-group", "system:nodes",
			"--as-group", "system:authenticated"}, verb...)...)
	}
}

// serviceAnswers starts a server and a client as Pods; the client finds the server by its Service's name.
func (m machine) serviceAnswers(name string) {
	m.Helper()
	m.write("/root/probe.yaml", strings.ReplaceAll(strings.ReplaceAll(probeManifest, "IMAGE", nodes.ProbeImage), "NAME", name))
	m.create("/root/probe.yaml")
	m.eventually("the Service to answer by name", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "pod", "client", "-o", "jsonpath={.status.phase}")
		if err != nil || out != "Succeeded" {
			logs, _ := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "logs", "client", "--tail=3")
			return fmt.Errorf("the client is %q: %s", out, logs)
		}
		return nil
	})
	m.kubectl("delete", "-f", "/root/probe.yaml", "--wait=false", "--force", "--grace-period=0")
}

// probeManifest's Pods tolerate every taint, as the only node is a control plane.
const probeManifest = `apiVersion: v1
kind: Pod
metadata: {name: server, namespace: default, labels: {app: probe}}
spec:
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers:
  - {name: server, image: IMAGE, imagePullPolicy: Never, args: [serve, ":8080"]}
---
apiVersion: v1
kind: Service
metadata: {name: probe, namespace: default}
spec:
  selector: {app: probe}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers:
  - {name: client, image: IMAGE, imagePullPolicy: Never, args: [get, "http://NAME/"]}
`
