// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"strings"
	"testing"
)

const (
	hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	key   = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIcanary\n-----END EC PRIVATE KEY-----\n"
	jwt   = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlY2FuYXJ5"
)

func TestText(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"nothing":        {"the kubelet is healthy", "the kubelet is healthy"},
		"a key":          {"a\n" + key + "b", "a\n-----BEGIN EC PRIVATE KEY----- [redacted]\nb"},
		"a key cut off":  {key[:50], "-----BEGIN EC PRIVATE KEY----- [redacted]"},
		"a certificate":  {"-----BEGIN CERTIFICATE-----\nMII\n", "-----BEGIN CERTIFICATE-----\nMII\n"},
		"base64 of keys": {"x: " + base64.StdEncoding.EncodeToString([]byte(key)), "x: [redacted]"},
		"a token":        {"token abcdef.0123456789abcdef!", "token abcdef.[redacted]!"},
		"no token":       {"file.0123456789abcdefg", "file.0123456789abcdefg"},
		"a JWT":          {"got " + jwt, "got [redacted]"},
		"a header":       {"Authorization: Bearer abcdefgh12345", "Authorization: Bearer [redacted]"},
		"a proxy":        {"HTTPS_PROXY=http://me:hunter2@proxy:3128", "HTTPS_PROXY=http://[redacted]@proxy:3128"},
		"a URL":          {"https://api.example.org:6443/x@y", "https://api.example.org:6443/x@y"},
		"a flag":         {"--discovery-token=secret1 --v=3", "--discovery-token=[redacted] --v=3"},
		"flag and value": {"--certificate-key secret1 x", "--certificate-key [redacted] x"},
		"flag of a file": {"--token-auth-file=/etc/tokens --service-account-key-file=/sa.pub", "--token-auth-file=/etc/tokens --service-account-key-file=/sa.pub"},
		"TOML":           {`password = "hunter2"`, `password = [redacted]`},
		"JSON":           {`{"token":"hunter2","a":1}`, `{"token":[redacted],"a":1}`},
		"JSON in a line": {`body="{\"secretKey\":\"hunter2\",\"a\":1}"`, `body="{\"secretKey\":[redacted]\",\"a\":1}"`},
		"a switch":       {"--enable-bootstrap-token-auth=true automountServiceAccountToken: false", "--enable-bootstrap-token-auth=true automountServiceAccountToken: false"},
		"a hex key":      {"key " + hex64, "key [redacted]"},
		"a digest":       {"image@sha256:" + hex64, "image@sha256:" + hex64},
		"a container":    {"container " + strings.Repeat("a", 64), "container " + strings.Repeat("a", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(test.in, strings.Repeat("a", 64)); got != test.want {
				t.Errorf("%q is shown as %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestYAML(t *testing.T) {
	in := `apiVersion: v1
kind: Config
users:
- name: a
  user: {client-certificate-data: Q0VSVA==, client-key-data: canary1, token: canary2, password: canary3, username: canary4}
- name: b
  user: {exec: {command: get, env: [{name: X, value: canary5}, {name: https_proxy, value: "http://u:canary6@p:1"}]}, tokenFile: /var/token}
---
apiVersion: v1
kind: Secret
metadata: {name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: canary7}}
data: {a: canary8}
stringData: {b: canary9}
---
kind: InitConfiguration
certificateKey: canary10
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
---
[not YAML: canary11
`
	got := string(YAML([]byte(in)))
	if strings.Contains(got, "canary") || strings.Contains(got, "0123456789abcdef") {
		t.Errorf("shows a secret:\n%s", got)
	}
	for _, kept := range []string{"client-certificate-data: Q0VSVA==", "tokenFile: /var/token", "http://[redacted]@p:1", "a: '[redacted]'", "a document that is no YAML was left out"} {
		if !strings.Contains(got, kept) {
			t.Errorf("lacks %q:\n%s", kept, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	in := "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/x\"\nEnvironment=APP=canary\nEnvironment=HTTPS_PROXY=http://u:canary@p:1\nKUBELET_EXTRA_ARGS=--token=canary\n"
	want := "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/x\"\nEnvironment=APP=[redacted]\nEnvironment=HTTPS_PROXY=http://[redacted]@p:1\nKUBELET_EXTRA_ARGS=--token=[redacted]\n"
	if got := Environment(in); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzText looks for text that keeps a secret, whatever stands around it.
func FuzzText(f *testing.F) {
	f.Add("token=", "&x")
	f.Add("\"", "\\n")
	f.Add("--token ", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, secret := range []string{"\nabcdef.0123456789abcdef\n", " " + hex64 + " ", "\n" + key} {
			text := Text(before + secret + after)
			for _, part := range []string{"0123456789abcdef0123456789", ".0123456789abcdef", "IcanaryX"[:7]} {
				if strings.Contains(text, part) && !strings.Contains(before+after, part) && !strings.Contains(before, "sha256:") {
					t.Errorf("%q is shown as %q", before+secret+after, text)
				}
			}
		}
	})
}
