// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const explicitToken = "bootstrapTokens: [{token: abcdef.0123456789abcdef}]\n"

func withToken(t *testing.T, s *phasetest.Stage, token config.Token) {
	t.Helper()
	if err := s.API.Ensure(t.Context(), manifests.BootstrapTokenSecret(token, s.FakeHost.Now())); err != nil {
		t.Fatal(err)
	}
	s.Done = nil
}

func tokenNow(t *testing.T, s *phasetest.Stage, id string) string {
	t.Helper()
	secret := &corev1.Secret{}
	secret.APIVersion, secret.Kind, secret.Namespace, secret.Name = "v1", "Secret", "kube-system", "bootstrap-token-"+id
	if found, err := s.API.Get(t.Context(), secret); err != nil || !found {
		t.Fatalf("found %v, error %v", found, err)
	}
	return string(secret.Data["token-secret"])
}

func TestBootstrapTokens(t *testing.T) {
	earlier := func(s *phasetest.Stage) config.Token { // left by a run without a token of the user's own
		token := s.Config.BootstrapTokens[0]
		token.ID, token.Secret = "zzzzzz", config.NewSecret("zzzzzzzzzzzzzzzz")
		return token
	}
	tests := []struct {
		name, document string
		before         func(t *testing.T, s *phasetest.Stage)
		written        bool   // a token
		join           string // the token in the join command
		says           phasetest.Line
	}{
		{name: "a new one", written: true, join: "abcdef.0123456789abcdef", says: phasetest.Line{"Creating", "token abcdef"}},
		{name: "that of an earlier run serves", join: "zzzzzz.zzzzzzzzzzzzzzzz", says: phasetest.Line{"token zzzzzz", "exists"},
			before: func(t *testing.T, s *phasetest.Stage) { withToken(t, s, earlier(s)) }},
		{name: "that of an earlier run will not live long enough", written: true, join: "abcdef.0123456789abcdef", says: phasetest.Line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *phasetest.Stage) {
				withToken(t, s, earlier(s))
				s.FakeHost.Has.Time = time.Now().Add(23*time.Hour + time.Minute)
			}},
		{name: "one of a person's own does not serve for a generated one", written: true, join: "abcdef.0123456789abcdef", says: phasetest.Line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *phasetest.Stage) {
				token := earlier(s)
				token.Description = "mine"
				withToken(t, s, token)
			}},
		{name: "one without the right usages does not serve", written: true, join: "abcdef.0123456789abcdef", says: phasetest.Line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *phasetest.Stage) {
				token := earlier(s)
				token.Usages = []string{"signing"}
				withToken(t, s, token)
			}},
		{name: "the user's own is kept", document: explicitToken, join: "abcdef.0123456789abcdef", says: phasetest.Line{"token abcdef", "exists"},
			before: func(t *testing.T, s *phasetest.Stage) { withToken(t, s, s.Config.BootstrapTokens[0]) }},
		{name: "the user's own with another secret is replaced", document: explicitToken, written: true, join: "abcdef.0123456789abcdef", says: phasetest.Line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *phasetest.Stage) {
				token := s.Config.BootstrapTokens[0]
				token.Secret = config.NewSecret("ffffffffffffffff")
				withToken(t, s, token)
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+tt.document+fixture.ClusterDocument)
			s.Play(t, certsCA())
			if tt.before != nil {
				tt.before(t, s)
			}
			s.Play(t, bootstrapToken(), showJoinCommand("join"))
			written := strings.Contains(strings.Join(s.Done, "\n"), "ensure Secret bootstrap-token-abcdef")
			if written != tt.written {
				t.Errorf("did %v", s.Done)
			}
			s.SaidOnce(t, tt.says)
			if want := "slipway join 192.0.2.11:6443 --token " + tt.join + " "; !strings.HasPrefix(s.Results.String(), want) {
				t.Errorf("results %q, want %q", s.Results.String(), want)
			}
			id, secret, _ := strings.Cut(tt.join, ".")
			if got := tokenNow(t, s, id); got != secret {
				t.Errorf("the API has another secret for %s", id)
			}
			if strings.Contains(s.Said.String(), secret) {
				t.Error("progress holds the secret")
			}
		})
	}
}

// TestTokenJustWrittenIsNotSearchedFor: a list would wait for the API server's cache.
func TestTokenJustWrittenIsNotSearchedFor(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.Play(t, certsCA(), bootstrapToken())
	s.Cluster = noLists{s.API}
	s.Play(t, showJoinCommand("join"))
	if !strings.Contains(s.Results.String(), "--token abcdef.0123456789abcdef") {
		t.Errorf("results %q", s.Results.String())
	}
	if strings.Contains(s.Said.String(), "WARNING") {
		t.Errorf("it says %q", s.Said.String())
	}
}

