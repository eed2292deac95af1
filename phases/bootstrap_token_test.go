// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const explicitToken = "bootstrapTokens: [{token: abcdef.0123456789abcdef}]\n"

// withToken puts a token into the API, as an earlier run or a user would.
func withToken(t *testing.T, s *stage, token config.Token) {
	t.Helper()
	if err := s.api.Ensure(t.Context(), manifests.BootstrapTokenSecret(token, s.host.Now())); err != nil {
		t.Fatal(err)
	}
	s.done = nil
}

// tokenNow is a token's secret as the API has it.
func tokenNow(t *testing.T, s *stage, id string) string {
	t.Helper()
	secret := &corev1.Secret{}
	secret.APIVersion, secret.Kind, secret.Namespace, secret.Name = "v1", "Secret", "kube-system", "bootstrap-token-"+id
	if found, err := s.api.Get(t.Context(), secret); err != nil || !found {
		t.Fatalf("found %v, error %v", found, err)
	}
	return string(secret.Data["token-secret"])
}

func TestBootstrapTokens(t *testing.T) {
	earlier := func(s *stage) config.Token { // left by a run without a token of the user's own
		token := s.Config.BootstrapTokens[0]
		token.ID, token.Secret = "zzzzzz", config.NewSecret("zzzzzzzzzzzzzzzz")
		return token
	}
	tests := []struct {
		name, document string
		before         func(t *testing.T, s *stage)
		written        bool   // a token
		join           string // the token in the join command
		says           line
	}{
		{name: "a new one", written: true, join: "abcdef.0123456789abcdef", says: line{"Creating", "token abcdef"}},
		{name: "that of an earlier run serves", join: "zzzzzz.zzzzzzzzzzzzzzzz", says: line{"token zzzzzz", "exists"},
			before: func(t *testing.T, s *stage) { withToken(t, s, earlier(s)) }},
		{name: "that of an earlier run will not live long enough", written: true, join: "abcdef.0123456789abcdef", says: line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *stage) {
				withToken(t, s, earlier(s))
				s.host.Has.Time = time.Now().Add(23*time.Hour + time.Minute)
			}},
		{name: "one of a person's own does not serve for a generated one", written: true, join: "abcdef.0123456789abcdef", says: line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *stage) {
				token := earlier(s)
				token.Description = "mine"
				withToken(t, s, token)
			}},
		{name: "one without the right usages does not serve", written: true, join: "abcdef.0123456789abcdef", says: line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *stage) {
				token := earlier(s)
				token.Usages = []string{"signing"}
				withToken(t, s, token)
			}},
		{name: "the user's own is kept", document: explicitToken, join: "abcdef.0123456789abcdef", says: line{"token abcdef", "exists"},
			before: func(t *testing.T, s *stage) { withToken(t, s, s.Config.BootstrapTokens[0]) }},
		{name: "the user's own with another secret is replaced", document: explicitToken, written: true, join: "abcdef.0123456789abcdef", says: line{"Creating", "token abcdef"},
			before: func(t *testing.T, s *stage) {
				token := s.Config.BootstrapTokens[0]
				token.Secret = config.NewSecret("ffffffffffffffff")
				withToken(t, s, token)
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+tt.document+fixture.ClusterDocument)
			s.play(t, certsCA())
			if tt.before != nil {
				tt.before(t, s)
			}
			s.play(t, bootstrapToken(), showJoinCommand("join"))
			written := strings.Contains(strings.Join(s.done, "\n"), "ensure Secret bootstrap-token-abcdef")
			if written != tt.written {
				t.Errorf("did %v", s.done)
			}
			s.saidOnce(t, tt.says)
			if want := "slipway join 192.0.2.11:6443 --token " + tt.join + " "; !strings.HasPrefix(s.results.String(), want) {
				t.Errorf("results %q, want %q", s.results.String(), want)
			}
			id, secret, _ := strings.Cut(tt.join, ".")
			if got := tokenNow(t, s, id); got != secret {
				t.Errorf("the API has another secret for %s", id)
			}
			if strings.Contains(s.said.String(), secret) {
				t.Error("progress holds the secret")
			}
		})
	}
}

