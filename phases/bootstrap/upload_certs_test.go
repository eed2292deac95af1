// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func uploadStage(t *testing.T, documents string) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, documents)
	s.Config.UploadCerts = true
	s.Config.CertificateKey = config.NewSecret(strings.Repeat("ab", 32))
	return s
}

func sharedCerts(t *testing.T, s *phasetest.Stage) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	secret.APIVersion, secret.Kind, secret.Namespace, secret.Name = "v1", "Secret", "kube-system", "kubeadm-certs"
	if found, err := s.API.Get(t.Context(), secret); err != nil || !found {
		t.Fatalf("found %v, error %v", found, err)
	}
	return secret
}

func TestUploadCerts(t *testing.T) {
	s := uploadStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, certificates(), uploadCerts())
	secret := sharedCerts(t, s)
	files, err := manifests.DecryptCerts(secret.Data, s.Config.CertificateKey)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for key, path := range manifests.SharedFiles(s.Config) {
		want[key] = s.Get(t, path)
	}
	got := map[string]string{}
	for key, data := range files {
		got[key] = string(data)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 8 {
		t.Errorf("what is decrypted (-want +got):\n%s", diff)
	}
	if s.Results.String() != strings.Repeat("ab", 32)+"\n" || strings.Contains(s.Said.String(), "abab") {
		t.Errorf("results %q, said %q", s.Results.String(), s.Said.String())
	}
}

// The owner expires, and the certificates with it. Uploading again with the same key renews it. Another key has another owner.
func TestUploadCertsOwner(t *testing.T) {
	s := uploadStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.SkipCertificateKeyPrint = true
	s.Play(t, certificates(), uploadCerts())
	owner := func() string {
		refs := sharedCerts(t, s).OwnerReferences
		if len(refs) != 1 || refs[0].Kind != "Secret" || !*refs[0].Controller {
			t.Fatalf("owners %+v", refs)
		}
		return refs[0].Name
	}
	first := owner()
	s.Play(t, uploadCerts())
	if again := owner(); again != first {
		t.Errorf("the same key has owners %s and %s", first, again)
	}
	s.Config.CertificateKey = config.NewSecret(strings.Repeat("cd", 32))
	s.Play(t, uploadCerts())
	if other := owner(); other == first {
		t.Errorf("two keys have the owner %s", other)
	}
	tokens, err := s.API.Secrets(t.Context(), "kube-system", "type="+string(corev1.SecretTypeBootstrapToken))
	if err != nil || len(tokens) != 2 {
		t.Fatalf("%d owners, error %v", len(tokens), err)
	}
	for _, token := range tokens {
		if token.Data["usage-bootstrap-authentication"] != nil || token.Data["expiration"] == nil {
			t.Errorf("%s can authenticate, or never expires", token.Name)
		}
	}
	if s.Results.Len() > 0 {
		t.Errorf("the key is printed: %q", s.Results.String())
	}
}

// merging keeps the other files in kubeadm-certs, as the API does.
type merging struct{ *cluster.Plan }

func (m merging) Ensure(ctx context.Context, objs ...cluster.Object) error {
	for i, obj := range objs {
		if secret, ok := obj.(*corev1.Secret); ok && secret.Name == manifests.CertsSecretName {
			live := secret.DeepCopy()
			if found, err := m.Get(ctx, live); err != nil || !found {
				return errors.Errorf("found %t: %v", found, err)
			}
			maps.Copy(live.Data, secret.Data)
			live.OwnerReferences, objs[i] = secret.OwnerReferences, live
		}
	}
	return m.Plan.Ensure(ctx, objs...)
}

// TestUploadCertsLeavesNoOther: a file of an earlier upload, which needs that upload's key, doesn't stay.
func TestUploadCertsLeavesNoOther(t *testing.T) {
	s := uploadStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, certificates(), uploadCerts())
	earlier := sharedCerts(t, s)
	earlier.Data[manifests.SharedEncryption] = []byte("of another key")
	phasetest.Fatal(t, s.API.Ensure(t.Context(), earlier))
	s.Cluster = merging{s.API}
	s.Play(t, uploadCerts())
	if data := sharedCerts(t, s).Data; len(data) != 8 || data[manifests.SharedEncryption] != nil {
		t.Errorf("it has %d files, %q among them", len(data), data[manifests.SharedEncryption])
	}
}

