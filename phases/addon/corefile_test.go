// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestUpgradeCorefile: an edited Corefile stays if it can, is migrated if it must, and keeps CoreDNS as it is if nobody knows.
func TestUpgradeCorefile(t *testing.T) {
	const edit = "    loop\n"
	for name, c := range map[string]struct {
		image, edited, ignored string
		migrated               []string // parts of the new Corefile
		done                   []string
		said                   phasetest.Line
	}{
		"default":          {image: phasetest.OldDNS, done: []string{phasetest.WroteDNS}},
		"default, unknown": {image: "registry.k8s.io/coredns/coredns:v0.9.9", done: []string{phasetest.WroteDNS}},
		"edited":           {image: phasetest.OldDNS, edited: "    # not ours\n    log\n", done: []string{phasetest.WroteDNS}},
		"migrated": {
			image: "registry.k8s.io/coredns/coredns:1.6.9", edited: "    k8s_external e.example\n    kubernetes other.local {\n        upstream\n        transfer to *\n    }\n",
			migrated: []string{"transfer other.local {\n        to *\n    }\n", "kubernetes other.local\n"},
			done:     []string{phasetest.WroteFile, phasetest.WroteDNS}, said: phasetest.Line{"Corefile", "CoreDNS 1.14.6", "Corefile-backup of ConfigMap kube-system/coredns"},
		},
		"unknown plugin": {
			image: phasetest.OldDNS, edited: "    template IN A\n",
			said: phasetest.Line{"[WARNING]", "keeping CoreDNS", "with " + phasetest.OldDNS, "plugin template", "CoreDNS 1.14.6"},
		},
		"unknown plugin, accepted": {
			image: phasetest.OldDNS, edited: "    template IN A\n", ignored: "corednsunsupportedplugins", done: []string{phasetest.WroteDNS},
			said: phasetest.Line{"[WARNING]", "plugin template", "CoreDNS 1.14.6", "leaves"},
		},
		"unknown plugin, the version stays": {image: phasetest.NewDNS, edited: "    template IN A\n"},
		"unknown plugin, all accepted": {
			image: phasetest.OldDNS, edited: "    template IN A\n", ignored: "all", done: []string{phasetest.WroteDNS},
			said: phasetest.Line{"[WARNING]", "plugin template", "CoreDNS 1.14.6", "leaves"},
		},
		"unknown version": {
			image: "registry.k8s.io/coredns/coredns:v0.9.9", edited: "    log\n",
			said: phasetest.Line{"[WARNING]", "keeping CoreDNS", "with registry.k8s.io/coredns/coredns:v0.9.9", `from CoreDNS "0.9.9" to "1.14.6"`},
		},
		"newer, default": {
			image: "registry.k8s.io/coredns/coredns:v1.14.7",
			said:  phasetest.Line{"[WARNING]", "keeping CoreDNS", "with registry.k8s.io/coredns/coredns:v1.14.7", "1.14.6", "v1.37.2"},
		},
		"newer, edited": {image: "registry.k8s.io/coredns/coredns:v1.14.7", edited: "    log\n", said: phasetest.Line{"dns.imageTag"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			if c.ignored != "" {
				s.Config.IgnorePreflightErrors = []string{c.ignored}
			}
			d := s.Deployment(t)
			d.Spec.Template.Spec.Containers[0].Image = c.image
			text := phasetest.SystemConfigMap(t, s.Stage, "coredns").Data["Corefile"]
			if c.edited != "" {
				text = s.Corefile(t, edit, edit+c.edited)
			}
			s.Edited(t, d)
			s.Play(t, Upgrade(WhenAllUpgraded).Children[0])
			s.CheckDone(t, c.done)
			cm := phasetest.SystemConfigMap(t, s.Stage, "coredns")
			if len(c.migrated) == 0 && (cm.Data["Corefile"] != text || len(cm.Data) != 1) {
				t.Errorf("the Corefile became %q", cm.Data)
			}
			for _, part := range c.migrated {
				if !strings.Contains(cm.Data["Corefile"], part) || cm.Data["Corefile-backup"] != text {
					t.Errorf("no %q in %s\nbackup:\n%s", part, cm.Data["Corefile"], cm.Data["Corefile-backup"])
				}
			}
			if c.said != nil {
				s.SaidOnce(t, c.said)
			}
			s.Done = nil
			s.Play(t, Upgrade(WhenAllUpgraded).Children[0])
			s.CheckDone(t, nil)
		})
	}
}