// TestTokenJustWrittenIsNotSearchedFor: a list would wait for the API server's cache.
func TestTokenJustWrittenIsNotSearchedFor(t *testing.T) {
	s := newStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.play(t, certsCA(), bootstrapToken())
	s.Cluster = noLists{s.api}
	s.play(t, showJoinCommand("join"))
	if !strings.Contains(s.results.String(), "--token abcdef.0123456789abcdef") {
		t.Errorf("results %q", s.results.String())
	}
	if strings.Contains(s.said.String(), "WARNING") {
		t.Errorf("it says %q", s.said.String())
	}
}

// TestShortTokens live as long as configured.
func TestShortTokens(t *testing.T) {
	soon := time.Now().Add(20 * time.Minute).UTC().Format(time.RFC3339)
	for life, later := range map[string]time.Duration{"ttl: 30m0s": 14 * time.Minute, "ttl: 1h0m0s": 29 * time.Minute, "expires: " + soon: 19 * time.Minute} {
		s := newStage(t, fixture.InitDocument+"bootstrapTokens: [{token: abcdef.0123456789abcdef, "+life+"}]\n"+fixture.ClusterDocument)
		s.play(t, certsCA(), bootstrapToken(), showJoinCommand("join"))
		made := len(s.done)
		s.host.Has.Time = time.Now().Add(later)
		s.play(t, bootstrapToken(), showJoinCommand("join"))
		if strings.Contains(s.said.String(), "WARNING") {
			t.Errorf("%s: it says %q", life, s.said.String())
		}
		if again := strings.Join(s.done[made:], "\n"); strings.Contains(again, "bootstrap-token-abcdef") {
			t.Errorf("%s: after %s it was created again", life, later)
		}
	}
}

// TestJoinCommandWithoutToken: a join command that would fail on every worker is not shown as if it worked.
func TestJoinCommandWithoutToken(t *testing.T) {
	s := newStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.play(t, certsCA(), showJoinCommand("join"))
	s.saidOnce(t, line{"[WARNING]", "token abcdef", "missing"})
}

// noLists is an API that answers only requests for single objects.
type noLists struct{ *cluster.Plan }

func (noLists) Secrets(context.Context, string, string) ([]corev1.Secret, error) {
	return nil, errors.New("Secrets were listed")
}

// TestExpiredTokenIsLeftOut: an init that runs again after the token of its configuration has expired must not create
// that token each time.
func TestExpiredTokenIsLeftOut(t *testing.T) {
	s := newStage(t, fixture.InitDocument+"bootstrapTokens: [{token: abcdef.0123456789abcdef, expires: 2020-01-01T00:00:00Z}]\n"+fixture.ClusterDocument)
	s.play(t, certsCA(), bootstrapToken())
	if did := strings.Join(s.done, "\n"); strings.Contains(did, "bootstrap-token-abcdef") || !strings.Contains(did, "ensure ConfigMap cluster-info") {
		t.Errorf("did %v", s.done)
	}
	s.saidOnce(t, line{"token abcdef", "skipped", "2020-01-01T00:00:00Z"})
}

func TestBootstrapTokenWritesWhatNodesNeed(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.play(t, certsCA(), bootstrapToken())
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
	if diff := cmp.Diff(want, s.done); diff != "" {
		t.Errorf("did (-want +got):\n%s", diff)
	}
}

func TestBootstrapTokenNeedsTheCA(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	err := runBootstrapToken(t.Context(), s.Env)
	fact.Error(t, err, "/etc/kubernetes/pki/ca.crt", "not exist")
	fact.In(t, fault.Remedy(err), "`slipway init phase certs ca`", "control plane")
}

func TestJoinCommandWithholds(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.UploadCerts = true
	s.Config.CertificateKey = config.NewSecret(strings.Repeat("ab", 32))
	s.play(t, certsCA(), showJoinCommand("join"))
	if got := s.results.String(); strings.Contains(got, "--control-plane") {
		t.Errorf("no other control plane can join without a controlPlaneEndpoint, but the result says %s", got)
	}
	s.Config.Cluster.ControlPlaneEndpoint = "api.example.org"
	for _, withheld := range []bool{false, true} {
		s.Config.SkipTokenPrint, s.Config.SkipCertificateKeyPrint = withheld, withheld
		s.results.Reset()
		s.play(t, showJoinCommand("join"))
		both := s.results.String()
		if strings.Contains(both, "0123456789abcdef") == withheld || strings.Contains(both, "abababab") == withheld {
			t.Errorf("withheld %v: %s", withheld, both)
		}
		if strings.Contains(s.said.String(), "0123456789abcdef") || strings.Contains(s.said.String(), "abababab") {
			t.Errorf("progress holds a secret: %s", s.said.String())
		}
	}
}