// forgetful is an API in which somebody deletes everything right after it's written.
type forgetful struct{ *cluster.Plan }

func (forgetful) Get(context.Context, cluster.Object) (bool, error) { return false, nil }

func TestUploadCertsFaults(t *testing.T) {
	s := uploadStage(t, fixture.InitDocument+fixture.ClusterDocument)
	// The error always names the first file in alphabetical order.
	fact.Error(t, UploadCerts(t.Context(), s.Env), "--upload-certs", "/etc/kubernetes/pki/ca.crt")
	s.Play(t, certificates())
	s.Cluster = forgetful{s.API}
	fact.Error(t, UploadCerts(t.Context(), s.Env), "bootstrap-token-", "was deleted")
	s.Cluster = s.API
	s.Config.CertificateKey = config.NewSecret("hush")
	err := UploadCerts(t.Context(), s.Env)
	fact.Error(t, err, "certificate key", "32 bytes", "64 hexadecimal digits")
	fact.NotIn(t, phasetest.Message(err), "hush")
	if s.Results.Len() > 0 {
		t.Errorf("printed a key with which nothing was encrypted: %q", s.Results.String())
	}
}

// TestCheckCluster: a kubeconfig that leads to another cluster is refused, and so is an API server that doesn't name its CA.
func TestCheckCluster(t *testing.T) {
	s, other := uploadStage(t, fixture.InitDocument+fixture.ClusterDocument), uploadStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, certificates())
	other.Play(t, certificates())
	const path = "/etc/kubernetes/pki/ca.crt"
	own, others := s.Get(t, path), other.Get(t, path)
	for name, tt := range map[string]struct {
		accepted string
		want     []string
	}{
		"this cluster":     {accepted: own},
		"with another CA":  {accepted: others + own},
		"another cluster":  {others, []string{path, "another cluster"}},
		"it names no CA":   {"", []string{"extension-apiserver-authentication", "client-ca-file"}},
		"it names garbage": {"x", []string{"extension-apiserver-authentication", "client-ca-file"}},
	} {
		t.Run(name, func(t *testing.T) {
			cm := &corev1.ConfigMap{Data: map[string]string{"client-ca-file": tt.accepted}}
			cm.APIVersion, cm.Kind, cm.Namespace, cm.Name = "v1", "ConfigMap", "kube-system", "extension-apiserver-authentication"
			api := cluster.NewPlan(func(cluster.Action) {}, nil)
			phasetest.Fatal(t, api.Ensure(t.Context(), cm))
			s.Cluster = api
			err := CheckCluster(t.Context(), s.Env)
			if fact.Error(t, err, tt.want...); err != nil {
				fact.In(t, fault.Remedy(err), "--kubeconfig /etc/kubernetes/admin.conf")
			}
		})
	}
}

func TestUploadCertsOfExternalEtcd(t *testing.T) {
	s := uploadStage(t, fixture.InitDocument+fixture.ClusterDocument+"etcd: {external: {endpoints: ['https://10.0.0.5:2379'], caFile: /e/ca, certFile: /e/crt, keyFile: /e/key}}\n")
	for _, name := range []string{"ca", "crt", "key"} {
		s.Put(t, "/e/"+name, name)
	}
	s.Play(t, certificates(), uploadCerts())
	files, err := manifests.DecryptCerts(sharedCerts(t, s).Data, s.Config.CertificateKey)
	if err != nil || string(files["external-etcd-ca.crt"])+string(files["external-etcd.crt"])+string(files["external-etcd.key"]) != "cacrtkey" {
		t.Errorf("files %d, error %v", len(files), err)
	}
}
