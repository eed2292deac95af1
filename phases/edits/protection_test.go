// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func flagIn(component string, words ...string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) {
		t.Helper()
		first := "    - " + component + "\n"
		s.EditPod(t, component, first, first+"    - "+strings.Join(words, "\n    - ")+"\n")
	}
}

// volumeIn mounts a host directory in the API server at the same path.
func volumeIn(name, path string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) {
		t.Helper()
		const component = manifests.APIServerName
		s.EditPod(t, component, "    volumeMounts:\n", "    volumeMounts:\n    - {mountPath: "+path+", name: "+name+", readOnly: true}\n")
		s.EditPod(t, component, "  volumes:\n", "  volumes:\n  - {name: "+name+", hostPath: {path: "+path+"}}\n")
	}
}

// writtenByUpgrade creates the backup of an upgrade that wrote a file as it is.
func writtenByUpgrade(t *testing.T, s *phasetest.Stage, path string) {
	t.Helper()
	kind := upgrading.ManifestBackup
	if filepath.Dir(path) == "/var/lib/kubelet" {
		kind = upgrading.KubeletBackup
	}
	dir := "/etc/kubernetes/tmp/" + kind + "2026-10-01-00-00-00/"
	s.Put(t, dir+"upgrade.yaml", "node: cp-1\nto: v1.36.4\nca: sha256:1\nwritten:\n  "+filepath.Base(path)+": "+host.HashOf([]byte(s.Get(t, path)))+"\n")
	s.Put(t, dir+filepath.Base(path), "spec: {containers: [{image: 'registry.k8s.io/x:v1.35.8'}]}")
}

