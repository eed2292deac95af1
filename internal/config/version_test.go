// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/test/fact"
)

func TestVersion(t *testing.T) {
	labels := map[string]string{"stable-1": "v1.36.9", "stable-1.35": "v1.35.4", "latest": "v1.38.0-alpha.1"}
	for _, tt := range []struct{ given, want string }{
		{"v1.37.2", "v1.37.2"},
		{"1.35.0", "v1.35.0"},
		{"v1.36.0-rc.0", "v1.36.0-rc.0"},
		{"stable-1", "v1.36.9"},
		{"release/stable-1.35", "v1.35.4"},
		{"stable-1.36", "v1.36.4 | f.yaml:6: kubernetesVersion: | \"stable-1.36\" | v1.36.4 | no way"},
		{"release/latest-1.37", "v1.37.2 | f.yaml:6: kubernetesVersion: | \"release/latest-1.37\" | v1.37.2 | no way"},
		{"stable", "v1.37.2 | f.yaml:6: kubernetesVersion: | \"stable\" | v1.37.2 | no way"},
		{"latest-1", "v1.37.2 | f.yaml:6: kubernetesVersion: | \"latest-1\" | v1.37.2 | no way"},
		{"stable-1.34", `f.yaml:6: kubernetesVersion: | "stable-1.34" | no way`},
		{"stable-1.38", `f.yaml:6: kubernetesVersion: | "stable-1.38" | no way`},
		{"stable-2", `f.yaml:6: kubernetesVersion: | "stable-2" | no way`},
		{"latest", `f.yaml:6: kubernetesVersion: "latest" | v1.38.0-alpha.1 | Kubernetes 1.35 to 1.37`},
		{"v1.34.9", `f.yaml:6: kubernetesVersion: "v1.34.9" | Kubernetes 1.35 to 1.37`},
		{"v1.38.0", `f.yaml:6: kubernetesVersion: "v1.38.0" | Kubernetes 1.35 to 1.37`},
		{"v2.36.0", `f.yaml:6: kubernetesVersion: "v2.36.0" | Kubernetes 1.35 to 1.37`},
		{"ci/latest", "f.yaml:6: kubernetesVersion: | CI builds | v1.37.2"},
		{"v1.36", `f.yaml:6: kubernetesVersion: "v1.36" | v1.37.2 | stable-1`},
		{"../../etc", `f.yaml:6: kubernetesVersion: "../../etc" | v1.37.2 | stable-1`},
	} {
		t.Run(tt.given, func(t *testing.T) {
			opts := testOptions()
			opts.Resolve = func(_ context.Context, label string) (string, error) {
				if v := labels[label]; v != "" {
					return v, nil
				}
				return "", errors.New("no way out")
			}
			src := &Source{Name: "f.yaml", Data: fmt.Appendf(nil, "\n---\n\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: %s\n", tt.given)}
			n, warnings, err := LoadInit(t.Context(), src, InitFlags{}, opts)
			if err != nil {
				fact.List(t, strings.Split(err.Error(), "\n"), tt.want)
				return
			}
			version, warning, warned := strings.Cut(tt.want, " | ")
			if n.Cluster.KubernetesVersion != version || len(warnings) > 1 || (len(warnings) == 1) != warned {
				t.Errorf("got  %s, warnings %q\nwant %s", n.Cluster.KubernetesVersion, warnings, tt.want)
			}
			fact.In(t, strings.Join(warnings, ""), fact.Of(warning)...)
		})
	}
}

