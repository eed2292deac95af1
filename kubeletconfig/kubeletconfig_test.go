// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
)

const golden = "../testdata/golden/node"

func load(t *testing.T, input string) *config.Node {
	t.Helper()
	n, _, err := config.LoadInit(t.Context(), &config.Source{Name: "input.yaml", Data: []byte(input)}, config.InitFlags{}, config.Options{
		Facts: config.HostFacts{Hostname: "vm", IPv4: netip.MustParseAddr("192.168.99.11"), Sockets: config.KnownSockets()[:1]},
		Now:   time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"default", "podcidr", "external-etcd", "dualstack"} {
		t.Run(name, func(t *testing.T) {
			n := load(t, read(t, golden, name, "input.yaml"))
			cfg, err := ConfigYAML(n)
			if err != nil {
				t.Fatal(err)
			}
			flags, err := FlagsEnv(n)
			if err != nil {
				t.Fatal(err)
			}
			for file, got := range map[string][]byte{
				"config.yaml": cfg, "instance-config.yaml": InstanceConfigYAML(n), "kubeadm-flags.env": flags,
			} {
				if diff := cmp.Diff(read(t, golden, name, "files/kubelet", file), string(got)); diff != "" {
					t.Errorf("%s, -reference +got:\n%s", file, diff)
				}
			}
			if n.Kubelet.ContainerRuntimeEndpoint != "" {
				t.Error("the cluster's configuration was changed")
			}
		})
	}
}

// The node's own settings win over the cluster's.
func TestConfigYAMLEndpoint(t *testing.T) {
	const input = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.168.99.11}
nodeRegistration: {criSocket: unix:///run/a.sock}
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/b.sock
`
	data, err := ConfigYAML(load(t, input))
	if err != nil {
		t.Fatal(err)
	}
	patches, err := config.ParsePatches([]config.PatchFile{{Name: "kubeletconfiguration0.yaml", Data: []byte("maxPods: 7")}})
	if err != nil {
		t.Fatal(err)
	}
	if data, err = patches.Apply(config.PatchKubelet, data, New()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"containerRuntimeEndpoint: unix:///run/a.sock", "maxPods: 7", "kind: KubeletConfiguration"} {
		if !containsLine(string(data), line) {
			t.Errorf("no line %q in\n%s", line, data)
		}
	}
}

func containsLine(text, line string) bool {
	return slices.Contains(strings.Split(text, "\n"), line)
}
