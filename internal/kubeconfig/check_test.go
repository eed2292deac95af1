// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	api "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
)

const pemPath = "/var/lib/kubelet/pki/kubelet-client-current.pem"

func TestCheckAcceptsOwn(t *testing.T) {
	n := newNode("cp-1")
	ca, old := newCA(t, n), newCA(t, n)
	for _, spec := range allSpecs(n) {
		data := build(t, spec, n, ca)
		if err := Check(data, spec, n, ca.Bundle(), now); err != nil {
			t.Error(err)
		}
		// During a rotation, the cluster trusts both CAs.
		if err := Check(data, spec, n, append(old.Bundle(), ca.Cert), now); err != nil {
			t.Error(err)
		}
	}
}

func TestCheck(t *testing.T) {
	n := newNode("cp-1")
	ca, otherCA := newCA(t, n), newCA(t, n)
	admin := find(t, n, "admin.conf")
	right := newPair(t, admin.Certificate, n, ca)
	stranger := newPair(t, find(t, n, "scheduler.conf").Certificate, n, ca)
	strangerKey, err := certs.EncodeKey(stranger.Key)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		edit   func(cluster *api.Cluster, user *api.AuthInfo)
		kinds  []string
		detail string
	}{
		{"right", func(*api.Cluster, *api.AuthInfo) {}, nil, ""},
		{"points at the CA", func(c *api.Cluster, _ *api.AuthInfo) {
			c.CertificateAuthority, c.CertificateAuthorityData = "/etc/kubernetes/pki/ca.crt", nil
		}, nil, ""},
		{"points at its credentials", func(_ *api.Cluster, u *api.AuthInfo) {
			*u = api.AuthInfo{ClientCertificate: pemPath, ClientKey: pemPath}
		}, nil, ""},
		{"points at its key", func(_ *api.Cluster, u *api.AuthInfo) {
			u.ClientKey, u.ClientKeyData = "/root/admin.key", nil
		}, nil, ""},
		{"a token", func(_ *api.Cluster, u *api.AuthInfo) { *u = api.AuthInfo{Token: "hunter2"} }, nil, ""},
		{"a plugin", func(_ *api.Cluster, u *api.AuthInfo) { *u = api.AuthInfo{Exec: &api.ExecConfig{Command: "login"}} }, nil, ""},

		{"other server", func(c *api.Cluster, _ *api.AuthInfo) { c.Server = "https://old:6443" },
			[]string{WrongServer}, `server | "https://old:6443" | "https://192.168.99.11:6443"`},
		{"no CA", func(c *api.Cluster, _ *api.AuthInfo) { c.CertificateAuthorityData = nil },
			[]string{UntrustedCA}, "no CA"},
		{"other CA", func(c *api.Cluster, _ *api.AuthInfo) {
			c.CertificateAuthorityData = certs.EncodeCerts(otherCA.Cert)
		}, []string{UntrustedCA}, "another CA"},
		{"damaged CA", func(c *api.Cluster, _ *api.AuthInfo) { c.CertificateAuthorityData = []byte("hunter2") },
			[]string{UntrustedCA}, "certificate-authority-data: | PEM"},
		{"no credentials", func(_ *api.Cluster, u *api.AuthInfo) { *u = api.AuthInfo{} },
			[]string{NoCredentials}, "no credentials"},
		{"no key", func(_ *api.Cluster, u *api.AuthInfo) { u.ClientKeyData = nil },
			[]string{NoCredentials}, "client certificate | no client | key"},
		{"no certificate", func(_ *api.Cluster, u *api.AuthInfo) { u.ClientCertificateData = nil },
			[]string{NoCredentials}, "client key | no client | certificate"},
		{"damaged key", func(_ *api.Cluster, u *api.AuthInfo) { u.ClientKeyData = []byte("hunter2") },
			[]string{Malformed}, "client credentials: | private key: | PEM"},
		{"key of another", func(_ *api.Cluster, u *api.AuthInfo) { u.ClientKeyData = strangerKey },
			[]string{certs.KeyMismatch}, "client certificate: | private key"},
		{"somebody else", func(_ *api.Cluster, u *api.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = certs.EncodeCerts(stranger.Cert), strangerKey
		}, []string{certs.WrongSubject, certs.WrongSubject}, `organization | "kubeadm:cluster-admins"`},
		{"two at once", func(c *api.Cluster, u *api.AuthInfo) {
			c.Server, u.ClientKeyData = "https://old:6443", strangerKey
		}, []string{WrongServer, certs.KeyMismatch}, "/etc/kubernetes/admin.conf: | 2 faults"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key, err := certs.EncodeKey(right.Key)
			if err != nil {
				t.Fatal(err)
			}
			file := single(admin, n, ca.Bundle(), api.AuthInfo{
				ClientCertificateData: certs.EncodeCerts(right.Cert), ClientKeyData: key,
			})
			tt.edit(&file.Clusters[0].Cluster, &file.AuthInfos[0].AuthInfo)
			data, err := encode(file)
			if err != nil {
				t.Fatal(err)
			}
			wantFaults(t, Check(data, admin, n, ca.Bundle(), now), tt.kinds, tt.detail)
		})
	}
}

