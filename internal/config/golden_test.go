// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/test/fact"
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
		NewToken:          func() (string, string) { return "abcdef", "0123456789abcdef" },
		NewCertificateKey: func() string { return strings.Repeat("0", 64) },
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
	n, warnings, err := LoadInit(t.Context(), src, InitFlags{}, testOptions())
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
	n, warnings, err := LoadInit(t.Context(), src, InitFlags{}, testOptions())
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

var update = flag.Bool("update", false, "write what the golden files should hold")

const configs = "../../testdata/configs"

// message is a fault or warning with file, line and, usually, a field.
var message = regexp.MustCompile(`^[a-z0-9-]+\.yaml:(\d+:)? \S`)

// TestConfigs checks the messages for every file of testdata/configs: the faults of invalid-*, and the warnings of valid-*
// (without a file if there are none).
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob(configs + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Experimental = strings.Contains(name, "-experimental-")
			warnings, err := Validate(t.Context(), Source{Name: name, Data: readFile(t, file)}, opts)
			var faults Faults
			switch {
			case err != nil && !errors.As(err, &faults):
				t.Fatalf("%T: %v", err, err)
			case strings.HasPrefix(name, "valid-") && err != nil:
				t.Fatal(err)
			case strings.HasPrefix(name, "invalid-") && err == nil:
				t.Fatal("no fault")
			}
			var got strings.Builder
			for _, f := range faults {
				got.WriteString(f.Error() + "\n")
			}
			for _, w := range warnings {
				got.WriteString("warning: " + w + "\n")
			}
			for line := range strings.Lines(got.String()) {
				if !message.MatchString(strings.TrimPrefix(line, "warning: ")) {
					t.Errorf("no file and line: %s", line)
				}
				if looksSecret().MatchString(line) || strings.Contains(line, "SECRET") {
					t.Errorf("shows a secret: %s", line)
				}
			}
			checkGolden(t, strings.TrimSuffix(file, ".yaml")+".txt", got.String())
		})
	}
}

// checkGolden compares got with a file, which doesn't exist if got is empty.
func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		if got == "" {
			_ = os.Remove(file)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil && (got != "" || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	sameText(t, want, []byte(got))
}

// TestMigrateMore covers cases the reference lacks: v1beta3, every kind, and component configurations, which don't change.
func TestMigrateMore(t *testing.T) {
	for _, name := range []string{"valid-v1beta3", "valid-full", "valid-others", "valid-minimal"} {
		t.Run(name, func(t *testing.T) {
			src := Source{Name: name + ".yaml", Data: readFile(t, configs, name+".yaml")}
			got, _, err := Migrate(t.Context(), src, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, filepath.Join("testdata", "migrated", name+".yaml"), string(got))
			again, _, err := Migrate(t.Context(), Source{Name: "again", Data: got}, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			sameText(t, got, again)
		})
	}
}

func TestMigrateFaults(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"invalid-empty", "invalid-empty.yaml: | no document"},
		{"invalid-crlf", "invalid-crlf.yaml:3: clusterNam: | unknown field"},
	} {
		got, _, err := Migrate(t.Context(), Source{Name: tt.file + ".yaml", Data: readFile(t, configs, tt.file+".yaml")}, testOptions())
		if got != nil {
			t.Errorf("%s: %s", tt.file, got)
		}
		fact.Error(t, err, fact.Of(tt.want)...)
	}
}

// TestMigrateWithoutAddress: a file for real use gets no placeholder.
func TestMigrateWithoutAddress(t *testing.T) {
	opts := testOptions()
	opts.Facts = HostFacts{Hostname: "h"}
	got, _, err := Migrate(t.Context(), *file("", ""), opts)
	if err != nil || strings.Contains(string(got), "advertiseAddress") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestValidateKnowsNoHost(t *testing.T) {
	opts := testOptions()
	opts.Facts = HostFacts{Hostname: "h", Sockets: []string{"/a", "/b"}}
	src := Source{Name: "f.yaml", Data: []byte(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {file: {kubeConfigPath: /x}}
controlPlane: {}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
`)}
	if _, err := Validate(t.Context(), src, opts); err != nil {
		t.Error(err)
	}
}

func TestPrintDefaultsFaults(t *testing.T) {
	for _, tt := range []struct {
		command    string
		components []string
		want       string
	}{
		{"init", []string{"KubeletConfiguratoin"}, `--component-configs: | "KubeletConfiguratoin" | KubeletConfiguration, KubeProxyConfiguration | "KubeletConfiguration"?`},
		{"boot", nil, `defaults | "boot"`},
	} {
		_, err := PrintDefaults(tt.command, tt.components, HostFacts{})
		fact.Error(t, err, fact.Of(tt.want)...)
	}
}

func TestPrintedDefaultsAreValid(t *testing.T) {
	for _, command := range []string{"init", "join", "reset", "upgrade"} {
		data, err := PrintDefaults(command, nil, testOptions().Facts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Validate(t.Context(), Source{Name: command, Data: data}, testOptions()); err != nil {
			t.Error(err)
		}
	}
}

func TestTooManyFaults(t *testing.T) {
	src := Source{Name: "f.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {certSANs: [" + strings.Repeat("a_b,", 10_000) + "]}")}
	_, err := Validate(t.Context(), src, testOptions())
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != maxFaults+1 || !strings.Contains(lines[maxFaults], " 200 ") {
		t.Errorf("%d faults, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestSecretsStaySecret(t *testing.T) {
	n := mustLoad(t, nil, allFlags(), testOptions())
	text := fmt.Sprintf("%v %+v %#v", *n, *n, *n)
	if strings.Contains(text, "0123456789abcdef") || strings.Contains(text, strings.Repeat("ab", 32)) {
		t.Error("printing a Node shows a secret")
	}
}

func TestSuggestions(t *testing.T) {
	known := []string{"podSubnet", "serviceSubnet", "dnsDomain"}
	for word, want := range map[string]string{
		"podSubent": "podSubnet", "PodSubnet": "podSubnet", "serviceSubnets": "serviceSubnet", "dnsdomain": "dnsDomain",
		"bogus": "", "": "", strings.Repeat("podSubnet", 1000): "",
	} {
		if want != "" {
			want = strconv.Quote(want) + "?"
		}
		if got := didYouMean(word, known); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%.20s: got %q, want %q", word, got, want)
		}
	}
}
