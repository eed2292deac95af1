// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
)

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
