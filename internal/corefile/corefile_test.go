// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package corefile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/corefile"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"

	corev1 "k8s.io/api/core/v1"
)

func TestVersion(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/coredns/coredns:v1.14.6": "1.14.6",
		"coredns:1.9.3":                           "1.9.3",
		"localhost:5000/coredns":                  "",
		"localhost:5000/coredns:v1.14.2-vendor.1": "1.14.2-vendor.1",
		"example.com/coredns:v1.14.2@sha256:0123": "1.14.2",
		"coredns@sha256:900f9c109f7a33545d3c811516e8376df9019147b750f5ce3e254468769176ea": "1.14.6",
		"coredns@sha256:0123": "",
	} {
		if got := corefile.Version(image); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
}

// TestReleasesAreKnown fails if a release's default CoreDNS is newer than the tables: update corefile-migration then.
func TestReleasesAreKnown(t *testing.T) {
	var versions []string
	for _, release := range []string{"v1.35.8", "v1.36.4", config.DefaultKubernetesVersion} {
		n := fixture.Node(t, fixture.InitDocument+strings.ReplaceAll(fixture.ClusterDocument, "v1.37.2", release))
		versions = append(versions, corefile.Version(n.Image("coredns")))
	}
	n := fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument)
	objs, err := manifests.CoreDNS(n, config.PatchSet{})
	if err != nil {
		t.Fatal(err)
	}
	text := objs[1].(*corev1.ConfigMap).Data["Corefile"]
	for _, from := range versions {
		if got, err := corefile.Migrate(text, from, versions[len(versions)-1]); err != nil || got != text {
			t.Errorf("the default Corefile does not stay as it is when CoreDNS %s is upgraded: %v\n%s", from, err, got)
		}
	}
}

func TestMigrate(t *testing.T) {
	const commented = ".:53 {\n    errors # all of them\n    forward . /etc/resolv.conf {\n        max_concurrent 1000\n    }\n}\n"
	for name, c := range map[string]struct {
		text, from, to string
		want           string
		err            []string
		unknown        []string // parts
	}{
		"nothing to do keeps comments":   {text: commented, from: "1.13.1", to: "1.14.6", want: commented},
		"the same version reads nothing": {text: "}}{", from: "9.9.9", to: "9.9.9", want: "}}{"},
		"an option that was removed": {
			text: ".:53 {\n  kubernetes cluster.local {\n    ttl 30\n    transfer to 192.0.2.1\n  }\n}\n", from: "1.7.1", to: "1.14.6",
			want: ".:53 {\n    kubernetes cluster.local {\n        ttl 30\n    }\n    transfer cluster.local {\n        to 192.0.2.1\n    }\n}\n",
		},
		"unknown plugin": {
			text: ".:53 {\n template IN A {\n answer \"a b\"\n }\n}\n", from: "1.14.2", to: "1.14.6",
			want: ".:53 {\n template IN A {\n answer \"a b\"\n }\n}\n",
			err:  []string{"plugin template", "CoreDNS 1.14.6"}, unknown: []string{"plugin template"},
		},
		"unknown option": {
			text: ".:53 {\n reload\n cache {\n  serve_forever\n }\n}\nb.:53 {\n cache {\n  serve_forever\n }\n}\n", from: "1.14.2", to: "1.14.6",
			want: ".:53 {\n reload\n cache {\n  serve_forever\n }\n}\nb.:53 {\n cache {\n  serve_forever\n }\n}\n",
			err:  []string{"option serve_forever", "plugin cache", "CoreDNS 1.14.6"}, unknown: []string{"option serve_forever of plugin cache"},
		},
		"unknown target":  {text: commented, from: "1.14.2", to: "1.99.0", err: []string{"'1.99.0'", "'1.14.2'"}},
		"unknown present": {text: commented, from: "1.14.2-vendor", to: "1.14.6", err: []string{"version '1.14.2-vendor'"}},
		"no version":      {text: commented, from: "", to: "1.14.6", err: []string{"version ''"}},
		"down":            {text: commented, from: "1.14.6", to: "1.14.2", err: []string{"'1.14.2'", "'1.14.6'"}},
		"three levels":    {text: ".:53 {\n a {\n  b {\n   c\n  }\n }\n}\n", from: "1.14.2", to: "1.14.6", err: []string{"losing"}},
		"an empty word":   {text: ".:53 {\n errors \"\"\n}\n", from: "1.14.2", to: "1.14.6", err: []string{"losing"}},
		"broken":          {text: "{\n a\n}\n", from: "1.14.2", to: "1.14.6", err: []string{"braces", "Corefile"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := corefile.Migrate(c.text, c.from, c.to)
			fact.Error(t, err, c.err...)
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			unknown := (*corefile.UnknownPluginsError)(nil)
			if errors.As(err, &unknown) != (c.unknown != nil) || unknown != nil && (unknown.Version != c.to || !slices.Equal(unknown.Parts, c.unknown)) {
				t.Errorf("the error is %#v", err)
			}
		})
	}
}
