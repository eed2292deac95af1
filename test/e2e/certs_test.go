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

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestCerts lets every leaf certificate of a control plane expire, including the kubelet's, and repairs them with one command.
func TestCerts(t *testing.T) {
	tier.OnlyFull(t, "TestNode/certs")
	m := boot(t)
	config := document("", podSubnet+`
encryptionAlgorithm: ECDSA-P256
certificateValidityPeriod: 2m0s
apiServer: {certSANs: [extra.example]}`)
	m.init(config)
	m.usesUserKubeconfig()
	m.renewsOneByName()
	m.expires()
	m.must("slipway", "certs", "renew", "all", "--restart") // without the API, for as long as before
	m.write("/root/longer.yaml", strings.Replace(config, "2m0s", "8760h0m0s", 1))
	m.must("slipway", "certs", "renew", "all", "--restart", "--config=/root/longer.yaml")
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

// expires waits until the certificates have expired, gives the kubelet an expired one too, and checks that nothing works.
func (m machine) expires() {
	m.Helper()
	m.must("systemctl", "stop", "kubelet")
	const pki = "/etc/kubernetes/pki/"
	until := m.certificate(pki + "apiserver.crt").NotAfter
	// The kubelet gets its own expired certificate, with its kubeconfig file.
	m.must("sh", "-c", "slipway kubeconfig user --client-name system:node:cp-1 --org system:nodes --validity-period 1s >/root/kubelet.conf")
	m.must("sh", "-c", `for f in certificate key; do sed -n "s/.*client-$f-data: //p" /root/kubelet.conf | base64 -d; done >/root/kubelet.pem`)
	m.must("sh", "-c", "rm /var/lib/kubelet/pki/kubelet-client-*.pem && cp /root/kubelet.pem /var/lib/kubelet/pki/kubelet-client-old.pem && "+
		"ln -s kubelet-client-old.pem /var/lib/kubelet/pki/kubelet-client-current.pem")
	block, _ := pem.Decode([]byte(m.must("cat", "/root/kubelet.pem")))
	if block == nil {
		m.Fatal("no certificate in the kubelet's file")
	}
	m.elsewhere(func() { time.Sleep(time.Until(until)) })
	m.eventually("the API to refuse certificates that have expired", time.Minute, func() error { // the scheduler's was renewed later
		if out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "nodes"); err == nil {
			return fmt.Errorf("it still answers: %s", out)
		}
		if m.certificate("/etc/kubernetes/pki/apiserver.crt").NotAfter.After(time.Now()) {
			return errors.New("its own is still valid")
		}
		return nil
	})
	m.eventually("check-expiration to call them invalid", time.Minute, func() error { // for two seconds, 0s remain, as kubeadm prints
		if out, err := m.try("slipway", "certs", "check-expiration", "--exit-code"); err == nil || !strings.Contains(out, "<invalid>") {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
}

// followsUserKubeconfig moves admin.conf away and finds the cluster with the user's settings: a list of files that only together
// have a complete context, and ~/.kube/config. These also take precedence over admin.conf.
func followsUserKubeconfig(m machine) {
	const token = "abcdef.0123456789abcdef"
	m.must("slipway", "token", "create", token)
	m.splitKubeconfig("/root/a", "/root/b")
	m.must("mv", "/etc/kubernetes/admin.conf", "/root/moved.conf")

	list := []string{"env", "HOME=/nowhere", "KUBECONFIG=/root/missing:/root/a:/root/b", "slipway"}
	home := []string{"env", "-u", "KUBECONFIG", "HOME=/root/home", "slipway"}
	m.must("mkdir", "-p", "/root/home/.kube")
	m.must("cp", "/root/moved.conf", "/root/home/.kube/config")
	for _, as := range [][]string{list, home} {
		if out := m.must(append(as, "token", "list")...); !strings.Contains(out, token) {
			m.Errorf("%s token list prints %q", strings.Join(as, " "), out)
		}
		made := m.must(append(as, "token", "create", "--print-join-command")...)
		if !strings.HasPrefix(made, "slipway join 192.168.99.11:6443 --token ") {
			m.Errorf("%s token create prints %q", strings.Join(as, " "), made)
		}
		m.must(append(as, "token", "delete", strings.Fields(made)[4])...)
	}

	m.must("mv", "/root/moved.conf", "/etc/kubernetes/admin.conf")
	m.must("kubectl", "--kubeconfig", "/root/b", "config", "set-cluster", "kubernetes", "--server", "https://user:hunter2 x@192.0.2.1")
	out, err := m.try(append(list, "token", "list")...)
	if err == nil || !strings.Contains(out, "/root/a:/root/b") || strings.Contains(out, "hunter2") {
		m.Errorf("with an invalid server URL in KUBECONFIG: %v, %s", err, out)
	}
	if out := m.must(append(list, "token", "list", "--kubeconfig", "/etc/kubernetes/admin.conf")...); !strings.Contains(out, token) {
		m.Errorf("--kubeconfig does not take precedence over KUBECONFIG: %q", out)
	}
}

// splitKubeconfig splits admin.conf into one file with the context and the user, and one with the cluster.
func (m machine) splitKubeconfig(user, cluster string) {
	m.Helper()
	for path, without := range map[string][]string{user: {"clusters"}, cluster: {"users", "contexts", "current-context"}} {
		m.must("cp", "/etc/kubernetes/admin.conf", path)
		for _, what := range without {
			m.must("kubectl", "--kubeconfig", path, "config", "unset", what)
		}
	}
}

// replacesCA replaces the cluster's CA with another: renewing shows both, and changes and restarts nothing. With the former CA
// back, everything still works.
func (m machine) replacesCA() {
	m.Helper()
	m.setsCAAside()
	m.must("cp", "/root/next-ca/ca.crt", "/root/next-ca/ca.key", "/etc/kubernetes/pki/")
	was := m.filesAndContainers()
	out, err := m.try("slipway", "certs", "renew", "all", "--restart")
	if err == nil {
		m.Errorf("renewing with another CA succeeded:\n%s", out)
	}
	fact.In(m, out, "/var/lib/kubelet/pki/kubelet-client-current.pem", "/etc/kubernetes/pki/ca.crt", "CN=kubernetes")
	fact.NotIn(m, out, "Renewed", "Restarting")
	if now := m.filesAndContainers(); now != was {
		m.Errorf("before:\n%s\nafterwards:\n%s", was, now)
	}
	m.must("cp", "/root/ca/ca.crt", "/root/ca/ca.key", "/etc/kubernetes/pki/")
	m.healthy(everything)
	m.must("rm", "-r", "/root/ca", "/root/next-ca")
}

// setsCAAside copies the CA to /root/ca, and makes another in /root/next-ca.
func (m machine) setsCAAside() {
	m.Helper()
	m.must("mkdir", "/root/ca")
	m.must("cp", "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/ca.key", "/root/ca/")
	m.must("slipway", "init", "phase", "certs", "ca", "--cert-dir=/root/next-ca")
}

// usesTwoCAs takes the cluster to a state in which the next CA signs and everything trusts both, and back.
func (m machine) usesTwoCAs() {
	m.Helper()
	m.setsCAAside()
	const manager = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
	for i, step := range []struct{ certs, key string }{
		{"/root/ca/ca.crt /root/next-ca/ca.crt", "/root/ca/ca.key"},
		{"/root/next-ca/ca.crt /root/ca/ca.crt", "/root/next-ca/ca.key"},
		{"/root/ca/ca.crt", "/root/ca/ca.key"},
	} {
		m.must("sh", "-c", "cat "+step.certs+" >/etc/kubernetes/pki/ca.crt")
		m.must("cp", step.key, "/etc/kubernetes/pki/ca.key")
		m.must("slipway", "certs", "renew", "all", "--restart")
		if i == 0 {
			m.restartsUsersOfCAs()
		}
		m.healthy(everything)
	}
	fact.In(m, m.must("cat", manager), "--cluster-signing-cert-file=/etc/kubernetes/pki/ca-signer.crt")
	m.must("sed", "-i", "s,ca-signer.crt,ca.crt,", manager)
	m.must("rm", "-r", "/root/ca", "/root/next-ca", "/etc/kubernetes/pki/ca-signer.crt")
	m.healthy(everything)
}

// restartsUsersOfCAs restarts the Pods that read the CAs at their start, once their files have them.
func (m machine) restartsUsersOfCAs() {
	m.Helper()
	m.eventually("the CAs in kube-root-ca.crt", readyLimit, func() error {
		if got := m.kubectl("-n", "kube-system", "get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"); got != m.must("cat", "/etc/kubernetes/pki/ca.crt") {
			return errors.New(got)
		}
		return nil
	})
	for _, user := range []string{"daemonset/kube-proxy", "deployment/coredns"} {
		m.kubectl("-n", "kube-system", "rollout", "restart", user)
		m.kubectl("-n", "kube-system", "rollout", "status", user, "--timeout=5m")
	}
}

// filesAndContainers lists the control plane's files and its containers.
func (m machine) filesAndContainers() string {
	m.Helper()
	files := m.must("sh", "-c", "find /etc/kubernetes -type f -exec sha256sum {} + | sort")
	ids := m.containerIDs() // the others may lose their leases
	return fmt.Sprintf("%s\n%s %s", files, ids["etcd"], ids["kube-apiserver"])
}
