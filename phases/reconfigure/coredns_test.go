// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const ofNewerDNS = ofCluster + "dns: {imageTag: v1.14.7}\n"

// editCorefile adds a zone to the Corefile.
func editCorefile(t *testing.T, s *phasetest.Stage) (data map[string]string) {
	t.Helper()
	cm := node.ConfigMap("coredns")
	_, err := s.API.Update(t.Context(), cm, func() (bool, error) {
		cm.Data["Corefile"] += "example.org:53 {\n    forward . 192.0.2.53\n}\n"
		return true, nil
	})
	phasetest.Fatal(t, err)
	s.Done = nil
	return corefileData(t, s)
}

func corefileData(t *testing.T, s *phasetest.Stage) map[string]string {
	t.Helper()
	return phasetest.SystemConfigMap(t, s, "coredns").Data
}

// TestCoreDNSGoesBack: CoreDNS gets its former image and Corefile back although no Corefile can be migrated to an earlier version.
func TestCoreDNSGoesBack(t *testing.T) {
	const former = "v1.14.5-theirs" // by somebody's kubectl
	start := func(t *testing.T) (*phasetest.Stage, *controllers, map[string]string) {
		s := live(t)
		data := editCorefile(t, s)
		return s, withControllers(t, s), data
	}
	check := func(t *testing.T, s *phasetest.Stage, api *controllers, tag string, data map[string]string) {
		t.Helper()
		if got := api.template("coredns").Spec.Containers[0].Image; got != dnsRepository+tag {
			t.Errorf("CoreDNS has the image %s", got)
		}
		if diff := cmp.Diff(data, corefileData(t, s)); diff != "" {
			t.Errorf("the Corefile:\n%s", diff)
		}
	}
	t.Run("after a failed trial", func(t *testing.T) {
		s, api, data := start(t)
		were, had := files(t, s), configuration(t, s)
		api.become = waits("coredns", "ImagePullBackOff")
		fact.Error(t, step.Run(t.Context(), s.Env, changeTo(t, s, ofNewerDNS).Phases(), step.Options{}), "ImagePullBackOff")
		isBefore(t, s, were, had)
		check(t, s, api, "v1.14.6", data)
	})
	t.Run("unconfirmed", func(t *testing.T) {
		var data map[string]string
		s, were, had := killedWith(t, time.Nanosecond, ofNewerDNS, func(s *phasetest.Stage) { data = editCorefile(t, s) })
		api := withControllers(t, s)
		check(t, s, api, "v1.14.7", data)
		s.Play(t, Watch()...)
		isBefore(t, s, were, had)
		check(t, s, api, "v1.14.6", data)
	})
	t.Run("changed meanwhile", func(t *testing.T) {
		s, were, had := killedWith(t, time.Nanosecond, ofNewerDNS, func(s *phasetest.Stage) { editCorefile(t, s) })
		setImage(t, s, "coredns", dnsRepository+former)
		data := corefileData(t, s)
		s.Said.Reset()
		s.Play(t, Watch()...)
		isBefore(t, s, were, had)
		check(t, s, withControllers(t, s), former, data)
		fact.In(t, s.Said.String(), "kube-system/coredns", dnsRepository+"v1.14.6")
	})
	t.Run("taken back", func(t *testing.T) {
		s, api, data := start(t)
		phasetest.Fatal(t, step.Run(t.Context(), s.Env, changeTo(t, s, ofNewerDNS).Phases(), step.Options{}))
		check(t, s, api, "v1.14.7", data)
		phasetest.Fatal(t, takeBack(t, s))
		check(t, s, api, "v1.14.6", data)
	})
	t.Run("not taken back after an edit", func(t *testing.T) {
		s, api, _ := start(t)
		phasetest.Fatal(t, step.Run(t.Context(), s.Env, changeTo(t, s, ofNewerDNS).Phases(), step.Options{}))
		data := editCorefile(t, s)
		had := configuration(t, s)
		err := takeBack(t, s)
		fact.Error(t, err, coreDNSCheck, dnsRepository+"v1.14.7")
		fact.NotIn(t, fault.Remedy(err), "the change")
		if diff := cmp.Diff(had, configuration(t, s)); diff != "" {
			t.Errorf("the configuration:\n%s", diff)
		}
		check(t, s, api, "v1.14.7", data)
	})
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
