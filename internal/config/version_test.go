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

	"github.com/pkg/errors"
)

func TestVersion(t *testing.T) {
	labels := map[string]string{"stable-1": "v1.36.9", "stable-1.35": "v1.35.4", "latest": "v1.38.0-alpha.1"}
	for _, tt := range []struct{ given, want string }{
		{"v1.37.2", "v1.37.2"},
		{"1.35.0", "v1.35.0"},
		{"v1.36.0-rc.0", "v1.36.0-rc.0"},
		{"stable-1", "v1.36.9"},
		{"release/stable-1.35", "v1.35.4"},
		{"stable-1.36", "v1.37.2 warning: f.yaml:6: kubernetesVersion: cannot resolve \"stable-1.36\", using v1.37.2: no way out"},
		{"latest", `f.yaml:6: kubernetesVersion: "latest" resolves to v1.38.0-alpha.1, which is not supported; this program sets up Kubernetes 1.35 to 1.37`},
		{"v1.34.9", `f.yaml:6: kubernetesVersion: "v1.34.9" is not supported; this program sets up Kubernetes 1.35 to 1.37`},
		{"v1.38.0", `f.yaml:6: kubernetesVersion: "v1.38.0" is not supported; this program sets up Kubernetes 1.35 to 1.37`},
		{"v2.36.0", `f.yaml:6: kubernetesVersion: "v2.36.0" is not supported; this program sets up Kubernetes 1.35 to 1.37`},
		{"ci/latest", "f.yaml:6: kubernetesVersion: CI builds are not supported; use a release such as v1.37.2"},
		{"v1.36", `f.yaml:6: kubernetesVersion: "v1.36" is not a version such as v1.37.2 or a label such as stable-1`},
		{"../../etc", `f.yaml:6: kubernetesVersion: "../../etc" is not a version such as v1.37.2 or a label such as stable-1`},
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
			n, warnings, err := LoadInit(t.Context(), src, Flags{}, opts)
			got := fmt.Sprint(err)
			if err == nil {
				got = n.Cluster.KubernetesVersion
			}
			if len(warnings) > 0 {
				got += " warning: " + strings.Join(warnings, ", ")
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestVersionOfAPlan: a dry run does not ask the network for a label, whether the flag or the file requests the plan,
// and reports the version that it plans with.
func TestVersionOfAPlan(t *testing.T) {
	opts := testOptions()
	opts.Resolve = func(context.Context, string) (string, error) {
		t.Error("the network was asked")
		return "v1.36.9", nil
	}
	file := &Source{Name: "f.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\ndryRun: true\n" +
		"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: stable-1.36\n")}
	flags := Flags{DryRun: true, KubernetesVersion: "stable-1.36", Given: []string{"dry-run", "kubernetes-version"}}
	for _, tt := range []struct {
		src   *Source
		flags Flags
	}{{file, Flags{}}, {nil, flags}} {
		n, warnings, err := LoadInit(t.Context(), tt.src, tt.flags, opts)
		if err != nil {
			t.Fatal(err)
		}
		want := `cannot resolve "stable-1.36", using v1.37.2`
		if n.Cluster.KubernetesVersion != "v1.37.2" || !strings.Contains(strings.Join(warnings, "\n"), want) {
			t.Errorf("version %s, warnings %q", n.Cluster.KubernetesVersion, warnings)
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
		{"/html.txt", " URL/html.txt: the answer is not a version"},
		{"/none.txt", " URL/none.txt: the server answered 404 Not Found"},
	} {
		version, err := fetchLabel(t.Context(), server.Client(), server.URL+tt.path)
		if got := strings.ReplaceAll(fmt.Sprint(version, " ", err), server.URL, "URL"); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
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