func TestShortTokens(t *testing.T) {
	soon := time.Now().Add(20 * time.Minute).UTC().Format(time.RFC3339)
	for life, later := range map[string]time.Duration{"ttl: 30m0s": 14 * time.Minute, "ttl: 1h0m0s": 29 * time.Minute, "expires: " + soon: 19 * time.Minute} {
		s := phasetest.NewStage(t, fixture.InitDocument+"bootstrapTokens: [{token: abcdef.0123456789abcdef, "+life+"}]\n"+fixture.ClusterDocument)
		s.Play(t, certsCA(), bootstrapToken(), showJoinCommand("join"))
		made := len(s.Done)
		s.FakeHost.Has.Time = time.Now().Add(later)
		s.Play(t, bootstrapToken(), showJoinCommand("join"))
		if strings.Contains(s.Said.String(), "WARNING") {
			t.Errorf("%s: it says %q", life, s.Said.String())
		}
		if again := strings.Join(s.Done[made:], "\n"); strings.Contains(again, "bootstrap-token-abcdef") {
			t.Errorf("%s: after %s it was created again", life, later)
		}
	}
}

// TestJoinCommandWithoutToken: a join command that would fail on every worker comes with a warning.
func TestJoinCommandWithoutToken(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.Play(t, certsCA(), showJoinCommand("join"))
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "token abcdef", "missing"})
}

// noLists is an API that answers only requests for single objects.
type noLists struct{ *cluster.Plan }

func (noLists) Secrets(context.Context, string, string) ([]corev1.Secret, error) {
	return nil, errors.New("Secrets were listed")
}

// TestExpiredTokenIsLeftOut: once a token has expired, further runs of init with the same configuration don't create it.
func TestExpiredTokenIsLeftOut(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+"bootstrapTokens: [{token: abcdef.0123456789abcdef, expires: 2020-01-01T00:00:00Z}]\n"+fixture.ClusterDocument)
	s.Play(t, certsCA(), bootstrapToken())
	if did := strings.Join(s.Done, "\n"); strings.Contains(did, "bootstrap-token-abcdef") || !strings.Contains(did, "ensure ConfigMap cluster-info") {
		t.Errorf("did %v", s.Done)
	}
	s.SaidOnce(t, phasetest.Line{"token abcdef", "skipped", "2020-01-01T00:00:00Z"})
}

func TestBootstrapTokenWritesWhatNodesNeed(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, certsCA(), bootstrapToken())
	want := []string{
		"ensure ClusterRoleBinding kubeadm:cluster-admins",
		"ensure Secret bootstrap-token-abcdef",
		"ensure ConfigMap cluster-info",
		"ensure ClusterRole kubeadm:get-nodes",
		"ensure ClusterRoleBinding kubeadm:get-nodes",
		"ensure ClusterRoleBinding kubeadm:kubelet-bootstrap",
		"ensure ClusterRoleBinding kubeadm:node-autoapprove-bootstrap",
		"ensure ClusterRoleBinding kubeadm:node-autoapprove-certificate-rotation",
		"ensure ClusterRoleBinding kubeadm:apiserver-kubelet-client",
		"ensure Role kubeadm:bootstrap-signer-clusterinfo",
		"ensure RoleBinding kubeadm:bootstrap-signer-clusterinfo",
	}
	if diff := cmp.Diff(want, s.Done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
}

func TestBootstrapTokenNeedsTheCA(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	err := runBootstrapToken(t.Context(), s.Env)
	fact.Error(t, err, "/etc/kubernetes/pki/ca.crt", "not exist")
	fact.In(t, fault.Remedy(err), "`slipway init phase certs ca`", "control plane")
}

// TestEndpointElsewhere: init says so if the endpoint that all others use doesn't lead to its API server.
func TestEndpointElsewhere(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, certsCA(), kubeconfigs(), showJoinCommand("join"))
	s.Config.Cluster.ControlPlaneEndpoint = "api.example.org:8443"
	s.Play(t, showJoinCommand("join"))
	if strings.Contains(s.Said.String(), "https://api.example.org:8443/readyz") {
		t.Error(s.Said.String())
	}
	s.FakeHost.Fail["Date"] = errors.New("connection refused")
	s.Play(t, showJoinCommand("join"))
	phasetest.Once(t, s.Said.String(), phasetest.Line{"[WARNING]", "api.example.org:8443", "connection refused"})
}

