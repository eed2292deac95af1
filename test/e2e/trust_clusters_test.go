// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
)

const kubeletClient = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// saysJoinedWhenItHas: a worker was switched off until its certificate expired. Nobody signs a new one, so its join fails and can
// be repeated. Once somebody signs, the join succeeds with a valid certificate and a node that reports.
func (m machine) saysJoinedWhenItHas(w machine, args []string) {
	m.Helper()
	w.must("systemctl", "stop", "kubelet")
	w.write(kubeletClient, m.expiredClient(w.node.Name()))
	const signer, away = "/etc/kubernetes/manifests/kube-controller-manager.yaml", "/root/kube-controller-manager.yaml"
	m.must("mv", signer, away)
	m.eventually("the controller manager to stop", readyLimit, func() error {
		if out, err := m.try("pgrep", "-f", "^kube-controller-manager"); err == nil {
			return errors.New("process " + out)
		}
		return nil
	})

	at := slices.Index(args, "--token") + 1
	w.write("/root/join.yaml", `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {apiServerEndpoint: "`+args[0]+`", token: `+args[at]+`, unsafeSkipCAVerification: true}}
nodeRegistration: {ignorePreflightErrors: [all]}
timeouts: {tlsBootstrap: 8s}
`)
	out, err := w.try("slipway", "join", "--config=/root/join.yaml")
	if err == nil || strings.Contains(out, "has joined") {
		m.Errorf("a join that nobody signs for: %v\n%s", err, out)
	}
	if out, err := w.try("test", "-e", "/etc/kubernetes/bootstrap-kubelet.conf"); err != nil {
		m.Errorf("the credentials to join with are gone: %v %s", err, out)
	}

	m.must("mv", away, signer)
	if out, err := w.try(append([]string{"slipway", "join"}, args...)...); err != nil {
		m.Fatalf("the same join, signed for: %v\n%s", err, out)
	}
	if cert := w.certificate(kubeletClient); time.Now().After(cert.NotAfter) {
		m.Errorf("the kubelet's certificate ended on %s", cert.NotAfter)
	}
	m.ready(w.node.Name())
}

// expiredClient returns a client certificate with its key for a kubelet of m's cluster. It expired an hour ago.
func (m machine) expiredClient(node string) string {
	m.Helper()
	ca, err := tls.X509KeyPair([]byte(m.must("cat", "/etc/kubernetes/pki/ca.crt")), []byte(m.must("cat", "/etc/kubernetes/pki/ca.key")))
	if err != nil {
		m.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7),
		Subject:   pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		m.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		m.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}

// joinsOldCluster makes a cluster's ConfigMaps look as if other versions and an editor had written them, and works with that
// cluster.
func (m machine) joinsOldCluster(w machine, args []string) {
	m.Helper()
	m.editStored("kubeadm-config", "ClusterConfiguration", func(text string) string {
		return text + "useHyperKubeImage: false\nfutureField: {a: [1, two]}\nfeatureGates: {EtcdLearnerMode: true, ControlPlaneKubeletLocalMode: true}\n"
	})
	m.editStored("kubelet-config", "kubelet", func(text string) string { return text + "futureField: 5\n" })

	m.takesOut(w)
	out, err := w.try(append([]string{"slipway", "join"}, args...)...)
	if err != nil {
		m.Fatalf("a worker cannot join: %v\n%s", err, out)
	}
	for _, want := range []string{"useHyperKubeImage", "ConfigMap kube-system/kubelet-config:", "EtcdLearnerMode"} {
		if strings.Count(out, want) != 1 {
			m.Errorf("join does not warn once of %q:\n%s", want, out)
		}
	}
	fact.In(m, out, "ConfigMap kube-system/kubeadm-config", "futureField")
	m.ready(w.node.Name()) // so its kubelet accepts the unknown field, too

	m.worksWithStored()
	m.must("slipway", "init", "phase", "upload-config", "all", "--config", "/root/slipway.yaml")
	for _, kept := range []string{"useHyperKubeImage: false", "two", "EtcdLearnerMode: true", "ControlPlaneKubeletLocalMode: true"} {
		if text := m.storedText("kubeadm-config", "ClusterConfiguration"); !strings.Contains(text, kept) {
			m.Errorf("upload-config lost %q:\n%s", kept, text)
		}
	}
	if text := m.storedText("kubelet-config", "kubelet"); !strings.Contains(text, "futureField: 5") {
		m.Errorf("upload-config lost futureField:\n%s", text)
	}

	m.editStored("kubeadm-config", "ClusterConfiguration", func(text string) string {
		return strings.Replace(text, "kubernetesVersion: v1.3", "kubernetesVersion: v1.30.14 # v1.3", 1)
	})
	m.worksWithStored()
	m.takesOut(w)
	if out, err := w.try(append([]string{"slipway", "join"}, args...)...); err == nil || !strings.Contains(out, `kubernetesVersion: "v1.30.14"`) ||
		!strings.Contains(out, "with kubeadm of") {
		m.Errorf("joining a cluster of 1.30: %v\n%s", err, out)
	}
}

// takesOut turns a worker back into a host.
func (m machine) takesOut(w machine) {
	m.Helper()
	w.reset()
	m.kubectl("delete", "node", w.node.Name())
}

// worksWithStored runs the commands that read the cluster's configuration on a control plane. They mustn't fall back to the
// defaults.
func (m machine) worksWithStored() {
	m.Helper()
	for _, args := range [][]string{
		{"certs", "check-expiration"}, {"certs", "renew", "front-proxy-client"}, {"token", "create", "--print-join-command"},
		{"token", "create", "--print-join-command", "--control-plane"}, {"kubeconfig", "user", "--client-name=ann"},
	} {
		out, err := m.try(append([]string{"slipway"}, args...)...)
		if err != nil || strings.Contains(out, "the defaults") {
			m.Errorf("slipway %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func (m machine) storedText(name, key string) string {
	m.Helper()
	return m.kubectl("-n", "kube-system", "get", "configmap", name, "-o", "jsonpath={.data."+key+"}")
}

func (m machine) editStored(name, key string, edit func(text string) string) {
	m.Helper()
	text := edit(m.storedText(name, key))
	patch, err := json.Marshal(map[string]any{"data": map[string]string{key: text}})
	if err != nil {
		m.Fatal(err)
	}
	m.kubectl("-n", "kube-system", "patch", "configmap", name, "--type=merge", "-p", string(patch))
}
