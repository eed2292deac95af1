// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package profile_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/golden"
)

func TestPrinted(t *testing.T) {
	for _, name := range profile.Names() {
		data, warnings, err := config.PrintProfile(name, nil)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		golden.Check(t, "testdata/"+name+".yaml", string(data))
	}
}

// TestEveryRelease: each supported release has every flag, field, plugin and kind of file that the profiles use.
func TestEveryRelease(t *testing.T) {
	for r, more := releases.Of("1.34"); more; r, more = r.Next() {
		for _, name := range profile.Names() {
			p, _ := profile.Of(name)
			for _, s := range p.Settings {
				if !r.HasFlag(s.Component, s.Name) {
					t.Errorf("%s: %s has no --%s", r.Minor, s.Component, s.Name)
				}
				if s.Name == "enable-admission-plugins" {
					for plugin := range strings.SplitSeq(s.Value, ",") {
						if !r.HasAdmissionPlugin(plugin) {
							t.Errorf("%s has no plugin %s", r.Minor, plugin)
						}
					}
				}
			}
			for _, f := range p.Fields {
				if !r.HasField(releases.Kubelet, f.Path) {
					t.Errorf("%s: the kubelet has no field %s", r.Minor, f.Path)
				}
			}
		}
		for _, f := range profile.Files() {
			var doc struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(f.Data, &doc); err != nil {
				t.Fatal(err)
			}
			if audit := doc.APIVersion == "audit.k8s.io/v1" && doc.Kind == "Policy"; !audit && !r.HasDocument(releases.APIServer, doc.APIVersion, doc.Kind) {
				t.Errorf("%s reads no %s of %s", r.Minor, doc.Kind, doc.APIVersion)
			}
		}
	}
}

// TestAuditRecordsNoSecrets: each rule that records bodies names its resources, and none of them has secrets.
func TestAuditRecordsNoSecrets(t *testing.T) {
	var policy struct {
		Rules []struct {
			Level     string
			Resources []struct {
				Group     string
				Resources []string
			}
		}
	}
	if err := yaml.Unmarshal(profile.Files()[0].Data, &policy); err != nil {
		t.Fatal(err)
	}
	bodies := 0
	for i, rule := range policy.Rules {
		if rule.Level == "Metadata" || rule.Level == "None" {
			continue
		}
		bodies++
		if len(rule.Resources) == 0 {
			t.Errorf("rule %d records all bodies", i)
		}
		for _, r := range rule.Resources {
			open := len(r.Resources) == 0 && r.Group != "rbac.authorization.k8s.io"
			secret := slices.ContainsFunc(r.Resources, func(name string) bool {
				return strings.ContainsAny(name, "*") || slices.Contains([]string{"secrets", "configmaps", "serviceaccounts/token", "tokenreviews"}, name)
			})
			if open || secret {
				t.Errorf("rule %d records the bodies of %q %q", i, r.Group, r.Resources)
			}
		}
	}
	if last := policy.Rules[len(policy.Rules)-1]; bodies == 0 || last.Level != "Metadata" || len(last.Resources) > 0 {
		t.Errorf("the last rule is %v, and %d record bodies", last, bodies)
	}
}

// auditRule is a rule of an audit policy. An empty list matches everything.
type auditRule struct {
	Level                                string
	Users, UserGroups, Verbs, Namespaces []string
	NonResourceURLs                      []string
	Resources                            []struct {
		Group     string
		Resources []string
	}
}

// matches reports whether the rule is about a request for a resource of the core group, in no namespace.
func (r auditRule) matches(user, group, verb, resource string) bool {
	of := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	anyone := len(r.Users)+len(r.UserGroups) == 0 || slices.Contains(r.Users, user) || slices.Contains(r.UserGroups, group)
	if !anyone || !of(r.Verbs, verb) || len(r.Namespaces)+len(r.NonResourceURLs) > 0 {
		return false
	}
	for _, res := range r.Resources {
		if res.Group == "" && of(res.Resources, resource) {
			return true
		}
	}
	return len(r.Resources) == 0
}

// TestAuditOfKubelets: the log leaves out kubelets' reading and heartbeats, and no other writes.
func TestAuditOfKubelets(t *testing.T) {
	var policy struct{ Rules []auditRule }
	if err := yaml.Unmarshal(profile.Files()[0].Data, &policy); err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		"get nodes": "None", "watch nodes": "None", "get pods/status": "None", "patch nodes/status": "None", "update nodes/status": "None",
		"patch nodes": "Metadata", "update nodes": "Metadata", "create nodes": "Metadata", "patch pods/status": "Metadata", "update pods/status": "Metadata",
		"delete pods": "Request", "create serviceaccounts/token": "Metadata", "get secrets": "Metadata",
	} {
		verb, resource, _ := strings.Cut(request, " ")
		i := slices.IndexFunc(policy.Rules, func(r auditRule) bool { return r.matches("system:node:w1", "system:nodes", verb, resource) })
		if i < 0 || policy.Rules[i].Level != want {
			t.Errorf("%s: rule %d, want %s", request, i, want)
		}
	}
}

// load reads documents as `init --profile cis --config` does.
func load(t *testing.T, documents string) (*config.Node, []string, error) {
	t.Helper()
	return config.LoadInit(t.Context(), &config.Source{Name: "init.yaml", Data: []byte(documents)}, config.InitFlags{
		Given: []string{"profile"}, Profile: profile.CIS,
	}, config.Options{
		Facts:    config.HostFacts{Hostname: "vm"},
		NewToken: func() (string, string) { return "abcdef", "0123456789abcdef" },
	})
}