func TestJoinCommandWithholds(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.UploadCerts = true
	s.Config.CertificateKey = config.NewSecret(strings.Repeat("ab", 32))
	s.Play(t, certsCA(), showJoinCommand("join"))
	if got := s.Results.String(); strings.Contains(got, "--control-plane") {
		t.Errorf("no other control plane can join without a controlPlaneEndpoint, but the result says %s", got)
	}
	s.Config.Cluster.ControlPlaneEndpoint = "api.example.org"
	for _, withheld := range []bool{false, true} {
		s.Config.SkipTokenPrint, s.Config.SkipCertificateKeyPrint = withheld, withheld
		s.Results.Reset()
		s.Play(t, showJoinCommand("join"))
		both := s.Results.String()
		if strings.Contains(both, "0123456789abcdef") == withheld || strings.Contains(both, "abababab") == withheld {
			t.Errorf("withheld %v: %s", withheld, both)
		}
		if strings.Contains(s.Said.String(), "0123456789abcdef") || strings.Contains(s.Said.String(), "abababab") {
			t.Errorf("progress holds a secret: %s", s.Said.String())
		}
	}
}

func infoNow(t *testing.T, s *phasetest.Stage) map[string]string {
	t.Helper()
	cm := manifests.ClusterInfo(nil)
	if found, err := s.API.Get(t.Context(), cm); err != nil || !found {
		t.Fatalf("found %v, error %v", found, err)
	}
	return cm.Data
}

// signs reports whether the data of cluster-info has a token's signature, as the controller manager's signer computes it.
func signs(data map[string]string, id string) bool {
	return jws.DetachedTokenIsValid(data["jws-kubeconfig-"+id], data["kubeconfig"], id, "0123456789abcdef")
}

// TestClusterInfoIsSigned with every token that may sign: nobody has to wait for the controller manager, and it finds nothing to
// change. Signatures by the controller manager or another tool stay.
func TestClusterInfoIsSigned(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
		s.Play(t, certsCA())
		withToken(t, s, config.Token{ID: "kubeadm", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"}}) // not in a token's form
		withToken(t, s, config.Token{ID: "theirs", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"}})
		withToken(t, s, config.Token{ID: "noneof", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"authentication"}})
		withToken(t, s, config.Token{ID: "passed", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"},
			Expires: time.Now().Add(-time.Minute)})
		s.Rerun = again
		s.Play(t, bootstrapToken())
		data := infoNow(t, s)
		if len(data) != 3 || !signs(data, "abcdef") || !signs(data, "theirs") {
			t.Errorf("again %v: cluster-info has %q", again, data)
		}

		data["jws-kubeconfig-abcdef"], data["jws-kubeconfig-others"] = "wrong", "kept"
		cm := manifests.ClusterInfo(nil)
		cm.Data = data
		if err := s.API.Ensure(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		s.Play(t, bootstrapToken())
		if data := infoNow(t, s); !signs(data, "abcdef") || data["jws-kubeconfig-others"] != "kept" && again {
			t.Errorf("again %v: the second time cluster-info has %q", again, data)
		}
	}
}

// TestEditedClusterInfoIsSigned as it is: init keeps the edits on a host that was already a node.
func TestEditedClusterInfoIsSigned(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.Play(t, certsCA())
	if err := s.API.Ensure(t.Context(), manifests.ClusterInfo([]byte("edited"))); err != nil {
		t.Fatal(err)
	}
	s.Rerun, s.Done = true, nil
	s.Play(t, bootstrapToken())
	if data := infoNow(t, s); data["kubeconfig"] != "edited" || !signs(data, "abcdef") {
		t.Errorf("cluster-info has %q", data)
	}
	s.Done = nil
	s.Play(t, bootstrapToken())
	if len(s.Done) > 0 {
		t.Errorf("the second time it did %q", s.Done)
	}
}

// TestClusterInfoNamesTheClustersEndpoint, even if the phase runs by itself, and doesn't know the cluster's configuration.
func TestClusterInfoNamesTheClustersEndpoint(t *testing.T) {
	for _, edited := range []bool{false, true} {
		s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
		s.Play(t, certsCA())
		s.Put(t, s.Config.Paths.AdminKubeconfig, "clusters: [{name: c, cluster: {server: 'https://api.example.org:6443'}}]\n")
		if edited {
			phasetest.Fatal(t, s.API.Ensure(t.Context(), manifests.ClusterInfo([]byte("edited"))))
		}
		s.Play(t, bootstrapToken())
		if data := infoNow(t, s); !strings.Contains(data["kubeconfig"], "server: https://api.example.org:6443") || !signs(data, "abcdef") {
			t.Errorf("cluster-info has %q", data)
		}
	}
	s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument+"controlPlaneEndpoint: lb.example.org:6443\n")
	s.Play(t, certsCA())
	s.Put(t, s.Config.Paths.AdminKubeconfig, "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}]\n") // a proxy's
	s.Play(t, bootstrapToken())
	if data := infoNow(t, s); !strings.Contains(data["kubeconfig"], "server: https://lb.example.org:6443") {
		t.Errorf("cluster-info has %q", data)
	}
}

// TestImmutableClusterInfo: it can't be signed, so an init that runs again says so and continues.
func TestImmutableClusterInfo(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.Play(t, certsCA(), bootstrapToken())
	info := manifests.ClusterInfo([]byte(infoNow(t, s)["kubeconfig"]))
	info.Immutable = ptr.To(true)
	phasetest.Fatal(t, s.API.EnsureAbsent(t.Context(), info))
	phasetest.Fatal(t, s.API.Ensure(t.Context(), info))
	s.Rerun, s.Done = true, nil
	s.Play(t, bootstrapToken())
	if data := infoNow(t, s); len(data) != 1 || len(s.Done) > 0 {
		t.Errorf("did %q, cluster-info has %q", s.Done, data)
	}
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "ConfigMap kube-public/cluster-info", "immutable"},
		phasetest.Line{"[WARNING]", "--discovery-file", "`slipway init phase bootstrap-token`"})
}

