// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/test/fact"
)

// replacesCA puts another CA into the place of the cluster's: renewing shows both, and changes and restarts nothing. With the
// former one, everything works on.
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

// setsCAAside copies the CA to /root/ca, and makes another one in /root/next-ca.
func (m machine) setsCAAside() {
	m.Helper()
	m.must("mkdir", "/root/ca")
	m.must("cp", "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/ca.key", "/root/ca/")
	m.must("slipway", "init", "phase", "certs", "ca", "--cert-dir=/root/next-ca")
}

// usesTwoCAs takes the cluster to a state in which the next CA signs and all trust both, and back.
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

// restartsUsersOfCAs restarts the Pods that read the CAs when they start, once these are where they read them.
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

// filesAndContainers are the files of the control plane, and its containers.
func (m machine) filesAndContainers() string {
	m.Helper()
	files := m.must("sh", "-c", "find /etc/kubernetes -type f -exec sha256sum {} + | sort")
	return fmt.Sprintf("%s\n%s", files, m.must("sh", "-c", "ctr -n k8s.io tasks ls -q | sort"))
}