func wantFaults(t *testing.T, err error, kinds []string, detail string) {
	t.Helper()
	var failure *certs.Error
	if errors.As(err, &failure) != (len(kinds) > 0) {
		t.Fatalf("got %v, want %q", err, kinds)
	}
	if failure == nil {
		return
	}
	var got []string
	for _, f := range failure.Faults {
		got = append(got, f.Name)
	}
	if diff := cmp.Diff(kinds, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	fact.In(t, err.Error(), fact.Of(detail)...)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error quotes the file: %v", err)
	}
}

func TestCheckExpired(t *testing.T) {
	n := newNode("cp-1")
	ca := newCA(t, n)
	late := now.Add(8761 * time.Hour)
	for name, remedy := range map[string]string{
		"admin.conf":   "`slipway certs renew admin.conf`",
		"kubelet.conf": "/etc/kubernetes/kubelet.conf | `slipway init phase kubeconfig kubelet`", // certs renew doesn't know it
	} {
		spec := find(t, n, name)
		err := Check(build(t, spec, n, ca), spec, n, ca.Bundle(), late)
		wantFaults(t, err, []string{certs.Expired}, "client certificate: | expired")
		fact.In(t, fault.Remedy(err), fact.Of(remedy)...)
	}
}

// Other nodes' kubeconfig files mustn't be taken for this one's.
func TestCheckOtherNode(t *testing.T) {
	n, other := newNode("cp-1"), newNode("cp-2")
	ca := newCA(t, n)
	spec := find(t, n, "kubelet.conf")
	err := Check(build(t, find(t, other, "kubelet.conf"), other, ca), spec, n, ca.Bundle(), now)
	wantFaults(t, err, []string{certs.WrongSubject}, `common name | "system:node:cp-2" | "system:node:cp-1"`)
}

func TestMalformed(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\n"
	const context = "contexts:\n- name: a\n  context: {cluster: c, user: u}\n"
	tests := []struct{ name, data, want string }{
		{"empty", "", "kubeconfig | apiVersion v1 | kind Config"},
		{"not YAML", "hunter2: [", "kubeconfig | YAML"},
		{"not an object", "hunter2", "kubeconfig | YAML"},
		{"bad base64", head + "users:\n- name: u\n  user: {client-key-data: hunter2}\n", "kubeconfig | YAML"},
		{"another kind", "apiVersion: v1\nkind: Pod\n", `"v1" and "Pod"`},
		{"no current context", head + context, "no current-context"},
		{"no such context", head + context + "current-context: b\n", `current-context | "b"`},
		{"no such cluster", head + context + "current-context: a\n", `current context | cluster "c"`},
		{"no such user", head + context + "current-context: a\nclusters: [{name: c}]\n", `current context | user "u"`},
	}
	n := newNode("cp-1")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantFaults(t, Check([]byte(tt.data), find(t, n, "admin.conf"), n, nil, now), []string{Malformed}, tt.want)
			_, _, err := RotatableKubelet([]byte(tt.data), pemPath)
			fact.Error(t, err, fact.Of(tt.want)...)
		})
	}
}

func TestRotatableKubelet(t *testing.T) {
	n := newNode("cp-1")
	ca := newCA(t, n)
	spec := find(t, n, "kubelet.conf")
	data := build(t, spec, n, ca)
	rotatable, changed, err := RotatableKubelet(data, pemPath)
	if err != nil || !changed {
		t.Fatalf("changed is %v, error %v", changed, err)
	}
	before, _, _ := load(t, data)
	_, user, after := load(t, bytes.ReplaceAll(rotatable, []byte(pemPath), []byte("/dev/null")))
	if len(user.ClientCertificateData)+len(user.ClientKeyData) > 0 {
		t.Error("the certificate is still embedded")
	}
	if diff := cmp.Diff(before, *after.Clusters["kubernetes"]); diff != "" {
		t.Errorf("the cluster changed:\n%s", diff)
	}
	want := "    client-certificate: " + pemPath + "\n    client-key: " + pemPath + "\n"
	if !strings.HasSuffix(string(rotatable), want) {
		t.Errorf("got\n%s", rotatable)
	}
	if err := Check(rotatable, spec, n, ca.Bundle(), now); err != nil {
		t.Error(err)
	}
	again, changed, err := RotatableKubelet(rotatable, pemPath)
	if err != nil || changed || !bytes.Equal(again, rotatable) {
		t.Errorf("a second time: changed is %v, error %v", changed, err)
	}
}

// No file causes a panic, and every result can be read again.
func FuzzRotatableKubelet(f *testing.F) {
	n := newNode("cp-1")
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: c, user: u}\n" +
		"clusters: [{name: c}]\nusers:\n- name: u\n  user: {client-key-data: aGk=}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, spec := range allSpecs(n) {
			_ = Check(data, spec, n, nil, now)
		}
		rotatable, _, err := RotatableKubelet(data, pemPath)
		if err != nil {
			return
		}
		if _, changed, err := RotatableKubelet(rotatable, pemPath); changed || err != nil {
			t.Errorf("a second time: changed is %v, error %v", changed, err)
		}
	})
}
