// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// editCorefile adds a zone to the Corefile.
func editCorefile(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	cm := node.ConfigMap("coredns")
	_, err := s.API.Update(t.Context(), cm, func() (bool, error) {
		cm.Data["Corefile"] += "example.org:53 {\n    forward . 192.0.2.53\n}\n"
		return true, nil
	})
	phasetest.Fatal(t, err)
	s.Done = nil
}

// TestKeptCoreDNS: a change doesn't store an image that CoreDNS wouldn't get because of its Corefile.
func TestKeptCoreDNS(t *testing.T) {
	for _, tag := range []string{"v1.14.2", "v1.13.1-acme1"} {
		s := live(t)
		editCorefile(t, s)
		before, had := files(t, s), configuration(t, s)
		err := step.Run(t.Context(), s.Env, changeTo(t, s, ofCluster+"dns: {imageTag: "+tag+"}\n").Phases(), step.Options{})
		fact.Error(t, err, coreDNSCheck, dnsRepository+"v1.14.6", strings.TrimPrefix(tag, "v"), "deployment/coredns coredns="+dnsRepository+tag)
		if diff := cmp.Diff(before, files(t, s)) + cmp.Diff(had, configuration(t, s)); diff != "" || state(t, s) != "" {
			t.Errorf("%s: files and configuration:\n%s", tag, diff)
		}
		setImage(t, s, "coredns", dnsRepository+tag)
		phasetest.Fatal(t, step.Run(t.Context(), s.Env, changeTo(t, s, ofCluster+"dns: {imageTag: "+tag+"}\n").Phases(), step.Options{}))
		fact.In(t, stored(t, s, "kubeadm-config", "ClusterConfiguration"), tag)
	}
}
