// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
)

// TestUpgradeCorefile: an edited Corefile stays if it can, is migrated if it must, and keeps CoreDNS as it is if nobody
// knows.
func TestUpgradeCorefile(t *testing.T) {
	const edit = "    loop\n"
	for name, c := range map[string]struct {
		image, edited, ignored string
		migrated               []string // parts of the new Corefile
		done                   []string
		said                   line
	}{
		"default":          {image: oldDNS, done: []string{wroteDNS}},
		"default, unknown": {image: "registry.k8s.io/coredns/coredns:v0.9.9", done: []string{wroteDNS}},
		"edited":           {image: oldDNS, edited: "    # not ours\n    log\n", done: []string{wroteDNS}},
		"migrated": {
			image: "registry.k8s.io/coredns/coredns:1.6.9", edited: "    k8s_external e.example\n    kubernetes other.local {\n        upstream\n        transfer to *\n    }\n",
			migrated: []string{"transfer other.local {\n        to *\n    }\n", "kubernetes other.local\n"},
			done:     []string{wroteFile, wroteDNS}, said: line{"Corefile", "CoreDNS 1.14.6", "Corefile-backup of ConfigMap kube-system/coredns"},
		},
		"unknown plugin": {
			image: oldDNS, edited: "    template IN A\n",
			said: line{"[WARNING]", "keeping CoreDNS", "with " + oldDNS, "plugin template", "CoreDNS 1.14.6"},
		},
		"unknown plugin, accepted": {
			image: oldDNS, edited: "    template IN A\n", ignored: "corednsunsupportedplugins", done: []string{wroteDNS},
			said: line{"[WARNING]", "plugin template", "CoreDNS 1.14.6", "stays"},
		},
		"unknown plugin, the version stays": {image: newDNS, edited: "    template IN A\n"},
		"unknown version": {
			image: "registry.k8s.io/coredns/coredns:v1.99.0", edited: "    log\n",
			said: line{"[WARNING]", "keeping CoreDNS", "with registry.k8s.io/coredns/coredns:v1.99.0", `from CoreDNS "1.99.0" to "1.14.6"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, "")
			if c.ignored != "" {
				s.Config.IgnorePreflightErrors = []string{c.ignored}
			}
			d := s.deployment(t)
			d.Spec.Template.Spec.Containers[0].Image = c.image
			text := systemConfigMap(t, s.stage, "coredns").Data["Corefile"]
			if c.edited != "" {
				text = s.corefile(t, edit, edit+c.edited)
			}
			s.edited(t, d)
			s.play(t, upgradeAddon(onceUpgraded).Children[0])
			s.checkDone(t, c.done)
			cm := systemConfigMap(t, s.stage, "coredns")
			if len(c.migrated) == 0 && (cm.Data["Corefile"] != text || len(cm.Data) != 1) {
				t.Errorf("the Corefile became %q", cm.Data)
			}
			for _, part := range c.migrated {
				if !strings.Contains(cm.Data["Corefile"], part) || cm.Data["Corefile-backup"] != text {
					t.Errorf("no %q in %s\nbackup:\n%s", part, cm.Data["Corefile"], cm.Data["Corefile-backup"])
				}
			}
			if c.said != nil {
				s.saidOnce(t, c.said)
			}
			s.done = nil
			s.play(t, upgradeAddon(onceUpgraded).Children[0])
			s.checkDone(t, nil)
		})
	}
}

// TestUpgradeCorefileKeepsOtherKeys: a migration replaces the backup of an earlier one, and leaves alone what an operator
// has added beside the Corefile.
func TestUpgradeCorefileKeepsOtherKeys(t *testing.T) {
	for name, option := range map[string]string{"migrated": "       transfer to 192.0.2.1\n", "stays": "       ttl 31\n"} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, "")
			d := s.deployment(t)
			d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:1.7.1"
			s.edited(t, d)
			text := s.corefile(t, "       ttl 30\n", option)
			cm := systemConfigMap(t, s.stage, "coredns")
			cm.Data["own.server"], cm.Data["Corefile-backup"] = "example.com {}\n", "an earlier one"
			s.edited(t, cm)
			wantDone, wantBackup := []string{wroteDNS}, "an earlier one"
			if name == "migrated" {
				wantDone, wantBackup = []string{wroteFile, wroteDNS}, text
			}
			s.play(t, upgradeAddon(onceUpgraded).Children[0])
			s.checkDone(t, wantDone)
			cm = systemConfigMap(t, s.stage, "coredns")
			if cm.Data["own.server"] != "example.com {}\n" || cm.Data["Corefile-backup"] != wantBackup {
				t.Errorf("the ConfigMap became %q", cm.Data)
			}
		})
	}
}

// TestUpgradeCoreDNSElsewhere: the Corefile that matters is not where it can be checked.
func TestUpgradeCoreDNSElsewhere(t *testing.T) {
	s := newAddonStage(t, "")
	d := s.deployment(t)
	d.Spec.Template.Spec.Volumes[0].ConfigMap.Name = "own"
	s.edited(t, d)
	s.play(t, upgradeAddon(onceUpgraded).Children[0])
	s.checkDone(t, nil)
	s.saidOnce(t, line{"[WARNING]", "Deployment", "Corefile from ConfigMap kube-system/coredns"},
		line{"`kubectl -n kube-system set image deployment/coredns coredns=" + newDNS + "`"})
}

// TestUpgradeAddonInterrupted: wherever a run ends, the same command finishes it.
func TestUpgradeAddonInterrupted(t *testing.T) {
	start := func(t *testing.T) *addonStage {
		s := newAddonStage(t, "")
		d := s.deployment(t)
		d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:1.7.1"
		s.edited(t, d)
		s.corefile(t, "       ttl 30\n", "       ttl 30\n       transfer to 192.0.2.1\n")
		return s
	}
	whole := start(t)
	whole.play(t, upgradeAddon(onceUpgraded))
	changes := -1 - whole.planes.left
	if changes < 4 {
		t.Fatalf("%d changes", changes)
	}
	for after := range changes {
		s := start(t)
		s.planes.left = after
		if err := Run(t.Context(), s.Env, []Phase{upgradeAddon(onceUpgraded)}, Options{Serial: true}); err == nil {
			t.Fatalf("not interrupted after %d changes", after)
		}
		s.planes.left = -1
		s.play(t, upgradeAddon(onceUpgraded))
		for _, pair := range [][2]cluster.Object{
			{whole.deployment(t), s.deployment(t)}, {whole.daemonSet(t), s.daemonSet(t)},
			{systemConfigMap(t, whole.stage, "coredns"), systemConfigMap(t, s.stage, "coredns")},
			{systemConfigMap(t, whole.stage, "kube-proxy"), systemConfigMap(t, s.stage, "kube-proxy")},
		} {
			diffObjects(t, pair[0], pair[1])
		}
	}
}