func TestReplacedTokenSigns(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.Play(t, certsCA())
	withToken(t, s, config.Token{ID: "abcdef", Secret: config.NewSecret("ffffffffffffffff"), Usages: []string{"signing"}})
	s.Play(t, bootstrapToken())
	if data := infoNow(t, s); !signs(data, "abcdef") {
		t.Errorf("cluster-info has %q", data)
	}
}

// TestResultOfInit: the result has everything a join needs, except secrets the user wants withheld.
func TestResultOfInit(t *testing.T) {
	const token, key = "abcdef.0123456789abcdef", "abababababababababababababababababababababababababababababababab"
	tests := []struct {
		name                           string
		upload, alone                  bool
		hideToken, hideKey             bool
		token, key, join, controlPlane bool
	}{
		{name: "workers", token: true, join: true},
		{name: "control planes, too", upload: true, token: true, key: true, join: true, controlPlane: true},
		{name: "control planes, which have no common address", upload: true, alone: true, token: true, key: true, join: true},
		{name: "no token", upload: true, hideToken: true, key: true},
		{name: "no key", upload: true, hideKey: true, token: true, join: true},
		{name: "neither", upload: true, hideToken: true, hideKey: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+"bootstrapTokens: [{token: "+token+"}]\ncertificateKey: "+key+"\n"+fixture.ClusterDocument)
			var out bytes.Buffer
			events := ui.NewEvents("slipway", "v1", "init", &out)
			s.UI, s.Config.UploadCerts = events, tt.upload
			if !tt.alone {
				s.Config.Cluster.ControlPlaneEndpoint = "192.0.2.11:6443"
			}
			s.Config.SkipTokenPrint, s.Config.SkipCertificateKeyPrint = tt.hideToken, tt.hideKey
			s.Play(t, certificates(), uploadCerts(), bootstrapToken(), showJoinCommand("join"))
			before := out.Len()
			events.End(ui.Summary{Node: "cp-1"}, nil)
			phasetest.CheckEvents(t, out.Bytes())
			if strings.Contains(out.String()[:before], key) {
				t.Error("an event other than the result has the key")
			}
			pin := certs.PublicKeyPin(certOf(t, s))
			join := "slipway join 192.0.2.11:6443 --token " + token + " --discovery-token-ca-cert-hash " + pin
			type m = map[string]any
			want := m{"caCertHashes": []any{pin}, "token": given(tt.token, token), "certificateKey": given(tt.key, key), "joinCommand": given(tt.join, join),
				"controlPlaneJoinCommand": given(tt.controlPlane, join+" --control-plane --certificate-key "+key)}
			var got m
			if err := json.Unmarshal(out.Bytes()[before:], &got); err != nil {
				t.Fatal(err)
			}
			for name := range got {
				if _, wanted := want[name]; !wanted {
					delete(got, name)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func given(shown bool, text string) any {
	if shown {
		return text
	}
	return nil
}

func certOf(t *testing.T, s *phasetest.Stage) *x509.Certificate {
	t.Helper()
	cert, err := certs.FirstCert([]byte(s.Get(t, "/etc/kubernetes/pki/ca.crt")))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