func apiServer(settings string) string {
	return fixture.InitDocument + fixture.ClusterDocument + "apiServer:\n" + settings
}

// TestOwnSettingsStay: a user's own setting stays and is named, and so are settings of the profile that don't work beside it.
func TestOwnSettingsStay(t *testing.T) {
	const hardening = "/etc/kubernetes/hardening/"
	for name, tt := range map[string]struct {
		documents string
		warnings  []string
		flag      string // of the API server
		value     string // missing if empty
		files     int
	}{
		"none":           {documents: apiServer("  extraArgs: []\n"), flag: "authentication-config", value: hardening + "authentication.yaml", files: 3},
		"the same value": {documents: apiServer("  extraArgs: [{name: profiling, value: 'false'}]\n"), flag: "profiling", value: "false", files: 3},
		"another value": {documents: apiServer("  extraArgs: [{name: audit-log-maxage, value: '7'}]\n"), flag: "audit-log-maxage", value: "7", files: 3,
			warnings: []string{"init.yaml: | apiServer.extraArgs[0].value | cis | audit-log-maxage | 30"}},
		"a policy": {documents: apiServer("  extraArgs: [{name: audit-policy-file, value: /srv/p.yaml}]\n"), flag: "audit-policy-file", value: "/srv/p.yaml", files: 2,
			warnings: []string{"apiServer.extraArgs[0].value | cis | audit-policy-file | /etc/kubernetes/audit/audit.yaml"}},
		"anonymous requests": {documents: apiServer("  extraArgs: [{name: anonymous-auth, value: 'true'}]\n"), flag: "authentication-config", files: 2,
			warnings: []string{"apiServer.extraArgs[0].value | anonymous-auth | cis | authentication-config | kube-apiserver"}},
		"OIDC": {documents: apiServer("  extraArgs: [{name: oidc-issuer-url, value: 'https://id.example.org'}]\n"), flag: "authentication-config", files: 2,
			warnings: []string{"apiServer.extraArgs[0].value | oidc-issuer-url | cis | authentication-config"}},
		"admission": {documents: apiServer("  extraArgs: [{name: admission-control-config-file, value: /srv/a.yaml}]\n"), flag: "enable-admission-plugins", files: 2,
			warnings: []string{"apiServer.extraArgs[0].value | cis | admission-control-config-file | " + hardening + "admission.yaml",
				"apiServer.extraArgs[0].value | admission-control-config-file | cis | enable-admission-plugins"}},
		"the kubelet": {documents: apiServer("  extraArgs: []\n") + "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodPidsLimit: 100\n",
			flag: "profiling", value: "false", files: 3, warnings: []string{"podPidsLimit | cis"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, warnings, err := load(t, tt.documents)
			if err != nil {
				t.Fatal(err)
			}
			fact.List(t, warnings, tt.warnings...)
			if value, _ := config.LastArg(n.Cluster.APIServer.ExtraArgs, tt.flag); value != tt.value {
				t.Errorf("--%s=%s, not %q", tt.flag, value, tt.value)
			}
			if files := n.ProfileFiles(); len(files) != tt.files {
				t.Errorf("%d files", len(files))
			}
			if want := name == "the kubelet"; !n.Kubelet.ProtectKernelDefaults || !n.KubeletGiven || (*n.Kubelet.PodPidsLimit == 100) != want {
				t.Errorf("the kubelet has %+v", n.Kubelet)
			}
		})
	}
}

// TestFaults: a volume of the user's keeps the API server from finding the profile's files.
func TestFaults(t *testing.T) {
	for name, tt := range map[string]struct{ documents, want string }{
		"a volume's name": {apiServer("  extraVolumes: [{name: audit-log, hostPath: /srv, mountPath: /srv}]\n"), `apiServer.extraVolumes[0].name | "audit-log" | cis`},
		"a volume's path": {apiServer("  extraVolumes: [{name: x, hostPath: /srv, mountPath: /etc/kubernetes/audit}]\n"),
			`apiServer.extraVolumes[0].mountPath | /etc/kubernetes/audit | cis | "audit-policy"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, tt.documents)
			if err == nil {
				t.Fatal("no fault")
			}
			fact.List(t, []string{err.Error()}, tt.want)
		})
	}
	if _, _, err := config.PrintProfile("sic", nil); err == nil {
		t.Error("an unknown profile is printed")
	} else {
		fact.List(t, []string{err.Error()}, `--profile | "sic" | audit, cis`)
	}
}

// TestStored: other control planes find the files' names in the cluster's configuration. Flags alone, without the profile's
// volumes, aren't a profile's.
func TestStored(t *testing.T) {
	n, _, err := load(t, apiServer("  certSANs: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := n.KubeadmConfigYAML()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{string(stored): 3, strings.ReplaceAll(string(stored), "name: audit-policy\n", "name: mine\n"): 2} {
		n, _, err := config.LoadCluster([]byte(text), nil, nil, nil, config.Options{Placeholders: true})
		if err != nil {
			t.Fatal(err)
		}
		if files := n.ProfileFiles(); len(files) != want || n.AuditLogDir() != "/var/log/kubernetes/audit" {
			t.Errorf("%d files, not %d, and logs in %q", len(files), want, n.AuditLogDir())
		}
	}
}