// TestUpgradeCorefileKeepsOtherKeys: a migration replaces an earlier migration's backup, and leaves an operator's other keys
// alone.
func TestUpgradeCorefileKeepsOtherKeys(t *testing.T) {
	for name, option := range map[string]string{"migrated": "       transfer to 192.0.2.1\n", "stays": "       ttl 31\n"} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			d := s.Deployment(t)
			d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:1.7.1"
			s.Edited(t, d)
			text := s.Corefile(t, "       ttl 30\n", option)
			cm := phasetest.SystemConfigMap(t, s.Stage, "coredns")
			cm.Data["own.server"], cm.Data["Corefile-backup"] = "example.com {}\n", "an earlier one"
			s.Edited(t, cm)
			wantDone, wantBackup := []string{phasetest.WroteDNS}, "an earlier one"
			if name == "migrated" {
				wantDone, wantBackup = []string{phasetest.WroteFile, phasetest.WroteDNS}, text
			}
			s.Play(t, Upgrade(WhenAllUpgraded).Children[0])
			s.CheckDone(t, wantDone)
			cm = phasetest.SystemConfigMap(t, s.Stage, "coredns")
			if cm.Data["own.server"] != "example.com {}\n" || cm.Data["Corefile-backup"] != wantBackup {
				t.Errorf("the ConfigMap became %q", cm.Data)
			}
		})
	}
}

// TestUpgradeCoreDNSElsewhere: the Corefile in use isn't where it can be checked, whether or not there's another where it should be.
func TestUpgradeCoreDNSElsewhere(t *testing.T) {
	for name, missing := range map[string]bool{"another": false, "none": true} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			d := s.Deployment(t)
			d.Spec.Template.Spec.Volumes[0].ConfigMap.Name = "own"
			s.Edited(t, d)
			if missing {
				phasetest.Fatal(t, s.API.EnsureAbsent(t.Context(), phasetest.SystemConfigMap(t, s.Stage, "coredns")))
				s.Done = nil
			}
			s.Play(t, Upgrade(WhenAllUpgraded).Children[0])
			s.CheckDone(t, nil)
			s.SaidOnce(t, phasetest.Line{"[WARNING]", "Deployment", "Corefile from ConfigMap kube-system/coredns"},
				phasetest.Line{"`kubectl -n kube-system set image deployment/coredns coredns=" + phasetest.NewDNS + "`"})
		})
	}
}

// TestUpgradeAddonInterrupted: wherever a run ends, the same command finishes it.
func TestUpgradeAddonInterrupted(t *testing.T) {
	start := func(t *testing.T) *phasetest.AddonStage {
		s := phasetest.NewAddonStage(t, "")
		d := s.Deployment(t)
		d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:1.7.1"
		s.Edited(t, d)
		s.Corefile(t, "       ttl 30\n", "       ttl 30\n       transfer to 192.0.2.1\n")
		return s
	}
	whole := start(t)
	whole.Play(t, Upgrade(WhenAllUpgraded))
	changes := -1 - whole.Planes.Left
	if changes < 4 {
		t.Fatalf("%d changes", changes)
	}
	for after := range changes {
		s := start(t)
		s.Planes.Left = after
		if err := step.Run(t.Context(), s.Env, []step.Phase{Upgrade(WhenAllUpgraded)}, step.Options{Serial: true}); err == nil {
			t.Fatalf("not interrupted after %d changes", after)
		}
		s.Planes.Left = -1
		s.Play(t, Upgrade(WhenAllUpgraded))
		for _, pair := range [][2]cluster.Object{
			{whole.Deployment(t), s.Deployment(t)}, {whole.DaemonSet(t), s.DaemonSet(t)},
			{phasetest.SystemConfigMap(t, whole.Stage, "coredns"), phasetest.SystemConfigMap(t, s.Stage, "coredns")},
			{phasetest.SystemConfigMap(t, whole.Stage, "kube-proxy"), phasetest.SystemConfigMap(t, s.Stage, "kube-proxy")},
		} {
			diffObjects(t, pair[0], pair[1])
		}
	}
}