// TestVersionOfAPlan: a dry run doesn't ask the network for a label, whether the flag or the file requests the plan, and reports
// the version it plans with.
func TestVersionOfAPlan(t *testing.T) {
	opts := testOptions()
	opts.Resolve = func(context.Context, string) (string, error) {
		t.Error("the network was asked")
		return "v1.36.9", nil
	}
	file := &Source{Name: "f.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\ndryRun: true\n" +
		"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: stable-1.36\n")}
	flags := InitFlags{DryRun: true, KubernetesVersion: "stable-1.36", Given: []string{"dry-run", "kubernetes-version"}}
	for _, tt := range []struct {
		src   *Source
		flags InitFlags
	}{{file, InitFlags{}}, {nil, flags}} {
		n, warnings, err := LoadInit(t.Context(), tt.src, tt.flags, opts)
		if err != nil {
			t.Fatal(err)
		}
		if n.Cluster.KubernetesVersion != "v1.36.4" {
			t.Errorf("version %s, warnings %q", n.Cluster.KubernetesVersion, warnings)
		}
		fact.In(t, strings.Join(warnings, "\n"), `"stable-1.36"`, "v1.36.4")
	}
}

// TestVersionOfTheBundle: without a network, a label stands for the version of the host's bundle, if it's of that series.
func TestVersionOfTheBundle(t *testing.T) {
	for label, want := range map[string]string{"stable-1": "v1.36.1", "stable-1.36": "v1.36.1", "stable-1.37": "v1.37.2"} {
		opts := testOptions()
		opts.KubernetesVersion = "v1.36.1"
		opts.Resolve = func(context.Context, string) (string, error) { return "", errors.New("no way out") }
		n, _, err := LoadInit(t.Context(), nil, InitFlags{KubernetesVersion: label, Given: []string{"kubernetes-version"}}, opts)
		if err != nil || n.Cluster.KubernetesVersion != want {
			t.Errorf("%s: %v, want %s", label, err, want)
		}
	}
}

