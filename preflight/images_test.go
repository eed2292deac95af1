// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// registry is a container runtime whose pulls take a second each.
type registry struct {
	mu      sync.Mutex
	present map[string]bool
	broken  map[string][]error // the results of the pulls of an image, in turn
	pulls   []string
	now     int
	most    int
	lost    error
}

func (r *registry) ImagePresent(_ context.Context, _, image string) (bool, error) {
	return r.present[image], r.lost
}

func (r *registry) PullImage(ctx context.Context, _, image string) error {
	r.mu.Lock()
	r.pulls = append(r.pulls, image)
	r.now++
	r.most = max(r.most, r.now)
	var err error
	if left := r.broken[image]; len(left) > 0 {
		err, r.broken[image] = left[0], left[1:]
	}
	r.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.mu.Lock()
	r.now--
	r.mu.Unlock()
	return err
}

var _ Puller = (*registry)(nil)

func sixImages() []string {
	return []string{"r/a:1", "r/b:1", "r/c:1", "r/d:1", "r/e:1", "r/pause:3.10.2"}
}

func TestImages(t *testing.T) {
	type told struct {
		Image string
		State string
		Took  time.Duration
	}
	notFound, hiccup := errors.New("pull image r/b:1: not found"), errors.New("pull image r/b:1: connection reset")
	remedy := " | `crictl pull r/b:1` | --image-repository"
	for _, tt := range []struct {
		name     string
		scene    func(s scene, r *registry)
		pulls    int
		together int
		took     time.Duration
		told     []told // of r/b:1
		want     []string
	}{
		{"side by side", func(s scene, _ *registry) { s.node.ImagePullSerial = false }, 6, 4, 2 * time.Second,
			[]told{{"r/b:1", ImagePulling, 0}, {"r/b:1", ImagePulled, time.Second}}, nil},
		{"serial", func(scene, *registry) {}, 6, 1, 6 * time.Second,
			[]told{{"r/b:1", ImagePulling, 0}, {"r/b:1", ImagePulled, time.Second}}, nil},
		{"one is there", func(_ scene, r *registry) { r.present["r/b:1"] = true }, 5, 1, 5 * time.Second,
			[]told{{"r/b:1", ImagePresent, 0}}, nil},
		{"Always", func(s scene, r *registry) { r.present["r/b:1"], s.node.ImagePullPolicy = true, "Always" }, 6, 1, 6 * time.Second,
			[]told{{"r/b:1", ImagePulling, 0}, {"r/b:1", ImagePulled, time.Second}}, nil},
		{"Never", func(s scene, r *registry) {
			s.node.ImagePullPolicy = "Never"
			for _, image := range sixImages() {
				r.present[image] = image != "r/b:1"
			}
		}, 0, 0, 0, nil,
			[]string{"[WARNING ImagePull] | r/b:1 | imagePullPolicy Never"}},
		{"a hiccup", func(_ scene, r *registry) { r.broken["r/b:1"] = []error{hiccup, hiccup} }, 8, 1, 11 * time.Second,
			[]told{{"r/b:1", ImagePulling, 0}, {"r/b:1", ImagePulled, 6 * time.Second}}, nil},
		{"broken for long", func(_ scene, r *registry) { r.broken["r/b:1"] = []error{hiccup, hiccup, hiccup, nil} }, 8, 1, 11 * time.Second,
			[]told{{"r/b:1", ImagePulling, 0}, {"r/b:1", ImageFailed, 6 * time.Second}},
			[]string{"[ERROR ImagePull] | r/b:1 | connection reset" + remedy}},
		{"not found, and all others are pulled", func(_ scene, r *registry) { r.broken["r/b:1"] = []error{notFound} }, 6, 1, 6 * time.Second,
			[]told{{"r/b:1", ImagePulling, 0}, {"r/b:1", ImageFailed, time.Second}},
			[]string{"[ERROR ImagePull] | r/b:1 | not found" + remedy}},
		{"no runtime", func(s scene, _ *registry) {
			s.Fail["RuntimeInfo"] = errors.New("no socket unix:///run/containerd/containerd.sock")
		}, 0, 0, 0, nil,
			[]string{"[ERROR ImagePull] | no socket | unix:///run/containerd/containerd.sock | --cri-socket"}},
		{"another sandbox image", func(s scene, r *registry) {
			s.Has.Runtime.SandboxImage = "r/pause:3.8"
			for _, image := range sixImages() {
				r.present[image] = true
			}
		}, 0, 0, 0, []told{{"r/b:1", ImagePresent, 0}},
			[]string{"[WARNING ImagePull] | r/pause:3.8 | r/pause:3.10.2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newScene(t), &registry{present: map[string]bool{}, broken: map[string][]error{}}
				s.Has.Runtime.SandboxImage = "r/pause:3.10.2"
				tt.scene(s, r)
				var events []told
				check := Images(s.node, sixImages(), r, func(image, state string, took time.Duration) {
					if image == "r/b:1" {
						events = append(events, told{image, state, took})
					}
				})
				start := time.Now()
				found := check.findings(t.Context(), s.fakeHost)
				expect(t, found, tt.want...)
				if diff := cmp.Diff(tt.told, events); diff != "" {
					t.Error("progress:", diff)
				}
				if len(r.pulls) != tt.pulls || r.most != tt.together || time.Since(start) != tt.took {
					t.Errorf("%d pulls, %d together, in %v; want %d, %d, %v", len(r.pulls), r.most, time.Since(start), tt.pulls, tt.together, tt.took)
				}
			})
		})
	}
}

func TestImagesNamesEveryFault(t *testing.T) {
	s, r := newScene(t), &registry{lost: errors.New("runtime went away")}
	check := Images(s.node, sixImages(), r, func(string, string, time.Duration) {})
	report := Run(t.Context(), []Check{check}, s.fakeHost, nil)
	var want []string
	for _, image := range sixImages() {
		want = append(want, "[ERROR ImagePull] | "+image+" | went away")
	}
	expect(t, report[fault.Error], want...)
}

func TestImagesEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		s, r := newScene(t), &registry{}
		s.Has.Runtime.SandboxImage = ""
		found := Images(s.node, sixImages(), r, func(string, string, time.Duration) {}).findings(ctx, s.fakeHost)
		if len(found) != 4 || len(slices.Compact(r.pulls)) != 6 {
			t.Errorf("%d faults, pulls of %v", len(found), r.pulls)
		}
	})
}
