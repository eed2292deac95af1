// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestPutBack: components that don't come up are put back, except an etcd of another minor version: it may have changed its data,
// unless it has ended without an answer.
func TestPutBack(t *testing.T) {
	const oldAPI, newAPI = "r/kube-apiserver:v1.36.4", "r/kube-apiserver:v1.37.2"
	const oldEtcd, newEtcd, patchedEtcd = "r/etcd:3.6.8-0", "r/etcd:3.7.0-0", "r/etcd:3.6.11-0"
	const stays, failedToo = "etcd stays", "failed, too"
	apiServer, both := "put back: "+oldAPI, "put back: "+oldEtcd+", "+oldAPI
	for name, test := range map[string]struct {
		etcd           string // its new image
		ended, loading []string
		refuses        string
		said           []string // by the error
		runs           []string
		without        []string // what the error does not say
	}{
		"etcd answers":               {newEtcd, []string{newAPI}, nil, "", []string{apiServer, stays}, []string{newEtcd, oldAPI}, nil},
		"etcd opens its data":        {newEtcd, []string{newAPI}, []string{newEtcd}, "", []string{apiServer, stays}, []string{newEtcd, oldAPI}, nil},
		"both have ended":            {newEtcd, []string{newAPI, newEtcd}, nil, "", []string{both}, []string{oldEtcd, oldAPI}, []string{stays}},
		"a patch release of etcd":    {patchedEtcd, []string{newAPI}, nil, "", []string{both}, []string{oldEtcd, oldAPI}, []string{stays}},
		"the same etcd":              {oldEtcd, []string{newAPI}, nil, "", []string{apiServer}, []string{oldEtcd, oldAPI}, []string{stays}},
		"the old one does not start": {newEtcd, []string{newAPI, oldAPI}, nil, "", []string{"putting back", failedToo}, []string{newEtcd, oldAPI}, nil},
		"before etcd was touched":    {newEtcd, nil, nil, manifests.APIServerName, []string{"putting back", failedToo}, []string{oldEtcd, oldAPI}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Play(t, phasetest.Pick(bootstrap.Init(), "etcd", "control-plane")...)
			s.RunsPods(test.ended, test.loading)
			s.FakeHost.Fail["stop container "+test.refuses] = errors.New("the runtime does not answer")
			s.Etcd = phasetest.LoneMember{}
			s.Config.Timeouts.UpgradeManifests = 5 * time.Second // a component that doesn't start takes all of it
			var components []node.Replacement
			for _, c := range []struct{ name, before, wanted string }{{manifests.EtcdName, oldEtcd, test.etcd}, {manifests.APIServerName, oldAPI, newAPI}} {
				path := s.Config.Paths.StaticPod(c.name)
				made := s.Get(t, path)
				with := func(image string) string { return strings.Replace(made, manifests.ImageOf([]byte(made)), image, 1) }
				s.Put(t, path, with(c.before))
				components = append(components, node.Replacement{Name: c.name, Before: []byte(with(c.before)), Wanted: []byte(with(c.wanted))})
			}
			err := swap(t.Context(), s.Env, node.Lease{}, components)
			restored := (*node.RolledBackError)(nil)
			fact.Error(t, err, test.said...)
			fact.NotIn(t, phasetest.Message(err), test.without...)
			if failed := slices.Contains(test.said, failedToo); errors.As(err, &restored) == failed {
				t.Errorf("%T: everything runs again: %t", err, !failed)
			}
			if runs := []string{s.Image(manifests.EtcdName), s.Image(manifests.APIServerName)}; !slices.Equal(runs, test.runs) {
				t.Errorf("the static Pods have the images %v, want %v", runs, test.runs)
			}
			if test.refuses != "" && slices.Contains(s.FakeHost.Did("stop container"), manifests.EtcdName) {
				t.Error("etcd was stopped, although nothing had changed about it")
			}
		})
	}
}

// TestPutBackNothing: a run that continues an interrupted one doesn't put back the new manifests as if they had run before.
func TestPutBackNothing(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	manifest := []byte("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: kube-apiserver, image: 'a:v2'}]}\n")
	failed := errors.New("it does not come up")
	err := node.RollBack(t.Context(), s.Env, node.Lease{}, []node.Replacement{{Name: manifests.APIServerName, Before: manifest, Wanted: manifest}}, failed)
	if !errors.Is(err, failed) || err.Error() != failed.Error() || len(s.FakeHost.Jobs) > 0 || s.Said.Len() > 0 {
		t.Errorf("error %v, did %q, said %q", err, s.FakeHost.Jobs, s.Said.String())
	}
}

// TestEditedMeanwhile: a static Pod that somebody edits after the run has read it stays, and so does everything that would have been
// replaced with it. One that's edited while another stops stays, too, and the other goes back. Several edits are no different.
func TestEditedMeanwhile(t *testing.T) {
	const before, both, during = "before the swap", "both, before the swap", "during the swap"
	for _, when := range []string{before, both, during} {
		t.Run(when, func(t *testing.T) {
			s := phasetest.RestartStage(t, bootstrap.Init())
			s.Etcd = phasetest.LoneMember{}
			s.RunsPods(nil, nil)
			scheduler, manager := s.Config.Paths.StaticPod(manifests.SchedulerName), s.Config.Paths.StaticPod(manifests.ControllerManagerName)
			unedited, edited := s.Get(t, scheduler), ""
			edit := func() {
				s.EditPod(t, manifests.ControllerManagerName, "cpu: 200m", "cpu: 300m")
				edited = s.Get(t, manager)
			}
			var components []node.Replacement
			for _, name := range []string{manifests.ControllerManagerName, manifests.SchedulerName} {
				made := s.Get(t, s.Config.Paths.StaticPod(name))
				wanted := strings.Replace(made, manifests.ImageOf([]byte(made)), "r/"+name+":v2", 1)
				components = append(components, node.Replacement{Name: name, Before: []byte(made), Wanted: []byte(wanted)})
			}
			s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
				if when == during && edited == "" {
					edit()
				}
				return nil
			}
			if when != during {
				edit()
			}
			if when == both {
				s.EditPod(t, manifests.SchedulerName, "cpu: 100m", "cpu: 150m")
				unedited = s.Get(t, scheduler)
			}
			err := swap(t.Context(), s.Env, node.Lease{}, components)
			fact.Error(t, err, manager)
			if got := s.Get(t, manager); got != edited {
				t.Errorf("the edit is lost:\n%s", got)
			}
			if got := s.Get(t, scheduler); got != unedited {
				t.Errorf("the other static Pod:\n%s", got)
			}
			if stopped := s.FakeHost.Did("stop container"); len(stopped) > 0 != (when == during) {
				t.Errorf("stopped %q", stopped)
			}
		})
	}
}