func TestFetchLabel(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good.txt":
			fmt.Fprintln(w, "v1.36.9")
		case "/html.txt":
			fmt.Fprint(w, "<html>please log in</html>"+strings.Repeat("x", 1<<20))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	for _, tt := range []struct{ path, want string }{
		{"/good.txt", "v1.36.9 <nil>"},
		{"/html.txt", "URL/html.txt: | version"},
		{"/none.txt", "URL/none.txt: | 404 Not Found"},
	} {
		version, err := fetchLabel(t.Context(), server.Client(), server.URL+tt.path)
		if (version == "") != (err != nil) {
			t.Errorf("version %q and error %v", version, err)
		}
		fact.In(t, strings.ReplaceAll(fmt.Sprint(version, " ", err), server.URL, "URL"), fact.Of(tt.want)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fetchLabel(ctx, server.Client(), server.URL+"/good.txt"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestNewestPatch: the default is the newest patch of the newest minor version.
func TestNewestPatch(t *testing.T) {
	all := releases()
	if got := NewestPatch(all[len(all)-1].minor); got != DefaultKubernetesVersion {
		t.Errorf("newest release %s, default %s", got, DefaultKubernetesVersion)
	}
	if got := NewestPatch(all[0].minor - 1); got != "" {
		t.Errorf("%s is not set up, but known", got)
	}
}

// TestDrainFlags: a node is drained only on request.
func TestDrainFlags(t *testing.T) {
	for args, c := range map[string]struct {
		want *Drain
		err  string
	}{
		"":                                 {},
		"--drain":                          {want: &Drain{Timeout: 5 * time.Minute}},
		"--drain --drain-force":            {want: &Drain{Timeout: 5 * time.Minute, Force: true}},
		"--drain --drain-timeout=30s":      {want: &Drain{Timeout: 30 * time.Second}},
		"--drain --drain-timeout=0s":       {err: "--drain-timeout: | 0s | positive"},
		"--drain-force":                    {err: "--drain-force: | --drain"},
		"--drain-timeout=1m --drain=false": {err: "--drain-timeout: | --drain"},
	} {
		t.Run(args, func(t *testing.T) {
			f := UpgradeFlags{Command: upgradeNode}
			fs := pflag.NewFlagSet("node", pflag.ContinueOnError)
			Bind(fs, upgradeNode, &f)
			if err := fs.Parse(strings.Fields(args)); err != nil {
				t.Fatal(err)
			}
			fs.Visit(func(flag *pflag.Flag) { f.Given = append(f.Given, flag.Name) })
			self, _, err := LoadUpgrade(t.Context(), nil, f, Options{})
			if c.err != "" {
				fact.Error(t, err, fact.Of(c.err)...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, self.Drain); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRelativePatches: a relative directory is for the command line, as with init and join.
func TestRelativePatches(t *testing.T) {
	for command, part := range map[string]string{upgradeApply: "apply", upgradeNode: "node", upgradePlan: "apply", upgradeDiff: "apply"} {
		self, _, err := LoadUpgrade(t.Context(), nil, UpgradeFlags{Command: command, Given: []string{"patches"}, Patches: "./dir"}, Options{})
		if err != nil || self.Patches.Directory != "./dir" {
			t.Errorf("%s: %+v, %v", command, self, err)
		}
		doc := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\n" + part + ": {patches: {directory: ./dir}}\n"
		_, _, err = LoadUpgrade(t.Context(), asSource(doc), UpgradeFlags{Command: command}, Options{})
		fact.Error(t, err, "f.yaml:3:", part+".patches.directory:", "./dir")
	}
}

// TestUpgradeTarget: any version can be planned, by name or by label. The commands that upgrade take only supported versions.
func TestUpgradeTarget(t *testing.T) {
	const unsupported = "v1.99. | 1.35 to 1.37"
	resolve := func(context.Context, string) (string, error) { return "v1.99.1", nil }
	for _, c := range []struct{ command, version, want, err string }{
		{upgradePlan, "v1.99.0", "v1.99.0", ""},
		{upgradePlan, "1.99.0-rc.1", "v1.99.0-rc.1", ""},
		{upgradePlan, "v1.1.0", "v1.1.0", ""},
		{upgradePlan, "stable", "v1.99.1", ""},
		{upgradePlan, "v1.99", "", "v1.99"},
		{upgradeApply, "v1.99.0", "", unsupported},
		{upgradeApply, "stable", "", unsupported},
		{upgradeDiff, "v1.99.0", "", unsupported},
		{upgradeApply, DefaultKubernetesVersion, DefaultKubernetesVersion, ""},
	} {
		self, _, err := LoadUpgrade(t.Context(), nil, UpgradeFlags{Command: c.command, Version: c.version}, Options{Resolve: resolve})
		switch {
		case c.err != "":
			fact.Error(t, err, fact.Of(c.err)...)
		case c.err == "" && (err != nil || self.Version != c.want):
			t.Errorf("%s %s: %+v, %v", c.command, c.version, self, err)
		}
	}
}

// TestEtcdVersion: the version matches the image's, even if the user chooses the image.
func TestEtcdVersion(t *testing.T) {
	for _, minor := range []string{"1.35", "1.36", "1.37"} {
		n := Node{Cluster: ClusterConfiguration{KubernetesVersion: "v" + minor + ".1"}}
		if got := n.Cluster.EtcdVersion(minor); got == "" || !strings.HasSuffix(n.Image(EtcdComponent), "/etcd:"+got+"-0") {
			t.Errorf("Kubernetes %s: etcd %q, but the image is %s", minor, got, n.Image(EtcdComponent))
		}
	}
	pinned := ClusterConfiguration{KubernetesVersion: "v1.37.2"}
	pinned.Etcd.Local = &LocalEtcd{ImageMeta: ImageMeta{ImageTag: "3.6.11-0"}}
	if got := pinned.EtcdVersion("1.36"); got != "3.6.11" {
		t.Errorf("with a tag: %s", got)
	}
	external := ClusterConfiguration{}
	external.Etcd.External = &ExternalEtcd{}
	if got := external.EtcdVersion("1.37"); got != "" {
		t.Errorf("external: %s", got)
	}
}
