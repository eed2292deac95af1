// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// TestFit: each host finds its own name servers, and corrects paths from the cluster that don't exist there. A first node keeps
// its user's settings.
func TestFit(t *testing.T) {
	const resolved, corporate = config.ResolvedConf, "/etc/corp/resolv.conf"
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	joins, upgraded, first := config.Node{Join: &config.Join{}}, config.Node{Upgrade: &config.Upgrade{}}, config.Node{}
	for name, tt := range map[string]struct {
		node   config.Node
		stored string
		exists []string
		want   string // resolvConf, imageServiceEndpoint, clientCAFile
		fields []string
	}{
		"its own":                              {first, "", []string{resolved}, resolved + "||", nil},
		"none of its own":                      {first, "", nil, "||", nil},
		"the user's":                           {first, "resolvConf: " + corporate, []string{resolved}, corporate + "||", nil},
		"the user's: none":                     {first, `resolvConf: ""`, []string{resolved}, "||", nil},
		"another node's, which isn't here":     {joins, "resolvConf: " + resolved, nil, "||", []string{"resolvConf: /etc/resolv.conf"}},
		"the cluster's, which isn't here":      {joins, "resolvConf: " + corporate, []string{resolved}, resolved + "||", []string{"resolvConf: " + resolved}},
		"the cluster's, which is":              {joins, "resolvConf: " + corporate, []string{resolved, corporate}, corporate + "||", nil},
		"at an upgrade":                        {upgraded, "resolvConf: " + resolved, nil, "||", []string{"resolvConf: /etc/resolv.conf"}},
		"a socket that isn't here":             {joins, "imageServiceEndpoint: unix:///run/other.sock", nil, "||", []string{"imageServiceEndpoint: unix:///run/own.sock"}},
		"a socket that is":                     {joins, "imageServiceEndpoint: unix:///run/other.sock", []string{"/run/other.sock"}, "|unix:///run/other.sock|", nil},
		"a CA in another directory":            {joins, "authentication: {x509: {clientCAFile: /etc/own/ca.crt}}", nil, "||/pki/ca.crt", []string{"authentication.x509.clientCAFile: /pki/ca.crt"}},
		"a CA that gets there":                 {joins, "authentication: {x509: {clientCAFile: /pki/ca.crt}}", nil, "||/pki/ca.crt", nil},
		"a CA in another directory, on a host": {first, "authentication: {x509: {clientCAFile: /etc/own/ca.crt}}", nil, "||/etc/own/ca.crt", nil},
	} {
		t.Run(name, func(t *testing.T) {
			own := Own{CAPath: "/pki/ca.crt", Exists: func(path string) bool { return slices.Contains(tt.exists, path) }}
			data, corrections, err := AdaptToHost([]byte(head+"containerRuntimeEndpoint: unix:///run/own.sock\n"+tt.stored), &tt.node, own)
			if err != nil {
				t.Fatal(err)
			}
			got := New()
			if err := yaml.Unmarshal(data, got); err != nil {
				t.Fatal(err)
			}
			servers := ""
			if got.ResolverConfig != nil {
				servers = *got.ResolverConfig
			}
			if all := servers + "|" + got.ImageServiceEndpoint + "|" + got.Authentication.X509.ClientCAFile; all != tt.want {
				t.Errorf("got %q, want %q", all, tt.want)
			}
			var fields []string
			for _, c := range corrections {
				fields = append(fields, c.Field+": "+c.Used)
			}
			if diff := cmp.Diff(tt.fields, fields); diff != "" {
				t.Error(diff)
			}
		})
	}
}
