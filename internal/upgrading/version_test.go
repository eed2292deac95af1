// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
)

// clusterOf makes nodes from words such as cp-1=v1.36.4/v1.36.4 (API server and kubelet) and w-1=/v1.35.2 (a worker).
func clusterOf(words string) []NodeVersions {
	var nodes []NodeVersions
	for word := range strings.FieldsSeq(words) {
		name, versions, _ := strings.Cut(word, "=")
		api, kubelet, _ := strings.Cut(versions, "/")
		nodes = append(nodes, NodeVersions{Name: name, ControlPlane: strings.HasPrefix(name, "cp"), APIServer: api, Kubelet: kubelet})
	}
	return nodes
}

func TestRefusals(t *testing.T) {
	const forced = "[--force] "
	for name, c := range map[string]struct {
		upgrade config.Upgrade
		nodes   string
		want    []string // of each message, facts with "; " between
	}{
		"the next minor":                   {config.Upgrade{Version: "v1.37.2"}, "cp-1=v1.36.4/v1.36.4 w-1=/v1.34.0", nil},
		"the next minor, an unknown patch": {config.Upgrade{Version: "v1.37.99"}, "cp-1=v1.36.4/v1.36.4", nil},
		"the next patch":                   {config.Upgrade{Version: "v1.36.5"}, "cp-1=v1.36.4/v1.36.4", nil},
		"the same version":                 {config.Upgrade{Version: "v1.36.4"}, "cp-1=v1.36.4/v1.36.4", nil},
		"an upgrade that was interrupted":  {config.Upgrade{Version: "v1.37.2"}, "cp-1=v1.37.2/v1.36.4 cp-2=v1.36.4/v1.36.4 cp-3=v1.36.4/v1.36.4", nil},
		"not a version":                    {config.Upgrade{Version: "v1"}, "cp-1=v1.36.4/v1.36.4", []string{"invalid version"}},
		"a minor that is not known yet": {config.Upgrade{Version: "v1.38.0"}, "cp-1=v1.37.2/v1.37.2",
			[]string{"v1.38.0; Kubernetes 1.37"}},
		"another major": {config.Upgrade{Version: "v2.0.0"}, "cp-1=v1.37.2/v1.37.2",
			[]string{"v2.0.0; Kubernetes 1.37", "v2.0.0; above v1.37.2; cp-1", forced + "kubelet of cp-1"}},
		"two minors": {config.Upgrade{Version: "v1.37.2"}, "cp-1=v1.35.8/v1.35.8 cp-2=v1.35.8/v1.35.8",
			[]string{"v1.37.2; above v1.35.8; cp-1, cp-2"}},
		"a control plane was left out": {config.Upgrade{Version: "v1.37.2"}, "cp-1=v1.36.4/v1.36.4 cp-2=v1.35.8/v1.35.8",
			[]string{"v1.37.2; above v1.35.8; of cp-2"}},
		"control planes too far apart": {config.Upgrade{Version: "v1.37.2"}, "cp-1=v1.37.2/v1.36.4 cp-2=v1.35.8/v1.35.8",
			[]string{"v1.37.2; above v1.35.8; of cp-2", "apart; 1.35; 1.37"}},
		"an older patch": {config.Upgrade{Version: "v1.36.3"}, "cp-1=v1.36.4/v1.36.4",
			[]string{forced + "v1.36.3; older; v1.36.4; cp-1"}},
		"an older minor": {config.Upgrade{Version: "v1.36.4"}, "cp-1=v1.37.2/v1.36.4",
			[]string{"v1.36.4; older; v1.37.2; cp-1; go back"}},
		"back to where an interrupted upgrade began": {config.Upgrade{Version: "v1.36.4"}, "cp-1=v1.37.2/v1.36.4 cp-2=v1.36.4/v1.36.4",
			[]string{"v1.36.4; older; v1.37.2; cp-1; go back"}},
		"alpha":                   {config.Upgrade{Version: "v1.37.0-alpha.1"}, "cp-1=v1.36.4/v1.36.4", []string{forced + "v1.37.0-alpha.1; pre-release (alpha)"}},
		"alpha, rc allowed":       {config.Upgrade{Version: "v1.37.0-alpha.1", Prereleases: true}, "cp-1=v1.36.4/v1.36.4", []string{forced + "v1.37.0-alpha.1; pre-release (alpha)"}},
		"beta, allowed":           {config.Upgrade{Version: "v1.37.0-beta.0", Experimental: true}, "cp-1=v1.36.4/v1.36.4", nil},
		"rc":                      {config.Upgrade{Version: "v1.37.0-rc.0"}, "cp-1=v1.36.4/v1.36.4", []string{forced + "v1.37.0-rc.0; candidate"}},
		"rc, allowed":             {config.Upgrade{Version: "v1.37.0-rc.0", Prereleases: true}, "cp-1=v1.36.4/v1.36.4", nil},
		"rc, experimental":        {config.Upgrade{Version: "v1.37.0-rc.0", Experimental: true}, "cp-1=v1.36.4/v1.36.4", nil},
		"from rc to its release":  {config.Upgrade{Version: "v1.37.0"}, "cp-1=v1.37.0-rc.0/v1.36.4", nil},
		"a kubelet at the limit":  {config.Upgrade{Version: "v1.37.2"}, "cp-1=v1.36.4/v1.36.4 w-1=/v1.34.0", nil},
		"a kubelet below it":      {config.Upgrade{Version: "v1.37.2"}, "cp-1=v1.36.4/v1.36.4 w-1=/v1.33.9 w-2=/v1.33.9", []string{forced + "kubelet of w-1, w-2; v1.33.9; too old"}},
		"a kubelet that is newer": {config.Upgrade{Version: "v1.36.5"}, "cp-1=v1.36.4/v1.36.4 w-1=/v1.37.2", []string{forced + "kubelet of w-1; v1.37.2; newer; v1.36.5"}},
		"a kubelet with a newer patch": {config.Upgrade{Version: "v1.37.1"}, "cp-1=v1.36.4/v1.37.2",
			nil},
		"unknown versions": {config.Upgrade{Version: "v1.37.2"}, "cp-1=/v1.36.4 cp-2=v1.36.4/",
			[]string{"API server; cp-1", forced + "kubelet of cp-2"}},
		"no node seen": {config.Upgrade{From: "v1.35.8", Version: "v1.37.2"}, "", []string{"above v1.35.8; configuration"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range Refusals(&c.upgrade, clusterOf(c.nodes)) {
				text := r.Message
				if r.Forceable {
					text = forced + text
				}
				if r.Remedy == "" {
					t.Errorf("no remedy for %q", text)
				}
				got = append(got, text)
			}
			if len(got) != len(c.want) {
				t.Fatalf("refusals of %s on %s: %q, want %q", c.upgrade.Version, c.nodes, got, c.want)
			}
			for i, want := range c.want {
				if strings.HasPrefix(got[i], forced) != strings.HasPrefix(want, forced) {
					t.Errorf("%q, want %q", got[i], want)
				}
				fact.In(t, got[i], strings.Split(strings.TrimPrefix(want, forced), "; ")...)
			}
		})
	}
}
