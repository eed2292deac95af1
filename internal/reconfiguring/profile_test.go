// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestProfile: a profile adds to the stored settings and to the user's, and a setting that's there stays.
func TestProfile(t *testing.T) {
	const theirs = "apiServer: {extraArgs: [{name: %s}]}\n"
	args := func(arg string) string { return ofCluster + strings.Replace(theirs, "%s", arg, 1) }
	for name, test := range map[string]struct {
		profile, documents string
		changed, warnings  []string
		holds              func(n *config.Node) bool
	}{
		"audit": {profile.Audit, "", []string{"apiServer.extraArgs", "apiServer.extraVolumes"}, nil, func(n *config.Node) bool {
			own, _ := config.LastArg(n.Cluster.APIServer.ExtraArgs, "v")
			return own == "2" && len(n.ProfileFiles()) == 1 && n.Kubelet.MaxPods == 17 && slices.Equal(n.Cluster.APIServer.CertSANs, []string{"api.example.org"})
		}},
		"cis": {profile.CIS, "", []string{"apiServer.extraArgs", "controllerManager.extraArgs", "podPidsLimit", "streamingConnectionIdleTimeout"}, nil,
			func(n *config.Node) bool {
				return len(n.ProfileFiles()) == 3 && n.Kubelet.ProtectKernelDefaults && n.Kubelet.StreamingConnectionIdleTimeout.Minutes() == 5 && n.Kubelet.MaxPods == 17
			}},
		"the user's flag": {profile.Audit, args(`audit-log-maxage, value: "7"`), nil, []string{"change.yaml:3: | apiServer.extraArgs | audit | audit-log-maxage | 30"},
			func(n *config.Node) bool {
				age, _ := config.LastArg(n.Cluster.APIServer.ExtraArgs, "audit-log-maxage")
				return age == "7" && len(n.ProfileFiles()) == 1
			}},
		"flags that don't go together": {profile.CIS, args(`anonymous-auth, value: "true"`), nil, []string{"change.yaml:3: | apiServer.extraArgs | anonymous-auth | authentication-config"},
			func(n *config.Node) bool { return len(n.ProfileFiles()) == 2 }},
		"the user's fields": {profile.CIS, ofKubelet + "protectKernelDefaults: false\npodPidsLimit: 99\nmaxPods: 20\n", nil,
			[]string{"change.yaml:3: | protectKernelDefaults | cis", "change.yaml:4: | podPidsLimit | cis"},
			func(n *config.Node) bool {
				return !n.Kubelet.ProtectKernelDefaults && *n.Kubelet.PodPidsLimit == 99 && n.Kubelet.MaxPods == 20
			}},
		"fields that are as good left out": {profile.CIS, ofKubelet + "readOnlyPort: 10255\nmakeIPTablesUtilChains: false\n", nil,
			[]string{"change.yaml:3: | readOnlyPort | cis", "change.yaml:4: | makeIPTablesUtilChains | cis"},
			func(n *config.Node) bool {
				return n.Kubelet.ReadOnlyPort == 10255 && !*n.Kubelet.MakeIPTablesUtilChains
			}},
		"fields that are left out": {profile.CIS, ofKubelet + "makeIPTablesUtilChains: null\n", nil, nil,
			func(n *config.Node) bool { return n.Kubelet.MakeIPTablesUtilChains == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			var src *config.Source
			if test.documents != "" {
				src = &config.Source{Name: "change.yaml", Data: []byte(test.documents)}
			}
			c, warnings, err := live(t).Profile(t.Context(), test.profile, src)
			if err != nil {
				t.Fatal(err)
			}
			warnings = slices.DeleteFunc(warnings, func(w string) bool { return strings.Contains(w, "aNewerField") })
			fact.List(t, warnings, test.warnings...)
			for _, path := range test.changed {
				if !slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Path == path }) {
					t.Errorf("%s isn't among the changes: %+v", path, c.Fields)
				}
			}
			if !test.holds(c.Node) {
				t.Errorf("%+v\n%+v", c.Node.Cluster.APIServer, c.Node.Kubelet)
			}
			stored, err := c.Node.KubeadmConfigYAML()
			if err != nil || !strings.Contains(string(stored), "aNewerField") {
				t.Errorf("lost a field of a newer version: %v\n%s", err, stored)
			}
		})
	}
}

// TestProfileAgain: a cluster with a profile's settings doesn't change, and nothing of it is called the user's own.
func TestProfileAgain(t *testing.T) {
	l := live(t)
	c, _, err := l.Profile(t.Context(), profile.CIS, nil)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := c.Node.KubeadmConfigYAML()
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := c.Node.KubeletYAML()
	if err != nil {
		t.Fatal(err)
	}
	err = l.API.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", string(cluster)), fixture.ConfigMap("kubelet-config", "kubelet", string(kubelet)))
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := l.Profile(t.Context(), profile.CIS, nil)
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return strings.Contains(w, "aNewerField") })
	if err != nil || len(c.Fields)+len(warnings) > 0 {
		t.Errorf("%v, %q, %+v", err, warnings, c)
	}
}

// TestProfileStoredField: a stored field that the profile would leave out is named.
func TestProfileStoredField(t *testing.T) {
	l := live(t)
	kubelet, err := cluster.ConfigMapText(t.Context(), l.API, "kube-system", "kubelet-config", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.API.Ensure(t.Context(), fixture.ConfigMap("kubelet-config", "kubelet", kubelet+"readOnlyPort: 10255\n")); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := l.Profile(t.Context(), profile.CIS, nil)
	if err != nil || !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "readOnlyPort") && strings.Contains(w, "cis") }) {
		t.Errorf("%v, %q", err, warnings)
	}
}

// TestProfileFaults: an unknown profile, and another volume where the profile has its own.
func TestProfileFaults(t *testing.T) {
	for name, test := range map[string]struct{ profile, documents, want string }{
		"unknown":  {"sic", ofCluster, `--profile | "sic"`},
		"a volume": {profile.Audit, ofCluster + "apiServer:\n  extraVolumes:\n  - {name: audit-log, hostPath: /srv, mountPath: /srv}\n", "change.yaml:5: | apiServer.extraVolumes[0].name"},
	} {
		t.Run(name, func(t *testing.T) {
			src := &config.Source{Name: "change.yaml", Data: []byte(test.documents)}
			_, _, err := live(t).Profile(t.Context(), test.profile, src)
			fact.Error(t, err, strings.Split(test.want, " | ")...)
		})
	}
}