// TestProtection: protective flags and volumes are never dropped, neither as leftovers of an earlier configuration nor by
// ignoring checks. The plan's patches keep them.
func TestProtection(t *testing.T) {
	const (
		server  = manifests.APIServerName
		flags   = "kube-apiserver0+json.yaml"
		volumes = "kube-apiserver0+strategic.yaml"
		encrypt = "--encryption-provider-config=/etc/kubernetes/enc/enc.yaml"
	)
	guarded := func(component, list string) phasetest.FoundAs {
		return phasetest.FoundAs{Name: "error StaticPodProtection", Facts: []string{component}, List: list}
	}
	change := func(list string) phasetest.FoundAs {
		return phasetest.FoundAs{Name: "warning StaticPodEdits", Facts: []string{server, "ClusterConfiguration"}, List: list}
	}
	edit := func(list string) phasetest.FoundAs {
		return phasetest.FoundAs{Name: "error StaticPodEdits", Facts: []string{server, list}}
	}
	etcdChange := func(list string) phasetest.FoundAs {
		return phasetest.FoundAs{Name: "warning StaticPodEdits", Facts: []string{"etcd", "ClusterConfiguration"}, List: list}
	}
	inEtcd := func(old, text string) func(*testing.T, *phasetest.Stage) {
		return func(t *testing.T, s *phasetest.Stage) { s.EditPod(t, "etcd", old, text) }
	}
	dataIn := func(dir string) func(*config.ClusterConfiguration) {
		return func(c *config.ClusterConfiguration) { c.Etcd.Local.DataDir = dir }
	}
	sets := func(name, value string) func(*config.ClusterConfiguration) {
		return func(c *config.ClusterConfiguration) {
			c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, config.Arg{Name: name, Value: value})
		}
	}
	files := func(pairs ...string) func(*testing.T, *phasetest.Stage) {
		return func(t *testing.T, s *phasetest.Stage) {
			for i := 0; i < len(pairs); i += 2 {
				s.Put(t, "/etc/kubernetes/pki/"+pairs[i], pairs[i+1])
			}
		}
	}
	const encryptV1, encryptV2 = "/etc/kubernetes/pki/v1.yaml", "--encryption-provider-config=/etc/kubernetes/pki/v2.yaml"
	for name, row := range map[string]struct {
		edits     []func(*testing.T, *phasetest.Stage)
		configure func(*config.ClusterConfiguration)
		want      []phasetest.FoundAs
		kept      []string
	}{
		"encryption with another file than the configuration's": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, encryptV2), files("v1.yaml", "one", "v2.yaml", "two")},
			configure: sets("encryption-provider-config", encryptV1), want: []phasetest.FoundAs{guarded(server, encryptV2)}, kept: []string{flags}},
		"encryption with a file that isn't on this host": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, encryptV2), files("v2.yaml", "two")},
			configure: sets("encryption-provider-config", encryptV1), want: []phasetest.FoundAs{guarded(server, encryptV2)}, kept: []string{flags}},
		"encryption with a file of the same name": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, encryptV2), files("v2.yaml", "two", "enc/v2.yaml", "one")},
			configure: sets("encryption-provider-config", "/etc/kubernetes/pki/enc/v2.yaml"), want: []phasetest.FoundAs{guarded(server, encryptV2)}, kept: []string{flags}},
		"encryption with the same contents": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, encryptV2), files("v1.yaml", "one", "v2.yaml", "one")},
			configure: sets("encryption-provider-config", encryptV1), want: []phasetest.FoundAs{change("- --encryption-provider-config=" + encryptV1)}},
		"encryption with another directory at the same place": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, encrypt), func(t *testing.T, s *phasetest.Stage) {
			volumeIn("enc", "/etc/kubernetes/enc")(t, s)
			s.EditPod(t, server, "hostPath: {path: /etc/kubernetes/enc}", "hostPath: {path: /srv/enc}")
			s.Put(t, "/srv/enc/enc.yaml", "two")
			s.Put(t, "/etc/kubernetes/enc/enc.yaml", "one")
		}}, configure: func(c *config.ClusterConfiguration) {
			sets("encryption-provider-config", "/etc/kubernetes/enc/enc.yaml")(c)
			c.APIServer.ExtraVolumes = append(c.APIServer.ExtraVolumes, config.HostPathMount{Name: "enc", HostPath: "/etc/kubernetes/enc", MountPath: "/etc/kubernetes/enc"})
		}, want: []phasetest.FoundAs{guarded(server, "the volume at /etc/kubernetes/enc"), {Name: "warning StaticPodEdits", Facts: []string{"/etc/kubernetes/enc"}}}, kept: []string{volumes}},
		"a policy other than the configuration's": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, "--audit-policy-file=/etc/kubernetes/pki/v2.yaml"), files("v1.yaml", "one", "v2.yaml", "two")},
			configure: sets("audit-policy-file", encryptV1), want: []phasetest.FoundAs{edit("--audit-policy-file=/etc/kubernetes/pki/v2.yaml")}, kept: []string{flags}},
		"a policy that has moved": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, "--audit-policy-file=/etc/kubernetes/pki/v2.yaml"), files("v1.yaml", "one", "v2.yaml", "one")},
			configure: sets("audit-policy-file", encryptV1), want: []phasetest.FoundAs{change("- --audit-policy-file=" + encryptV1)}},
		"a policy that an earlier run has set": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, "--audit-policy-file=/etc/kubernetes/pki/v2.yaml"), files("v1.yaml", "one", "v2.yaml", "two"), func(t *testing.T, s *phasetest.Stage) {
			writtenByUpgrade(t, s, "/etc/kubernetes/manifests/kube-apiserver.yaml")
		}}, configure: sets("audit-policy-file", encryptV1), want: []phasetest.FoundAs{change("- --audit-policy-file=" + encryptV1)}},
		"encryption": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, encrypt), volumeIn("enc", "/etc/kubernetes/enc")},
			want: []phasetest.FoundAs{guarded(server, encrypt+", the volume at /etc/kubernetes/enc")}, kept: []string{flags, volumes}},
		"encryption, with its value apart": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, "--encryption-provider-config", "/etc/enc.yaml")},
			want: []phasetest.FoundAs{guarded(server, "--encryption-provider-config /etc/enc.yaml")}, kept: []string{flags}},
		"audit beside what is in doubt": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, "--profiling=false", "--audit-log-path=/var/log/audit/audit.log"), volumeIn("audit", "/var/log/audit")},
			want: []phasetest.FoundAs{guarded(server, "--audit-log-path=/var/log/audit/audit.log, the volume at /var/log/audit"), change("- --profiling=false")}, kept: []string{flags, volumes}},
		"admission": {edits: []func(*testing.T, *phasetest.Stage){func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, server, "plugins=NodeRestriction", "plugins=NodeRestriction,AlwaysPullImages")
		}}, want: []phasetest.FoundAs{guarded(server, "--enable-admission-plugins=NodeRestriction,AlwaysPullImages")}, kept: []string{flags}},
		"authentication": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, "--anonymous-auth=false", "--oidc_issuer_url=https://id.example.com")},
			want: []phasetest.FoundAs{guarded(server, "--anonymous-auth=false, --oidc_issuer_url=https://id.example.com")}, kept: []string{flags}},
		"authorization": {edits: []func(*testing.T, *phasetest.Stage){func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, server, "mode=Node,RBAC", "mode=Node,RBAC,Webhook")
		}, flagIn(server, "--authorization-webhook-config-file=/etc/authz/webhook.yaml"), volumeIn("authz", "/etc/authz")},
			want: []phasetest.FoundAs{guarded(server, "--authorization-webhook-config-file=/etc/authz/webhook.yaml, --authorization-mode=Node,RBAC,Webhook, the volume at /etc/authz")}, kept: []string{flags, volumes}},
		"of etcd": {edits: []func(*testing.T, *phasetest.Stage){flagIn("etcd", "--client-crl-file=/etc/kubernetes/pki/etcd/crl.pem")},
			want: []phasetest.FoundAs{guarded("etcd", "--client-crl-file=/etc/kubernetes/pki/etcd/crl.pem")}, kept: []string{"etcd0+json.yaml"}},
		"the socket of a KMS plugin": {edits: []func(*testing.T, *phasetest.Stage){
			flagIn(server, "--encryption-provider-config=/etc/kubernetes/pki/enc.yaml"), volumeIn("kms", "/run/kms"), volumeIn("other", "/opt/other"),
			func(t *testing.T, s *phasetest.Stage) {
				s.Put(t, "/etc/kubernetes/pki/enc.yaml", "kind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{kms: {endpoint: 'unix:///run/kms/kms.sock'}}]}]\n")
			}}, want: []phasetest.FoundAs{guarded(server, "--encryption-provider-config=/etc/kubernetes/pki/enc.yaml, the volume at /run/kms"),
			change("- mountPath: /opt/other, name: other, path: /opt/other, name: other")}, kept: []string{flags, volumes}},
		"a volume whose flag has come into the configuration": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, encrypt), volumeIn("enc", "/etc/kubernetes/enc")},
			configure: func(c *config.ClusterConfiguration) {
				c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, config.Arg{Name: "encryption-provider-config", Value: "/etc/kubernetes/enc/enc.yaml"})
			}, want: []phasetest.FoundAs{guarded(server, "the volume at /etc/kubernetes/enc")}, kept: []string{volumes}},
		"a list that the configuration has without a guard": {edits: []func(*testing.T, *phasetest.Stage){func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, server, "plugins=NodeRestriction", "plugins=NodeRestriction,AlwaysPullImages")
		}}, configure: func(c *config.ClusterConfiguration) {
			c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, config.Arg{Name: "enable-admission-plugins", Value: "NodeRestriction,EventRateLimit"})
		}, want: []phasetest.FoundAs{guarded(server, "--enable-admission-plugins=NodeRestriction,AlwaysPullImages")}, kept: []string{flags}},

		"etcd's data on another disk": {edits: []func(*testing.T, *phasetest.Stage){inEtcd("path: /var/lib/etcd\n", "path: /mnt/etcd\n")},
			want: []phasetest.FoundAs{guarded("etcd", "/var/lib/etcd instead of /mnt/etcd")}, kept: []string{"etcd0+strategic.yaml"}},
		"etcd's data on another disk beside what is in doubt": {edits: []func(*testing.T, *phasetest.Stage){inEtcd("path: /var/lib/etcd\n", "path: /mnt/etcd\n"), flagIn("etcd", "--max-txn-ops=512")},
			want: []phasetest.FoundAs{guarded("etcd", "/var/lib/etcd instead of /mnt/etcd"), etcdChange("- --max-txn-ops=512")}, kept: []string{"etcd0+strategic.yaml"}},
		"etcd's data in a restored directory": {edits: []func(*testing.T, *phasetest.Stage){inEtcd("--data-dir=/var/lib/etcd\n", "--data-dir=/var/lib/etcd/restored\n")},
			want: []phasetest.FoundAs{guarded("etcd", "/var/lib/etcd instead of /var/lib/etcd/restored")}, kept: []string{"etcd0+json.yaml"}},
		"etcd's data that the configuration has moved": {configure: dataIn("/srv/etcd"),
			want: []phasetest.FoundAs{guarded("etcd", "/srv/etcd instead of /var/lib/etcd")}, kept: []string{"etcd0+json.yaml", "etcd0+strategic.yaml"}},
		"etcd's log by a flag": {edits: []func(*testing.T, *phasetest.Stage){flagIn("etcd", "--wal-dir=/var/lib/etcd/log")},
			want: []phasetest.FoundAs{guarded("etcd", "/var/lib/etcd/member/wal instead of /var/lib/etcd/log")}, kept: []string{"etcd0+json.yaml"}},
		"etcd's log by a variable": {edits: []func(*testing.T, *phasetest.Stage){inEtcd("    image:", "    env: [{name: ETCD_WAL_DIR, value: /var/lib/etcd/log}]\n    image:")},
			want: []phasetest.FoundAs{guarded("etcd", "/var/lib/etcd/member/wal instead of /var/lib/etcd/log")}, kept: []string{"etcd0+strategic.yaml"}},
		"etcd's log by a mount": {edits: []func(*testing.T, *phasetest.Stage){
			inEtcd("    volumeMounts:\n", "    volumeMounts:\n    - {mountPath: /var/lib/etcd/member/wal, name: log}\n"), inEtcd("  volumes:\n", "  volumes:\n  - {name: log, hostPath: {path: /mnt/log}}\n"),
		}, want: []phasetest.FoundAs{guarded("etcd", "/var/lib/etcd/member/wal instead of /mnt/log")}, kept: []string{"etcd0+strategic.yaml"}},
		"etcd's settings in a file": {edits: []func(*testing.T, *phasetest.Stage){flagIn("etcd", "--config-file=/etc/kubernetes/pki/etcd/etcd.yml")},
			want: []phasetest.FoundAs{{Name: "error StaticPodProtection", Facts: []string{"/var/lib/etcd instead of ", "/etc/kubernetes/pki/etcd/etcd.yml"}}}, kept: []string{"etcd0+json.yaml"}},

		// The same directories by other means aren't lost.
		"etcd's data on the configuration's disk": {edits: []func(*testing.T, *phasetest.Stage){inEtcd("path: /var/lib/etcd\n", "path: /mnt/etcd\n")},
			configure: dataIn("/mnt/etcd"), want: []phasetest.FoundAs{etcdChange("")}},
		"etcd's data where the configuration's flag says": {edits: []func(*testing.T, *phasetest.Stage){flagIn("etcd", "--data-dir=/var/lib/etcd/restored"), inEtcd("    - --data-dir=/var/lib/etcd\n", "")},
			configure: func(c *config.ClusterConfiguration) {
				c.Etcd.Local.ExtraArgs = append(c.Etcd.Local.ExtraArgs, config.Arg{Name: "data-dir", Value: "/var/lib/etcd/restored"})
			}},
		"etcd's log in its usual place": {edits: []func(*testing.T, *phasetest.Stage){flagIn("etcd", "--wal-dir=/var/lib/etcd/member/wal")},
			want: []phasetest.FoundAs{etcdChange("- --wal-dir=/var/lib/etcd/member/wal")}},

		// The configuration's current settings aren't lost.
		"a longer list in the configuration": {configure: func(c *config.ClusterConfiguration) {
			c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, config.Arg{Name: "enable-admission-plugins", Value: "NodeRestriction,AlwaysPullImages"})
		}, want: []phasetest.FoundAs{change("- --enable-admission-plugins=NodeRestriction,AlwaysPullImages")}},
		"another value in the configuration": {edits: []func(*testing.T, *phasetest.Stage){flagIn(server, "--audit-log-maxage=7")},
			configure: func(c *config.ClusterConfiguration) {
				c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, config.Arg{Name: "audit-log-maxage", Value: "30"})
			}, want: []phasetest.FoundAs{change("- --audit-log-maxage=30")}},
		"a file in place of flags": {edits: nil, configure: func(c *config.ClusterConfiguration) {
			c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, config.Arg{Name: "authorization-config", Value: "/etc/kubernetes/pki/authz.yaml"})
		}, want: []phasetest.FoundAs{change("- --authorization-config=/etc/kubernetes/pki/authz.yaml")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			for _, edit := range row.edits {
				edit(t, s)
			}
			if row.configure != nil {
				row.configure(&s.Config.Cluster)
			}
			manifestsWrittenAt(t, s, manifestsWritten)
			configured(t, s, metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("kubectl-edit", configurationFields, time.Hour)}})
			phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env), row.want...)
			patches, err := PatchesOf(t.Context(), s.Env)
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, f := range patches.Kept {
				kept = append(kept, f.Name)
				s.Put(t, "/patches/"+f.Name, string(f.Data))
			}
			if diff := cmp.Diff(row.kept, kept); diff != "" {
				t.Errorf("patches:\n%s", diff)
			}
			final := func(f fault.Finding) bool { return f.Final }
			s.Config.PatchesDir = "/patches"
			if found := StaticPodFindings(t.Context(), s.Env); kept != nil && slices.ContainsFunc(found, final) {
				t.Errorf("with the patches: %q", phasetest.InWords(found))
			}
		})
	}
}

