// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

// stage has an API that only records tokens, and the output.
type stage struct {
	Store
	said, results bytes.Buffer
}

func newStage(t *testing.T, objs ...cluster.Object) *stage {
	t.Helper()
	s := &stage{}
	s.Store = Store{Cluster: cluster.NewPlan(func(cluster.Action) {}, nil), UI: ui.NewLines(&s.said, &s.results), Now: time.Now}
	if err := s.Cluster.Ensure(t.Context(), objs...); err != nil {
		t.Fatal(err)
	}
	return s
}

// mine returns a token that never expires, with the given usages.
func mine(usages ...string) []config.Token {
	return []config.Token{{ID: "abcdef", Secret: config.NewSecret("0123456789abcdef"), Description: "mine", Usages: usages}}
}

func TestTokensLife(t *testing.T) {
	s := newStage(t)
	if err := s.Create(t.Context(), mine("signing", "authentication")); err != nil {
		t.Fatal(err)
	}
	err := s.Create(t.Context(), mine("signing"))
	if err != nil && strings.Contains(err.Error(), "0123") {
		t.Errorf("a second one: %v", err)
	}
	fact.Error(t, err, `ID "abcdef"`, "exists")
	broken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-broken", Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken, Data: map[string][]byte{"token-id": []byte("SECRET")},
	}
	if err := s.Cluster.Ensure(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "abcdef" || list[0].Description != "mine" || !list[0].Expires.IsZero() ||
		strings.Join(list[0].Usages, ",") != "authentication,signing" {
		t.Errorf("%+v %v", list, err)
	}
	fact.In(t, s.said.String(), "bootstrap-token-broken", "not", "valid")
	fact.NotIn(t, s.said.String(), "SECRET")
	err = s.Delete(t.Context(), []string{"nobody", "abcdef"})
	fact.Error(t, err, "ID nobody")
	fact.In(t, fault.Remedy(err), "`slipway token list`")
	if got := s.results.String(); got != "bootstrap token \"abcdef\" deleted\n" {
		t.Errorf("results %q", got)
	}
}

// TestJoinCommandFollowsClusterInfo: the join command names cluster-info's server, or the administrator's if there is none.
func TestJoinCommandFollowsClusterInfo(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n := &config.Node{Cluster: config.ClusterConfiguration{CACertificateValidityPeriod: &metav1.Duration{Duration: time.Hour}}}
	ca, err := certs.NewCA(certs.Spec{CommonName: "kubernetes"}, n, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := kubeconfig.ClusterInfo("https://192.0.2.11:6443", []*x509.Certificate{ca})
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	pin := certs.PublicKeyPin(ca)
	command := func(key string) string {
		t.Helper()
		c, err := s.JoinCommand(t.Context(), mine()[0], config.NewSecret(key), Kubeconfig{"admin.conf", func() ([]byte, error) { return admin, nil }})
		if err != nil {
			t.Fatal(err)
		}
		return c.Text(" ")
	}
	tail := " --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash " + pin
	if got := command(""); got != "slipway join 192.0.2.11:6443"+tail {
		t.Errorf("without cluster-info: %s", got)
	}
	info, err := kubeconfig.ClusterInfo("https://lb.example", []*x509.Certificate{ca})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cluster.Ensure(t.Context(), manifests.ClusterInfo(info)); err != nil {
		t.Fatal(err)
	}
	if got := command("K"); got != "slipway join lb.example:443"+tail+" --control-plane --certificate-key K" {
		t.Errorf("with cluster-info: %s", got)
	}
}

// TestCreatedTokenSigns cluster-info as it is, or reports why it can't: the token is valid either way.
func TestCreatedTokenSigns(t *testing.T) {
	info := []cluster.Object{manifests.ClusterInfo([]byte("kubeconfig"))}
	for name, tt := range map[string]struct {
		usages string
		before []cluster.Object
		refuse bool
		signed bool
		says   string
	}{
		"signed":          {usages: "signing", before: info, signed: true},
		"not for signing": {usages: "authentication", before: info},
		"no cluster-info": {usages: "signing", says: "[WARNING] | ConfigMap kube-public/cluster-info | missing"},
		"forbidden": {usages: "signing", before: info, refuse: true,
			says: "[WARNING] | ConfigMap kube-public/cluster-info | forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, tt.before...)
			api := s.Cluster
			if tt.refuse {
				s.Cluster = noUpdates{api}
			}
			if err := s.Create(t.Context(), mine(tt.usages)); err != nil {
				t.Fatal(err)
			}
			if got := s.said.String(); (got == "") != (tt.says == "") {
				t.Errorf("said %q, want %q", got, tt.says)
			}
			fact.In(t, s.said.String(), fact.Of(tt.says)...)
			now := manifests.ClusterInfo(nil)
			if _, err := api.Get(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			signature := now.Data["jws-kubeconfig-abcdef"]
			if signed := jws.DetachedTokenIsValid(signature, "kubeconfig", "abcdef", "0123456789abcdef"); signed != tt.signed {
				t.Errorf("signed %v, want %v", signed, tt.signed)
			}
			if found, err := api.Get(t.Context(), secretOf("abcdef")); err != nil || !found {
				t.Errorf("no token: %v", err)
			}
		})
	}
}

// TestImmutableClusterInfo: nobody can sign it, as the API server refuses to change it. The token is good all the same.
func TestImmutableClusterInfo(t *testing.T) {
	s := newStage(t)
	api := fakeapi.New(nil)
	defer api.Close()
	info := manifests.ClusterInfo([]byte("kubeconfig"))
	info.Immutable = ptr.To(true)
	const path = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	api.Put(path, info)
	admin, err := kubeconfig.ClusterInfo(api.URL, []*x509.Certificate{api.Certificate()})
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster = cluster.New(cluster.Options{Kubeconfig: "admin.conf", ReadFile: func(string) ([]byte, error) { return admin, nil }, Timeout: time.Minute})
	if err := s.Create(t.Context(), mine("signing")); err != nil {
		t.Fatal(err)
	}
	fact.List(t, strings.Split(strings.TrimSpace(s.said.String()), "\n"), "[WARNING] | ConfigMap kube-public/cluster-info | immutable",
		"[WARNING] | --discovery-file | `slipway init phase bootstrap-token`")
	if !api.Has("/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef") {
		t.Error("no token")
	}
	_, err = s.Cluster.Update(t.Context(), info, func() (bool, error) { info.Data["a"] = "b"; return true, nil })
	if !apierrors.IsInvalid(err) {
		t.Errorf("the server lets it be changed: %v", err)
	}
}

// noUpdates is an API that refuses all changes to existing objects.
type noUpdates struct{ cluster.Cluster }

func (noUpdates) Update(context.Context, cluster.Object, func() (bool, error)) (bool, error) {
	return false, errors.New("forbidden")
}
