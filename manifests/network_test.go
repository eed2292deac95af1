// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	goflag "flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
)

var update = goflag.Bool("update", false, "write the golden files of the network add-on again")

// withNetwork returns the default cluster with an add-on.
func withNetwork(t *testing.T, change func(*config.InitFlags)) *config.Node {
	t.Helper()
	flags := config.InitFlags{Given: []string{"network"}, NetworkAddOn: config.Flannel}
	if change != nil {
		change(&flags)
	}
	n, _, err := config.LoadInit(t.Context(), nil, flags, config.Options{
		Facts: config.HostFacts{
			Hostname: "cp-1", IPv4: netip.MustParseAddr("192.0.2.11"), IPv6: netip.MustParseAddr("2001:db8::11"), Sockets: config.KnownSockets()[:1],
		},
		NewToken: func() (string, string) { return "abcdef", "0123456789abcdef" },
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func serviceCIDR(cidr string) func(*config.InitFlags) {
	return func(f *config.InitFlags) { f.Given, f.ServiceCIDR = append(f.Given, "service-cidr"), cidr }
}

func TestFlannelGolden(t *testing.T) {
	for name, change := range map[string]func(*config.InitFlags){
		"default":   nil,
		"dualstack": serviceCIDR("10.96.0.0/12,fd00:10:96::/112"),
		"ipv6":      serviceCIDR("fd00:10:96::/112"),
		"registry": func(f *config.InitFlags) {
			f.Given, f.ImageRepository = append(f.Given, "image-repository"), "registry.example/k8s"
		},
	} {
		t.Run(name, func(t *testing.T) {
			objs, err := Network(withNetwork(t, change), config.PatchSet{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Print(objs)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "flannel", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, path)), string(got)); diff != "" {
				t.Errorf("go test ./manifests -run FlannelGolden -update writes it again, -want +got:\n%s", diff)
			}
		})
	}
}

// TestFlannelFollowsKubeProxy: both make their rules with the same tool.
func TestFlannelFollowsKubeProxy(t *testing.T) {
	n := withNetwork(t, nil)
	for mode, want := range map[string]bool{"": false, "iptables": false, "ipvs": false, "nftables": true} {
		n.KubeProxy.Mode = "" // as the field's type wants it
		if err := json.Unmarshal([]byte(`{"mode": "`+mode+`"}`), &n.KubeProxy); err != nil {
			t.Fatal(err)
		}
		settings, err := flannelConfig(n)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(settings["net-conf.json"], `"EnableNFTables": true`); got != want {
			t.Errorf("kube-proxy's mode %q: EnableNFTables is %t", mode, got)
		}
	}
}

// TestFlannelInterface: flannel panics if a dual-stack cluster gives it a node's IPv6 address.
func TestFlannelInterface(t *testing.T) {
	n := withNetwork(t, serviceCIDR("fd00:10:96::/112,10.96.0.0/12"))
	if got := flannelInterface(n); !n.AdvertiseAddress.Is6() || got != nil {
		t.Errorf("with the address %s: %q", n.AdvertiseAddress, got)
	}
}

// TestPodNetworkOfFlannel: flannel gets one unless the user chooses it, other add-ons don't.
func TestPodNetworkOfFlannel(t *testing.T) {
	for _, c := range []struct {
		change func(*config.InitFlags)
		want   string
	}{
		{nil, "10.244.0.0/16"},
		{serviceCIDR("fd00:10:96::/112,10.96.0.0/12"), "fd00:10:244::/56,10.244.0.0/16"},
		{func(f *config.InitFlags) {
			f.Given, f.PodNetworkCIDR = append(f.Given, "pod-network-cidr"), "10.1.0.0/16"
		}, "10.1.0.0/16"},
		{func(f *config.InitFlags) { f.NetworkAddOn = config.NoNetwork }, ""},
		{func(f *config.InitFlags) { f.NetworkAddOn, f.NetworkManifest = "-", []byte(manifest) }, ""},
	} {
		if got := withNetwork(t, c.change).Cluster.Networking.PodSubnet; got != c.want {
			t.Errorf("Pod network %q, want %q", got, c.want)
		}
	}
}

const manifest = `# a network
---
apiVersion: v1
kind: Namespace
metadata: {name: net}
---
apiVersion: net.example/v1
kind: Pool
metadata: {name: all}
---
# nothing
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {psk: hidden}}
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: net}}
- {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: pools.net.example}}
`

func TestNetworkFromFile(t *testing.T) {
	n := withNetwork(t, func(f *config.InitFlags) { f.NetworkAddOn, f.NetworkManifest = "net.yaml", []byte(manifest) })
	objs, err := Network(n, config.PatchSet{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, stage := range Stages(objs) {
		for _, obj := range stage {
			got = append(got, strings.Repeat("-", i)+obj.GetObjectKind().GroupVersionKind().Kind+" "+obj.GetName())
		}
	}
	want := []string{"Namespace net", "CustomResourceDefinition pools.net.example", "-Pool all", "-Secret key", "--DaemonSet agent"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stages, -want +got:\n%s", diff)
	}
	for _, obj := range objs {
		if secret, is := obj.(*corev1.Secret); is != (obj.GetName() == "key") || is && secret.Namespace != "default" {
			t.Errorf("%T %s", obj, obj.GetName())
		}
	}
}

// TestNetworkFromBadFile: loading the configuration finds more than this.
func TestNetworkFromBadFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "--network net.yaml: | no object | `kubectl apply`",
		"---\n# only a comment\n":       "--network net.yaml: | no object | `kubectl apply`",
		"a: [":                          "--network net.yaml: | document 1 | API",
		"- a":                           "--network net.yaml: | document 1 | API",
		"kind: Pod":                     "--network net.yaml: | document 1: | apiVersion | kind",
		"{apiVersion: v1}":              "--network net.yaml: | document 1: | apiVersion | kind",
		"{apiVersion: v1, kind: Thing}": "--network net.yaml: | document 1: | Thing | metadata.name",
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Thing}]}":             "--network net.yaml: | document 1: | Thing | metadata.name",
		"{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {psk: [hidden]}}": "--network net.yaml: | document 1: Secret a:",
	} {
		_, err := Network(&config.Node{NetworkAddOn: config.NetworkAddOn{Name: "net.yaml", Manifest: []byte(text)}}, config.PatchSet{})
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		fact.Error(t, err, fact.Of(want)...)
	}
}

// TestByFlannel: the DaemonSet from upstream's manifest isn't Slipway's.
func TestByFlannel(t *testing.T) {
	objs, err := Flannel(withNetwork(t, nil), config.PatchSet{})
	if err != nil {
		t.Fatal(err)
	}
	ours := objs[len(objs)-1].(*appsv1.DaemonSet)
	theirs := ours.DeepCopy()
	theirs.Labels = map[string]string{"tier": "node", "app": "flannel", "k8s-app": "flannel"}
	if !ByFlannel(ours) || ByFlannel(theirs) {
		t.Errorf("%t, %t", ByFlannel(ours), ByFlannel(theirs))
	}
}
