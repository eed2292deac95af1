// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/pkg/errors"
)

const pin = `--discovery-token-ca-cert-hash sha256:[0-9a-f]{64}`

// managesTokens creates, lists and deletes tokens, and compares the list with kubeadm's.
func managesTokens(m machine) {
	m.matches(`^abcdef\.0123456789abcdef\n$`, "token", "create", "abcdef.0123456789abcdef", "--ttl", "0", "--description", "for ever")
	m.matches(`^slipway join 192\.168\.99\.11:6443 --token [a-z0-9]{6}\.[a-z0-9]{16} `+pin+`\n$`, "token", "create", "--print-join-command")
	m.sameList()
	m.signerAgrees()
	m.sharesCerts()
	m.refuses(`a bootstrap token with the ID "abcdef" already exists`, "token", "create", "abcdef.0123456789abcdef")
	m.refuses(`argument 1: is neither a token ID`, "token", "delete", "abcdef.0123")
	m.matches(`"command": "token create",[^$]*"name": "bootstrap-token-fedcba"`, "token", "create", "fedcba.0123456789abcdef", "--dry-run", "-o", "json")
	m.matches(`^Plan: 1 step\.[^$]*delete Secret kube-system/bootstrap-token-abcdef\n$`, "token", "delete", "abcdef", "--dry-run")
	m.matches(`^bootstrap token "abcdef" deleted\n$`, "token", "delete", "abcdef.0123456789abcdef")
	m.refuses(`there is no bootstrap token with the ID abcdef`, "token", "delete", "abcdef")
}

// matches runs slipway and matches its standard output against a pattern.
func (m machine) matches(pattern string, args ...string) {
	m.Helper()
	if out := m.must(append([]string{"slipway"}, args...)...); !regexp.MustCompile(pattern).MatchString(out) {
		m.Errorf("slipway %s prints %q, want %s", strings.Join(args, " "), out, pattern)
	}
}

// refuses runs slipway, which must fail without printing a token's secret.
func (m machine) refuses(message string, args ...string) {
	m.Helper()
	out, err := m.try(append([]string{"slipway"}, args...)...)
	if err == nil || !strings.Contains(out, message) || strings.Contains(out, "0123") {
		m.Errorf("slipway %s: %v, %q, want %q", strings.Join(args, " "), err, out, message)
	}
}

// sameList compares the token lists for scripts with kubeadm's.
func (m machine) sameList() {
	m.Helper()
	for _, form := range []string{"json", "yaml", `jsonpath={.token} {.usages} {.groups} {.expires}{"\n"}`, `go-template={{.token}}{{"\n"}}`} {
		got, want := m.must("slipway", "token", "list", "-o", form), m.must("kubeadm", "token", "list", "-o", form)
		if got != want {
			m.Errorf("token list -o %s:\n%s\nkubeadm's:\n%s", form, got, want)
		}
	}
}

// signerAgrees makes the controller manager sign with a token that Slipway didn't create. It then checks all signatures, and must
// find nothing to change in Slipway's.
func (m machine) signerAgrees() {
	m.Helper()
	info := func() map[string]any {
		return m.get("configmap", "cluster-info", "--namespace=kube-public")
	}
	ours, _ := info()["data"].(map[string]any)
	if len(ours) < 4 { // the kubeconfig, and signatures with the tokens of init and of token create
		m.Errorf("cluster-info has only %d signatures", len(ours)-1)
	}
	m.kubectl("create", "secret", "generic", "bootstrap-token-others", "--namespace=kube-system", "--type=bootstrap.kubernetes.io/token",
		"--from-literal=token-id=others", "--from-literal=token-secret=0123456789abcdef", "--from-literal=usage-bootstrap-signing=true")
	m.eventually("the signature of the controller manager", readyLimit, func() error {
		if data, _ := info()["data"].(map[string]any); data["jws-kubeconfig-others"] == nil {
			return errors.New("cluster-info is not signed with the other token")
		}
		return nil
	})
	now, _ := info()["data"].(map[string]any)
	for key, value := range ours {
		if now[key] != value {
			m.Errorf("the controller manager has replaced %s in cluster-info", key)
		}
	}
}

// sharesCerts prints the whole command for a control plane. Its key decrypts the uploaded files.
func (m machine) sharesCerts() {
	m.Helper()
	var made struct {
		Token, JoinCommand, CertificateKey string
		CACertHashes                       []string
	}
	text := m.must("slipway", "token", "create", "--print-join-command", "--control-plane", "-o", "json")
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		m.Fatal(err)
	}
	if want := "--control-plane --certificate-key " + made.CertificateKey; len(made.CertificateKey) != 64 || !strings.HasSuffix(made.JoinCommand, want) {
		m.Errorf("the join command is %q", made.JoinCommand)
	}
	if len(made.CACertHashes) != 1 || !strings.Contains(made.JoinCommand, " --discovery-token-ca-cert-hash "+made.CACertHashes[0]+" ") {
		m.Errorf("the hashes are %q, in the join command %q", made.CACertHashes, made.JoinCommand)
	}
	secret := m.get("secret", "-n", "kube-system", "kubeadm-certs")
	if data, _ := secret["data"].(map[string]any); len(data) != 8 {
		m.Errorf("kubeadm-certs holds %d files", len(data))
	}
}