// TestKeptCoreDNS: a plan says the same as the phase.
func TestKeptCoreDNS(t *testing.T) {
	const own, unknown = ".:53 {\n    errors\n}\n", ".:53 {\n    ads example.com\n}\n"
	for name, c := range map[string]struct {
		text, from, tag, ignored string
		facts                    []string // nil if it's upgraded
	}{
		"older":                     {text: own, from: "1.14.2"},
		"the same":                  {text: unknown, from: "1.14.6"},
		"unknown plugin":            {text: unknown, from: "1.14.2", facts: []string{"plugin ads", "1.14.6"}},
		"unknown plugin, accepted":  {text: unknown, from: "1.14.2", ignored: "all"},
		"default, unknown version":  {text: "default", from: "0.9.9"},
		"edited, unknown version":   {text: own, from: "0.9.9", facts: []string{"0.9.9", "1.14.6"}},
		"default, newer":            {text: "default", from: "1.14.7", facts: []string{"1.14.7", "1.14.6"}},
		"newer, without a Corefile": {from: "1.14.7", facts: []string{"1.14.7", "1.14.6"}},
		"default, newer, pinned":    {text: "default", from: "1.14.7", tag: "v1.14.6"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewAddonStage(t, "")
			s.Config.Cluster.DNS.ImageTag, s.Config.IgnorePreflightErrors = c.tag, []string{c.ignored}
			if c.text == "default" {
				c.text = phasetest.SystemConfigMap(t, s.Stage, "coredns").Data["Corefile"]
			}
			err := KeptCoreDNS(s.Config, c.text, c.from, "1.14.6")
			if (err != nil) != (c.facts != nil) {
				t.Fatal(err)
			}
			if err != nil {
				fact.In(t, err.Error(), c.facts...)
			}
		})
	}
}

func setDNS(t *testing.T, s *phasetest.AddonStage, image string) {
	t.Helper()
	d := s.Deployment(t)
	d.Spec.Template.Spec.Containers[0].Image = image
	s.Edited(t, d)
}

// TestCoreDNSBack: a migrated Corefile goes back with its keys, and with CoreDNS's image, unless somebody else has changed one of them.
func TestCoreDNSBack(t *testing.T) {
	const former = "registry.k8s.io/coredns/coredns:1.7.1"
	for name, edit := range map[string]func(*testing.T, *phasetest.AddonStage){
		"":             nil,
		"the image":    func(t *testing.T, s *phasetest.AddonStage) { setDNS(t, s, "example.org/coredns:v1") },
		"the Corefile": func(t *testing.T, s *phasetest.AddonStage) { s.Corefile(t, "    loop\n", "") },
	} {
		for _, backup := range []string{"", "an earlier one"} {
			s := phasetest.NewAddonStage(t, "")
			setDNS(t, s, former)
			s.Corefile(t, "       ttl 30\n", "       ttl 30\n       transfer to 192.0.2.1\n")
			before := phasetest.SystemConfigMap(t, s.Stage, "coredns")
			if backup != "" {
				before.Data[corefileBackup] = backup
				s.Edited(t, before)
			}
			change, err := NextCoreDNS(t.Context(), s.Env)
			phasetest.Fatal(t, err)
			s.Play(t, Upgrade(WhenAllUpgraded).Children[0])
			after := CoreDNS{coreDNSImage(s.Deployment(t)), phasetest.SystemConfigMap(t, s.Stage, "coredns").Data}
			if diff := cmp.Diff(change.After, after); diff != "" {
				t.Errorf("announced and made:\n%s", diff)
			}
			if edit != nil {
				edit(t, s)
			}
			back := change.Back()
			fits, err := back.Fits(t.Context(), s.Env)
			phasetest.Fatal(t, err)
			if fits != (edit == nil) {
				t.Errorf("%q edited: fits %t", name, fits)
			}
			phasetest.Fatal(t, back.Make(t.Context(), s.Env))
			got := CoreDNS{coreDNSImage(s.Deployment(t)), phasetest.SystemConfigMap(t, s.Stage, "coredns").Data}
			if diff := cmp.Diff(CoreDNS{former, before.Data}, got); diff != "" {
				t.Errorf("back:\n%s", diff)
			}
		}
	}
}
