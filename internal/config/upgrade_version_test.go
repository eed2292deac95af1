// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
)

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
		self, _, err := LoadUpgrade(t.Context(), nil, Flags{}, c.command, c.version, Options{Resolve: resolve})
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