// TestProtectionFromPatches: a patch can't make Secrets unreadable, even if the flag stays and another file is mounted there.
func TestProtectionFromPatches(t *testing.T) {
	const enc, pki = "/etc/kubernetes/enc", "/etc/kubernetes/pki"
	const elsewhere = "{spec: {volumes: [{name: enc, hostPath: {path: /srv/enc}}]}}"
	lost := func(list string) []phasetest.FoundAs {
		return []phasetest.FoundAs{{Name: "error StaticPodProtection", List: list}}
	}
	for name, row := range map[string]struct {
		flag, file  string // in the static Pod, which nobody has edited
		kind, patch string
		another     string              // the file with the patch
		want        []phasetest.FoundAs // if it has other contents
		always      bool                // even if it has the same
	}{
		"another file": {manifests.EncryptionFlag, pki + "/v1.yaml", "json", "[{op: add, path: /spec/containers/0/command/-, value: '--encryption-provider-config=" + pki + "/v2.yaml'}]",
			pki + "/v2.yaml", lost("--encryption-provider-config=" + pki + "/v1.yaml"), false},
		"another directory at the same place":                     {manifests.EncryptionFlag, enc + "/enc.yaml", "strategic", elsewhere, "/srv/enc/enc.yaml", lost("the volume at " + enc), false},
		"another directory at the same place, for something else": {"audit-policy-file", enc + "/enc.yaml", "strategic", elsewhere, "/srv/enc/enc.yaml", nil, false},
		"the directory isn't mounted": {manifests.EncryptionFlag, enc + "/enc.yaml", "strategic", "{spec: {containers: [{name: kube-apiserver, volumeMounts: [{$patch: delete, mountPath: " + enc + "}]}]}}",
			"/srv/enc/enc.yaml", lost("the volume at " + enc), true},
		"another directory over the file": {manifests.EncryptionFlag, pki + "/v/v1.yaml", "strategic",
			"{spec: {containers: [{name: kube-apiserver, volumeMounts: [{name: v, mountPath: " + pki + "/v}]}], volumes: [{name: v, hostPath: {path: /srv/enc}}]}}",
			"/srv/enc/v1.yaml", lost("--encryption-provider-config=" + pki + "/v/v1.yaml"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			server := &s.Config.Cluster.APIServer
			server.ExtraArgs = append(server.ExtraArgs, config.Arg{Name: row.flag, Value: row.file})
			server.ExtraVolumes = append(server.ExtraVolumes, config.HostPathMount{Name: "enc", HostPath: enc, MountPath: enc})
			view, err := node.HostView(s.Env)
			if err != nil {
				t.Fatal(err)
			}
			made, err := node.StaticPodYAML(withPreviousVersion(s.Env), manifests.APIServerName, view, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", string(made))
			phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env))
			s.Put(t, "/patches/kube-apiserver0+"+row.kind+".yaml", row.patch+"\n")
			s.Config.PatchesDir = "/patches"
			s.Put(t, row.file, "one")
			s.Put(t, row.another, "two")
			phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env), row.want...)
			s.Put(t, row.another, "one")
			if !row.always {
				row.want = nil
			}
			phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env), row.want...)
		})
	}
}

