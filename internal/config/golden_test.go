// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const golden = "../../testdata/golden"

// testOptions stand for a plain IPv4 host with containerd.
func testOptions() Options {
	return Options{
		Facts: HostFacts{
			Hostname: "vm",
			IPv4:     netip.MustParseAddr("192.168.99.11"),
			Sockets:  []string{"/var/run/containerd/containerd.sock"},
		},
		NewToken:          func() (string, string, error) { return "abcdef", "0123456789abcdef", nil },
		NewCertificateKey: func() (string, error) { return strings.Repeat("0", 64), nil },
		Now:               func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) },
	}
}

func readFile(t testing.TB, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func sameText(t *testing.T, want, got []byte) {
	t.Helper()
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func cases(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(golden, "node"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func loadCase(t *testing.T, name string) *Node {
	t.Helper()
	src := &Source{Name: "input.yaml", Data: readFile(t, golden, "node", name, "input.yaml")}
	n, warnings, err := LoadInit(t.Context(), src, Flags{}, testOptions())
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %q", err, warnings)
	}
	return n
}

func TestMigrateGolden(t *testing.T) {
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			src := Source{Name: "input.yaml", Data: readFile(t, golden, "node", name, "input.yaml")}
			got, warnings, err := Migrate(t.Context(), src, testOptions())
			if err != nil || len(warnings) > 0 {
				t.Fatalf("error %v, warnings %q", err, warnings)
			}
			sameText(t, readFile(t, golden, "node", name, "migrated.yaml"), got)
			again, _, err := Migrate(t.Context(), Source{Name: "again", Data: got}, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			sameText(t, got, again)
		})
	}
}

func TestImagesGolden(t *testing.T) {
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(loadCase(t, name).Images(), "\n") + "\n"
			sameText(t, readFile(t, golden, "node", name, "images.txt"), []byte(got))
		})
	}
}

func TestDefaultsGolden(t *testing.T) {
	for _, command := range []string{"init", "join", "reset", "upgrade"} {
		t.Run(command, func(t *testing.T) {
			var components []string
			if command == "init" {
				components = []string{kindKubeProxy, kindKubelet}
			}
			got, err := PrintDefaults(command, components, testOptions().Facts)
			if err != nil {
				t.Fatal(err)
			}
			sameText(t, readFile(t, golden, "defaults", command+"-defaults.yaml"), got)
		})
	}
}

// TestKubeletGolden compares the cluster's KubeletConfiguration with the reference's file on the node, which differs only in the
// node's own socket.
func TestKubeletGolden(t *testing.T) {
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			n := loadCase(t, name)
			got, err := n.KubeletYAML()
			if err != nil {
				t.Fatal(err)
			}
			want := readFile(t, golden, "node", name, "files/kubelet/config.yaml")
			sameText(t, []byte(strings.Replace(string(want), n.CRISocket, `""`, 1)), got)
		})
	}
}

func configMap(t *testing.T, file, key string) string {
	t.Helper()
	var m struct{ Data map[string]string }
	if err := yaml.Unmarshal(readFile(t, golden, "cluster", file), &m); err != nil {
		t.Fatal(err)
	}
	return m.Data[key]
}

func TestClusterGolden(t *testing.T) {
	src := &Source{Name: "lab.yaml", Data: readFile(t, "testdata", "reference-cluster.yaml")}
	n, warnings, err := LoadInit(t.Context(), src, Flags{}, testOptions())
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %q", err, warnings)
	}
	for _, tt := range []struct {
		file, key string
		yaml      func() ([]byte, error)
	}{
		{"kube-system_configmap_kubeadm-config.yaml", "ClusterConfiguration", n.KubeadmConfigYAML},
		{"kube-system_configmap_kubelet-config.yaml", "kubelet", n.KubeletYAML},
		{"kube-system_configmap_kube-proxy.yaml", "config.conf", n.KubeProxyYAML},
	} {
		t.Run(tt.key, func(t *testing.T) {
			got, err := tt.yaml()
			if err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSuffix(configMap(t, tt.file, tt.key), "\n")
			sameText(t, []byte(want), []byte(strings.TrimSuffix(string(got), "\n")))
		})
	}
}
