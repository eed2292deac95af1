// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

const tokenDocument = `bootstrapTokens: [{token: abcdef.0123456789abcdef, ttl: 0s, description: mine}]
`

func TestTokensLife(t *testing.T) {
	s := newStage(t, initDocument+tokenDocument+clusterDocument)
	if err := CreateTokens(t.Context(), s.Env); err != nil {
		t.Fatal(err)
	}
	err := CreateTokens(t.Context(), s.Env)
	if err == nil || !strings.Contains(err.Error(), `a bootstrap token with the ID "abcdef" already exists`) || strings.Contains(err.Error(), "0123") {
		t.Errorf("a second one: %v", err)
	}
	broken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-broken", Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken, Data: map[string][]byte{"token-id": []byte("SECRET")},
	}
	if err := s.Cluster.Ensure(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	list, err := ListTokens(t.Context(), s.Env)
	if err != nil || len(list) != 1 || list[0].ID != "abcdef" || list[0].Description != "mine" || !list[0].Expires.IsZero() ||
		strings.Join(list[0].Usages, ",") != "authentication,signing" {
		t.Errorf("%+v %v", list, err)
	}
	if said := s.said.String(); !strings.Contains(said, "bootstrap-token-broken is not a valid bootstrap token") || strings.Contains(said, "SECRET") {
		t.Errorf("said %q", said)
	}
	if err := DeleteTokens(t.Context(), s.Env, []string{"nobody", "abcdef"}); err == nil || !strings.Contains(err.Error(), "with the ID nobody;") {
		t.Error(err)
	}
	if got := s.results.String(); got != "bootstrap token \"abcdef\" deleted\n" {
		t.Errorf("results %q", got)
	}
}

func TestTokenOf(t *testing.T) {
	want := config.Token{ID: "abcdef", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"}, TTL: time.Hour}
	data := manifests.BootstrapTokenSecret(want, time.Unix(0, 0)).Data
	got, err := manifests.TokenOf(data)
	if err != nil || got.Secret != want.Secret || !got.Expires.Equal(time.Unix(3600, 0)) || len(got.Groups) != 0 {
		t.Errorf("%+v %v", got, err)
	}
	data["expiration"] = []byte("tomorrow")
	if _, err := manifests.TokenOf(data); err == nil || !strings.Contains(err.Error(), "its expiration is not a valid time") {
		t.Error(err)
	}
}

// TestJoinCommandFollowsClusterInfo: it leads where the joining node is led,
// and to the administrator's server only where there is no such place.
func TestJoinCommandFollowsClusterInfo(t *testing.T) {
	s := newStage(t, initDocument+clusterDocument)
	s.play(t, certificates(), kubeconfigs())
	ca, err := certs.ParseCerts([]byte(s.get(t, pkiDir+"ca.crt")))
	if err != nil {
		t.Fatal(err)
	}
	pin := certs.PublicKeyPin(ca[0])
	token := config.Token{ID: "abcdef", Secret: config.NewSecret("0123456789abcdef")}
	command := func(key string) string {
		t.Helper()
		text, err := JoinCommand(t.Context(), s.Env, token, config.NewSecret(key), func() ([]byte, error) {
			return s.Host.ReadFile(s.Config.Paths.AdminKubeconfig)
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	tail := " --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash " + pin
	if got := command(""); got != "slipway join 192.0.2.11:6443"+tail {
		t.Errorf("without cluster-info: %s", got)
	}
	info, err := kubeconfig.ClusterInfo("https://lb.example:443", ca)
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

// TestCreatedTokenSigns cluster-info as it is, or says why it cannot: the token is good either way.
func TestCreatedTokenSigns(t *testing.T) {
	for name, tt := range map[string]struct {
		document string
		before   []cluster.Object
		refuse   bool
		signed   bool
		says     string
	}{
		"signed":          {document: tokenDocument, before: []cluster.Object{manifests.ClusterInfo([]byte("kubeconfig"))}, signed: true},
		"not for signing": {document: "bootstrapTokens: [{token: abcdef.0123456789abcdef, usages: [authentication]}]\n", before: []cluster.Object{manifests.ClusterInfo([]byte("kubeconfig"))}},
		"no cluster-info": {document: tokenDocument, says: "[WARNING] ConfigMap kube-public/cluster-info is missing"},
		"forbidden": {document: tokenDocument, before: []cluster.Object{manifests.ClusterInfo([]byte("kubeconfig"))}, refuse: true,
			says: "[WARNING] could not sign ConfigMap kube-public/cluster-info, so nodes can join only once the controller manager has signed it: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, initDocument+tt.document+clusterDocument)
			if err := s.api.Ensure(t.Context(), tt.before...); err != nil {
				t.Fatal(err)
			}
			if tt.refuse {
				s.Cluster = noUpdates{s.api}
			}
			if err := CreateTokens(t.Context(), s.Env); err != nil {
				t.Fatal(err)
			}
			if got := s.said.String(); !strings.Contains(got, tt.says) || tt.says == "" && got != "" {
				t.Errorf("said %q, want %q", got, tt.says)
			}
			if len(tt.before) > 0 && signs(infoNow(t, s), "abcdef") != tt.signed {
				t.Errorf("signed %v, want %v", !tt.signed, tt.signed)
			}
			if tokenNow(t, s, "abcdef") == "" {
				t.Error("no token")
			}
		})
	}
}

// noUpdates is an API that lets nobody change what is there.
type noUpdates struct{ *cluster.Plan }

func (noUpdates) Update(context.Context, cluster.Object, func() (bool, error)) (bool, error) {
	return false, errors.New("forbidden")
}