// TestEtcdStaysInPlace: a patch can neither give etcd another directory than the one with its data, nor count as an edit if both are
// the same.
func TestEtcdStaysInPlace(t *testing.T) {
	s := phasetest.PlaneToUpgrade(t)
	s.Config.PatchesDir = "/patches"
	s.Put(t, "/patches/etcd.yaml", "spec: {volumes: [{name: etcd-data, hostPath: {path: /mnt/etcd}}]}\n")
	phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env),
		phasetest.FoundAs{Name: "error StaticPodProtection", Facts: []string{"etcd"}, List: "/mnt/etcd instead of /var/lib/etcd"})
	s.EditPod(t, manifests.EtcdName, "path: /var/lib/etcd\n", "path: /mnt/etcd\n")
	phasetest.CheckFindings(t, StaticPodFindings(t.Context(), s.Env))
	phasetest.Fatal(t, RefuseLoss(t.Context(), s.Env))
	s.Config.PatchesDir = ""
	fact.Error(t, RefuseLoss(t.Context(), s.Env), "StaticPodProtection", "/var/lib/etcd", "/mnt/etcd", "etcd.local.dataDir")
	s.Config.Upgrade.Etcd = false
	phasetest.Fatal(t, RefuseLoss(t.Context(), s.Env))
}

