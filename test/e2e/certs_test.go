// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/tier"
)

// TestCerts lets every leaf certificate of a control plane expire, including the kubelet's, and repairs it with one
// command.
func TestCerts(t *testing.T) {
	tier.OnlyFull(t, "TestNode/certs")
	m := boot(t)
	m.init(document("", podSubnet+`
encryptionAlgorithm: ECDSA-P256
certificateValidityPeriod: 2m0s
apiServer: {certSANs: [extra.example]}`))
	m.usesUserKubeconfig()
	m.renewsOneByName()
	m.expires()
	m.must("slipway", "certs", "renew", "all", "--restart")
	m.healthy(everything)
	if out, err := m.try("slipway", "certs", "check-expiration", "--exit-code", "--within", "1h"); err != nil {
		t.Errorf("after the renewal: %v\n%s", err, out)
	}
	cert := m.certificate("/etc/kubernetes/pki/apiserver.crt")
	if err := cert.VerifyHostname("extra.example"); err != nil {
		t.Error(err)
	}
	if cert.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("the key is now of kind %s", cert.PublicKeyAlgorithm)
	}
}

// usesUserKubeconfig creates a kubeconfig file for a user and uses it.
func (m machine) usesUserKubeconfig() {
	m.Helper()
	m.write("/root/user.conf", m.must("slipway", "kubeconfig", "user", "--client-name", "somebody", "--org", "kubeadm:cluster-admins"))
	if out := m.must("kubectl", "--kubeconfig", "/root/user.conf", "auth", "whoami"); !strings.Contains(out, "somebody") {
		m.Errorf("whoami: %s", out)
	}
}

// renewsOneByName renews only the scheduler's certificate and restarts only the scheduler.
func (m machine) renewsOneByName() {
	m.Helper()
	before := m.must("cat", "/etc/kubernetes/pki/apiserver.crt")
	out, err := m.try("slipway", "certs", "renew", "scheduler.conf", "--restart")
	if err != nil || !strings.Contains(out, "Restarting kube-scheduler") || strings.Contains(out, "Restarting kube-apiserver") {
		m.Errorf("renew scheduler.conf --restart: %v\n%s", err, out)
	}
	if m.must("cat", "/etc/kubernetes/pki/apiserver.crt") != before {
		m.Error("another certificate was renewed as well")
	}
}

// expires waits until the certificates have expired, gives the kubelet an expired one as well, and checks that nothing
// works.
func (m machine) expires() {
	m.Helper()
	m.must("systemctl", "stop", "kubelet")
	const pki = "/etc/kubernetes/pki/"
	until := m.certificate(pki + "apiserver.crt").NotAfter
	// The kubelet gets an expired certificate of its own, with its kubeconfig file.
	m.must("sh", "-c", "slipway kubeconfig user --client-name system:node:cp-1 --org system:nodes --validity-period 1s >/root/kubelet.conf")
	m.must("sh", "-c", `for f in certificate key; do sed -n "s/.*client-$f-data: //p" /root/kubelet.conf | base64 -d; done >/root/kubelet.pem`)
	m.must("sh", "-c", "rm /var/lib/kubelet/pki/kubelet-client-*.pem && cp /root/kubelet.pem /var/lib/kubelet/pki/kubelet-client-old.pem && "+
		"ln -s kubelet-client-old.pem /var/lib/kubelet/pki/kubelet-client-current.pem")
	block, _ := pem.Decode([]byte(m.must("cat", "/root/kubelet.pem")))
	if block == nil {
		m.Fatal("no certificate in the kubelet's file")
	}
	m.elsewhere(func() { time.Sleep(time.Until(until)) })
	m.eventually("the API to refuse certificates that have expired", time.Minute, func() error { // the scheduler's was renewed a little later
		if out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "nodes"); err == nil {
			return fmt.Errorf("it still answers: %s", out)
		}
		if m.certificate("/etc/kubernetes/pki/apiserver.crt").NotAfter.After(time.Now()) {
			return errors.New("its own is still valid")
		}
		return nil
	})
	if out, err := m.try("slipway", "certs", "check-expiration", "--exit-code"); err == nil || !strings.Contains(out, "<invalid>") {
		m.Errorf("check-expiration of expired certificates: %v\n%s", err, out)
	}
}
