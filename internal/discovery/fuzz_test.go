// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/jws"
)

// FuzzClusterInfo: whatever the server answers, only content signed with the token is read, and that must have one https server
// and certificates to trust. No error contains the token's secret.
func FuzzClusterInfo(f *testing.F) {
	honest := newFake(f)
	other := authority{}.sign(f, asCA)
	pin := honest.ca.pin()
	f.Add(honest.body(), honest.info, pin)
	f.Add([]byte(`{"kind":"ConfigMap","metadata":{"name":"cluster-info"},"data":{"kubeconfig":"a","jws-kubeconfig-abcdef":"eyJhbGciOiJub25lIn0.."}}`), "a: &a [*a]", "sha256:")
	honest.describe(f, "https://192.0.2.1:6443", honest.ca.pem()+other.pem())
	f.Add(honest.body(), honest.info, strings.ToUpper(pin))
	honest.describe(f, "http://user:"+tokenSecret+"@192.0.2.1", "")
	f.Add([]byte("[]"), honest.info, other.pin())
	f.Fuzz(func(t *testing.T, body []byte, kubeconfig, pin string) {
		token := &Token{Endpoint: "192.0.2.1:6443", ID: tokenID, Secret: tokenSecret, Now: time.Now}
		content, err := token.verify(body)
		discreet(t, err, tokenSecret)
		if err == nil && !signed(t, body, string(content)) {
			t.Errorf("%q is not signed", content)
		}
		// A compromised signer could send this.
		info := signedInfo(t, kubeconfig)
		if content, err = token.verify(info); err != nil || string(content) != strings.ToValidUTF8(kubeconfig, "\ufffd") {
			t.Fatalf("signed %q, got %q, %v", kubeconfig, content, err)
		}
		found, err := clusterOf(token.where(), content)
		discreet(t, err, tokenSecret)
		if err != nil {
			return
		}
		usable(t, found)
		trusted := Pinned(found.CA, []string{pin}, time.Now())
		for _, cert := range trusted {
			vouches := func(c *x509.Certificate) bool { return c != cert && cert.CheckSignatureFrom(c) == nil }
			byHash := strings.EqualFold((authority{cert: cert}).pin(), pin)
			if !slices.Contains(found.CA, cert) || !byHash && !slices.ContainsFunc(trusted, vouches) {
				t.Errorf("%s is trusted by %s", cert.Subject, pin)
			}
		}
	})
}

// FuzzDiscoveryFile: a kubeconfig is used completely or not at all. If it's from a URL, it names no file or program of this host.
func FuzzDiscoveryFile(f *testing.F) {
	honest := newFake(f)
	f.Add([]byte(honest.info))
	f.Add([]byte(honest.info + "contexts: [{name: c, context: {cluster: '0', user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {token: abcdef.0123456789abcdef, exec: {command: /bin/x}}}]\n"))
	f.Add([]byte(honest.info + "users: [{name: u, user: {client-key: ../key, tokenFile: /etc/shadow}}]\ncurrent-context: ''\ncontexts: [{context: {user: u, cluster: '0'}}]\n"))
	f.Add([]byte("clusters: [{name: a, cluster: {server: 'https://192.0.2.1', certificate-authority: ca.crt}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(path string) ([]byte, error) {
			if path == "/etc/d.conf" {
				return data, nil
			}
			return nil, os.ErrNotExist
		}
		found, credentials, err := ByFile(t.Context(), File{Location: "/etc/d.conf", ReadFile: read, Progress: quiet})
		discreet(t, err, tokenSecret)
		if err != nil {
			return
		}
		usable(t, found)
		if credentials == nil {
			return
		}
		again, err := parse("again", credentials)
		if err != nil {
			t.Fatalf("%v\n%s", err, credentials)
		}
		cluster, user, err := current("again", again)
		if err != nil || user == nil || cluster.Server != found.Server || cluster.CertificateAuthority != "" {
			t.Errorf("%v, %+v, %v", cluster.Server, user, err)
		}
	})
}

// usable fails unless a client can reach the server and knows which CAs to trust.
func usable(t *testing.T, found Cluster) {
	t.Helper()
	u, err := url.Parse(found.Server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || len(found.CA) == 0 {
		t.Errorf("%q with %d certificates: %v", found.Server, len(found.CA), err)
	}
}

// discreet fails if a caller can't recognize the error, or if it contains the secret.
func discreet(t *testing.T, err error, secret string) {
	t.Helper()
	if err == nil {
		return
	}
	var failed *Error
	known := errors.As(err, &failed) || errors.Is(err, os.ErrNotExist) || errors.Is(err, context.Canceled)
	if !known || strings.Contains(err.Error(), secret) {
		t.Errorf("%T: %v", err, err)
	}
}

// signed computes independently whether the token has signed content in body.
func signed(t *testing.T, body []byte, content string) bool {
	t.Helper()
	var cm corev1.ConfigMap
	if err := json.Unmarshal(body, &cm); err != nil {
		t.Fatal(err)
	}
	return jws.DetachedTokenIsValid(cm.Data["jws-kubeconfig-"+tokenID], content, tokenID, tokenSecret)
}

func signedInfo(t *testing.T, kubeconfig string) []byte {
	t.Helper()
	kubeconfig = strings.ToValidUTF8(kubeconfig, "\ufffd") // as JSON carries it
	signature, err := jws.ComputeDetachedSignature(kubeconfig, tokenID, tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": kubeconfig, "jws-kubeconfig-" + tokenID: signature},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