// infoNow is cluster-info as the API has it. It checks that each signature in it is the one that the controller
// manager's signer computes.
func infoNow(t *testing.T, s *stage) map[string]string {
	t.Helper()
	cm := manifests.ClusterInfo(nil)
	if found, err := s.api.Get(t.Context(), cm); err != nil || !found {
		t.Fatalf("found %v, error %v", found, err)
	}
	return cm.Data
}

// signs reports whether the data of cluster-info has a token's signature.
func signs(data map[string]string, id string) bool {
	return jws.DetachedTokenIsValid(data["jws-kubeconfig-"+id], data["kubeconfig"], id, "0123456789abcdef")
}

// TestClusterInfoIsSigned with every token that may sign: nobody has to wait for the controller manager, and it finds
// nothing to change. Signatures from it or another tool stay.
func TestClusterInfoIsSigned(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := newStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
		s.play(t, certsCA())
		withToken(t, s, config.Token{ID: "kubeadm", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"}}) // not in the form of a token
		withToken(t, s, config.Token{ID: "theirs", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"}})
		withToken(t, s, config.Token{ID: "noneof", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"authentication"}})
		withToken(t, s, config.Token{ID: "passed", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"},
			Expires: time.Now().Add(-time.Minute)})
		s.Again = again
		s.play(t, bootstrapToken())
		data := infoNow(t, s)
		if len(data) != 3 || !signs(data, "abcdef") || !signs(data, "theirs") {
			t.Errorf("again %v: cluster-info has %q", again, data)
		}

		data["jws-kubeconfig-abcdef"], data["jws-kubeconfig-others"] = "wrong", "kept"
		cm := manifests.ClusterInfo(nil)
		cm.Data = data
		if err := s.api.Ensure(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		s.play(t, bootstrapToken())
		if data := infoNow(t, s); !signs(data, "abcdef") || data["jws-kubeconfig-others"] != "kept" && again {
			t.Errorf("again %v: the second time cluster-info has %q", again, data)
		}
	}
}

// TestEditedClusterInfoIsSigned as it is: init keeps the edits on a host that was already a node.
func TestEditedClusterInfoIsSigned(t *testing.T) {
	s := newStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.play(t, certsCA())
	if err := s.api.Ensure(t.Context(), manifests.ClusterInfo([]byte("edited"))); err != nil {
		t.Fatal(err)
	}
	s.Again, s.done = true, nil
	s.play(t, bootstrapToken())
	if data := infoNow(t, s); data["kubeconfig"] != "edited" || !signs(data, "abcdef") {
		t.Errorf("cluster-info has %q", data)
	}
	s.done = nil
	s.play(t, bootstrapToken())
	if len(s.done) > 0 {
		t.Errorf("the second time it did %q", s.done)
	}
}

// TestImmutableClusterInfo cannot be signed: init on a node that was one before says so and goes on.
func TestImmutableClusterInfo(t *testing.T) {
	s := newStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.play(t, certsCA(), bootstrapToken())
	info := manifests.ClusterInfo([]byte(infoNow(t, s)["kubeconfig"]))
	info.Immutable = ptr.To(true)
	fatal(t, s.api.EnsureAbsent(t.Context(), info))
	fatal(t, s.api.Ensure(t.Context(), info))
	s.Again, s.done = true, nil
	s.play(t, bootstrapToken())
	if data := infoNow(t, s); len(data) != 1 || len(s.done) > 0 {
		t.Errorf("did %q, cluster-info has %q", s.done, data)
	}
	s.saidOnce(t, line{"[WARNING]", "ConfigMap kube-public/cluster-info", "immutable"},
		line{"[WARNING]", "--discovery-file", "`slipway init phase bootstrap-token`"})
}

// TestReplacedTokenSigns only with its new secret.
func TestReplacedTokenSigns(t *testing.T) {
	s := newStage(t, fixture.InitDocument+explicitToken+fixture.ClusterDocument)
	s.play(t, certsCA())
	withToken(t, s, config.Token{ID: "abcdef", Secret: config.NewSecret("ffffffffffffffff"), Usages: []string{"signing"}})
	s.play(t, bootstrapToken())
	if data := infoNow(t, s); !signs(data, "abcdef") {
		t.Errorf("cluster-info has %q", data)
	}
}
