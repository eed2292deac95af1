// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// runsPods makes the kubelet run what the static Pods say. A container whose image is in ended has ended at once; one whose
// image is in loading runs and does not answer.
func (s *stage) runsPods(ended, loading []string) {
	s.host.On.Containers = func(_ context.Context, _, _, component string) ([]host.Container, error) {
		image := s.image(component)
		if slices.Contains(ended, image) {
			return nil, nil
		}
		return []host.Container{{ID: component, Image: image, Created: s.host.Now()}}, nil
	}
	s.host.On.Probe = func(_ context.Context, p host.Probe) error {
		component := manifests.EtcdName
		if strings.Contains(p.URL, ":6443") {
			component = manifests.APIServerName
		}
		if image := s.image(component); slices.Contains(ended, image) || slices.Contains(loading, image) {
			return errors.New("connection refused")
		}
		return nil
	}
}

// image is that of a static Pod.
func (s *stage) image(component string) string {
	data, err := s.host.ReadFile(thisnode.StaticPodPath(s.Config, component))
	if err != nil {
		return ""
	}
	return quickImageOf(data)
}

// loneMember is an etcd that cannot hand over the lead.
type loneMember struct{ etcd.Etcd }

func (loneMember) MoveLeader(context.Context, string) (bool, error) { return false, nil }

func (loneMember) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{{Member: etcd.Member{Name: "cp-1", PeerURL: ownPeer}, Answers: true}}, nil
}

// TestPutBack: what did not come up is put back. An etcd of another minor version may have changed its data, unless it has
// ended without an answer.
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
			s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.play(t, pick(Init(), "etcd", "control-plane")...)
			s.runsPods(test.ended, test.loading)
			s.host.Fail["stop container "+test.refuses] = errors.New("the runtime does not answer")
			s.Etcd = loneMember{}
			s.Config.Timeouts.UpgradeManifests = 5 * time.Second // what does not start takes all of it
			var components []componentUpgrade
			for _, c := range []struct{ name, before, wanted string }{{manifests.EtcdName, oldEtcd, test.etcd}, {manifests.APIServerName, oldAPI, newAPI}} {
				path := thisnode.StaticPodPath(s.Config, c.name)
				made := s.get(t, path)
				with := func(image string) string { return strings.Replace(made, imageOf([]byte(made)), image, 1) }
				s.put(t, path, with(c.before))
				components = append(components, componentUpgrade{name: c.name, before: []byte(with(c.before)), wanted: []byte(with(c.wanted))})
			}
			err := turn{}.swap(t.Context(), s.Env, components)
			restored := (*restoredError)(nil)
			fact.Error(t, err, test.said...)
			fact.NotIn(t, message(err), test.without...)
			if failed := slices.Contains(test.said, failedToo); errors.As(err, &restored) == failed {
				t.Errorf("%T: everything runs again: %t", err, !failed)
			}
			if runs := []string{s.image(manifests.EtcdName), s.image(manifests.APIServerName)}; !slices.Equal(runs, test.runs) {
				t.Errorf("the static Pods have the images %v, want %v", runs, test.runs)
			}
			if test.refuses != "" && slices.Contains(s.host.Did("stop container"), manifests.EtcdName) {
				t.Error("etcd was stopped, although nothing had changed about it")
			}
		})
	}
}

// TestPutBackNothing: a run that continues an interrupted one finds the new manifests. It does not put these back as if
// they were what ran before.
func TestPutBackNothing(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	manifest := []byte("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: kube-apiserver, image: 'a:v2'}]}\n")
	failed := errors.New("it does not come up")
	err := turn{}.putBack(t.Context(), s.Env, []componentUpgrade{{name: manifests.APIServerName, before: manifest, wanted: manifest}}, []bool{false}, failed)
	if !errors.Is(err, failed) || err.Error() != failed.Error() || len(s.host.Jobs) > 0 || s.said.Len() > 0 {
		t.Errorf("error %v, did %q, said %q", err, s.host.Jobs, s.said.String())
	}
}
