// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"
	"sync"
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

// containerHost is a stubHost whose kubelet runs what the static Pods say. A container whose image is in ended has ended
// at once; one whose image is in loading runs and does not answer.
type containerHost struct {
	*stubHost
	stage          *stage
	ended, loading []string
	refuses        string // the component whose container cannot be stopped

	mu      sync.Mutex
	stopped []string
}

func (h *containerHost) image(component string) string {
	data, err := h.ReadFile(thisnode.StaticPodPath(h.stage.Config, component))
	if err != nil {
		return ""
	}
	return imageOf(data)
}

func (h *containerHost) Containers(_ context.Context, _, _, component string) ([]host.Container, error) {
	image := h.image(component)
	if slices.Contains(h.ended, image) {
		return nil, nil
	}
	return []host.Container{{ID: component, Image: image, Created: h.Now()}}, nil
}

func (h *containerHost) StopContainer(_ context.Context, _, id string, _ time.Duration) error {
	if id == h.refuses {
		return errors.New("the runtime does not answer")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = append(h.stopped, id)
	return nil
}

func (h *containerHost) RemoveExited(context.Context, string, string, string) error { return nil }

func (h *containerHost) AwaitContainer(ctx context.Context, socket, namespace, name string, accept func(host.Container) bool) error {
	if running, _ := h.Containers(ctx, socket, namespace, name); slices.ContainsFunc(running, accept) {
		return nil
	}
	<-ctx.Done()
	return errors.New("no container")
}

func (h *containerHost) Probe(_ context.Context, p host.Probe) error {
	component := manifests.EtcdName
	if strings.Contains(p.URL, ":6443") {
		component = manifests.APIServerName
	}
	if image := h.image(component); slices.Contains(h.ended, image) || slices.Contains(h.loading, image) {
		return errors.New("connection refused")
	}
	return nil
}

// loneMember is an etcd that cannot hand over the lead.
type loneMember struct{ etcd.Etcd }

func (loneMember) MoveLeader(context.Context, string) (bool, error) { return false, nil }

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
			s.play(t, localEtcd(), controlPlane())
			h := &containerHost{stubHost: s.host, stage: s, ended: test.ended, loading: test.loading, refuses: test.refuses}
			s.Host, s.Etcd = h, loneMember{}
			s.Config.Timeouts.UpgradeManifests = 5 * time.Second // what does not start takes all of it
			var components []componentUpgrade
			for _, c := range []struct{ name, before, wanted string }{{manifests.EtcdName, oldEtcd, test.etcd}, {manifests.APIServerName, oldAPI, newAPI}} {
				path := thisnode.StaticPodPath(s.Config, c.name)
				made := s.get(t, path)
				with := func(image string) string { return strings.Replace(made, imageOf([]byte(made)), image, 1) }
				s.put(t, path, with(c.before))
				components = append(components, componentUpgrade{name: c.name, before: []byte(with(c.before)), wanted: []byte(with(c.wanted))})
			}
			err := swap(t.Context(), s.Env, components)
			restored := (*restoredError)(nil)
			fact.Error(t, err, test.said...)
			fact.NotIn(t, message(err), test.without...)
			if failed := slices.Contains(test.said, failedToo); errors.As(err, &restored) == failed {
				t.Errorf("%T: everything runs again: %t", err, !failed)
			}
			if runs := []string{h.image(manifests.EtcdName), h.image(manifests.APIServerName)}; !slices.Equal(runs, test.runs) {
				t.Errorf("the static Pods have the images %v, want %v", runs, test.runs)
			}
			if test.refuses != "" && slices.Contains(h.stopped, manifests.EtcdName) {
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
	err := putBack(t.Context(), s.Env, []componentUpgrade{{name: manifests.APIServerName, before: manifest, wanted: manifest}}, []bool{false}, failed)
	if !errors.Is(err, failed) || err.Error() != failed.Error() || len(s.host.jobs) > 0 || s.said.Len() > 0 {
		t.Errorf("error %v, did %q, said %q", err, s.host.jobs, s.said.String())
	}
}