// TestProtectionIsNotIgnored: whichever check asks, the error stays and keeps its name.
func TestProtectionIsNotIgnored(t *testing.T) {
	for name, edit := range map[string]func(*testing.T, *phasetest.Stage){
		"audit": flagIn(manifests.APIServerName, "--audit-policy-file=/etc/kubernetes/pki/audit.yaml"),
		"etcd's data": func(t *testing.T, s *phasetest.Stage) {
			s.EditPod(t, manifests.EtcdName, "path: /var/lib/etcd\n", "path: /mnt/etcd\n")
		},
	} {
		s := phasetest.PlaneToUpgrade(t)
		edit(t, s)
		for _, ignore := range []string{"all", "StaticPodEdits", fault.StaticPodProtection} {
			ask := []preflight.Check{{Name: ignore, Run: func(ctx context.Context, _ preflight.View) []fault.Finding { return StaticPodFindings(ctx, s.Env) }}}
			report := preflight.Run(t.Context(), ask, s.Host, []string{ignore})
			if len(report[fault.Error]) != 1 || report[fault.Error][0].Name != fault.StaticPodProtection || !report[fault.Error][0].Final {
				t.Errorf("%s, ignoring %s: %v", name, ignore, phasetest.InWords(report[fault.Error]))
			}
		}
	}
}
