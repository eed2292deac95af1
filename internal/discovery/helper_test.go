// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/jws"
	"sigs.k8s.io/yaml"
)

const (
	tokenID     = "abcdef"
	tokenSecret = "0123456789abcdef"
)

// authority is a CA with its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign issues a certificate from a, or a new CA if a is the zero authority.
func (a authority) sign(t testing.TB, change func(*x509.Certificate)) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
	}
	change(template)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func asCA(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }

func asServer(c *x509.Certificate) {
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
}

func (a authority) pin() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (a authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// fake is an API server as discovery sees it. Tests make it hostile.
type fake struct {
	ca   authority
	leaf authority
	// info is the kubeconfig in cluster-info, signature the signature beside it.
	info, signature string
	// answer, if set, replaces the whole answer.
	answer func(w http.ResponseWriter, r *http.Request)
	// date is how far the server's clock is ahead.
	date  time.Duration
	plain bool
	count int
}

func newFake(t testing.TB) *fake {
	f := &fake{ca: authority{}.sign(t, asCA)}
	f.leaf = f.ca.sign(t, asServer)
	f.describe(t, "https://192.0.2.1:6443", f.ca.pem())
	return f
}

// describe builds cluster-info with one cluster for each pair of URL and CA.
func (f *fake) describe(t testing.TB, pairs ...string) {
	t.Helper()
	var clusters []any
	for i := 0; i < len(pairs); i += 2 {
		clusters = append(clusters, map[string]any{"name": fmt.Sprint(i), "cluster": map[string]any{
			"server": pairs[i], "certificate-authority-data": []byte(pairs[i+1])}})
	}
	f.setInfo(t, map[string]any{"apiVersion": "v1", "kind": "Config", "clusters": clusters})
}

func (f *fake) setInfo(t testing.TB, kubeconfig any) {
	t.Helper()
	data, err := yaml.Marshal(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	f.info = string(data)
	f.sign(t, tokenSecret)
}

func (f *fake) sign(t testing.TB, secret string) {
	t.Helper()
	var err error
	if f.signature, err = jws.ComputeDetachedSignature(f.info, tokenID, secret); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.count++
	w.Header().Set("Date", time.Now().Add(f.date).UTC().Format(http.TimeFormat))
	if f.answer != nil {
		f.answer(w, r)
		return
	}
	f.tell(w)
}

func (f *fake) tell(w io.Writer) {
	cm := corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: "kube-public"},
		Data:       map[string]string{"kubeconfig": f.info},
	}
	if f.signature != "" {
		cm.Data["jws-kubeconfig-"+tokenID] = f.signature
	}
	_ = json.NewEncoder(w).Encode(cm)
}

func (f *fake) body() []byte {
	var b bytes.Buffer
	f.tell(&b)
	return b.Bytes()
}

func (f *fake) start(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if f.plain {
		s.Start()
	} else {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{f.leaf.cert.Raw}, PrivateKey: f.leaf.key}}}
		s.StartTLS()
	}
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	_, address, _ := strings.Cut(s.URL, "://")
	return address
}

var quick = pace{first: time.Millisecond, slowest: 5 * time.Millisecond, settle: 20 * time.Millisecond, make: 40 * time.Millisecond}

func quiet(string, ...any) {}
