// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// putUnflaggedPod makes the static Pod of an API server that reads no keys yet.
func (p *plane) putUnflaggedPod(t *testing.T) {
	t.Helper()
	plain := p.Config.With(func(n *config.Node) { n.Cluster.APIServer = config.APIServer{} })
	pod, err := manifests.Encode(node.NewStaticPod(plain, manifests.APIServerName, manifests.HostView{}, nil))
	phasetest.Fatal(t, err)
	p.Put(t, phasetest.APIServerManifest, string(pod))
}

// earlierFile is a file that `kubeadm reset` has left.
func earlierFile(t *testing.T) (key, file string) {
	t.Helper()
	k := encryption.NewKey(time.Now().Add(-time.Hour))
	ring, err := encryption.Keyring{}.With(k)
	phasetest.Fatal(t, err)
	data, err := ring.File(encryption.Only(k.Name))
	phasetest.Fatal(t, err)
	return k.Name, string(data)
}

// TestLeftover: an earlier cluster's file is refused and stays, and neither the API server nor the keyring gets its key, whether the
// cluster has keys or not.
func TestLeftover(t *testing.T) {
	for name, enabled := range map[string]bool{"the first key": false, "on another control plane": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cp-1", "cp-2")
			p, other := w.planes[1], w.planes[0]
			if enabled {
				phasetest.Fatal(t, other.run(Enable))
			}
			p.putUnflaggedPod(t)
			key, file := earlierFile(t)
			p.Put(t, config.EncryptionFile, file)
			for _, run := range []func() error{func() error { return p.run(Enable) }, func() error { return p.recall(t, key) }} {
				err := run()
				fact.Error(t, err, config.EncryptionFile, config.EncryptionFile+".earlier")
				fact.NotIn(t, err.Error(), file)
			}
			s, err := ReadStatus(t.Context(), p.Env)
			phasetest.Fatal(t, err)
			if p.Get(t, config.EncryptionFile) != file || p.runs || slices.Contains(s.Keys, key) {
				t.Errorf("the API server runs with it: %t; the keys are %v", p.runs, s.Keys)
			}
			fact.In(t, p.Said.String(), config.EncryptionFile+".earlier")

			phasetest.Fatal(t, os.Rename(p.Root+config.EncryptionFile, p.Root+config.EncryptionFile+".earlier"))
			w.everywhere(t, Enable)
			if p.Get(t, config.EncryptionFile+".earlier") != file {
				t.Error("the earlier file has changed")
			}
		})
	}
}

// TestUnusedFile: a file of this cluster that the API server doesn't read may be old. It starts with one that encrypts nothing.
func TestUnusedFile(t *testing.T) {
	w := newWorld(t, "cp-1", "cp-2")
	w.everywhere(t, Enable)
	p, first := w.planes[1], w.target(t)
	p.putUnflaggedPod(t)
	before := p.Get(t, config.EncryptionFile)
	p.runs, p.loaded, p.hash = false, nil, ""
	w.unfit = "not before it has keys again"
	phasetest.Fatal(t, step.Run(t.Context(), p.Env, (&Run{Goal: Enable}).Phases(nil)[:2], step.Options{}))
	order, _, err := encryption.Parse([]byte(p.Get(t, config.EncryptionFile)))
	if err != nil || !slices.Equal(order, encryption.Order{encryption.Identity, first}) || p.Get(t, config.EncryptionFile) == before {
		t.Errorf("%v, %v", order, err)
	}
}

// TestUnusedFileFindings: `reconfigure` and `upgrade` don't start an API server with a file that may be an earlier cluster's.
func TestUnusedFileFindings(t *testing.T) {
	w := newWorld(t, "cp-1")
	p := w.planes[0]
	found := func(want ...phasetest.FoundAs) {
		t.Helper()
		phasetest.CheckFindings(t, node.EncryptionFileFindings(p.Env), want...)
	}
	refused := phasetest.FoundAs{Name: "error " + node.EncryptionFileCheck, Facts: []string{config.EncryptionFile}}
	p.putUnflaggedPod(t)
	_, file := earlierFile(t)
	p.Put(t, config.EncryptionFile, file)
	found(refused)
	phasetest.Fatal(t, os.Remove(p.Root+config.EncryptionFile))
	found(refused)
	phasetest.Fatal(t, step.Run(t.Context(), p.Env, (&Run{Goal: Enable}).Phases(nil)[:2], step.Options{}))
	found()
	first := p.Get(t, config.EncryptionFile)
	phasetest.Fatal(t, os.Remove(p.Root+config.EncryptionFile))
	w.everywhere(t, Enable) // from here on, the API server reads it
	found()
	p.putUnflaggedPod(t)
	found(refused)
	p.Put(t, config.EncryptionFile, first)
	found()
}

// restore is `encryption enable` before it needs the API.
func (p *plane) restore(t *testing.T) error {
	t.Helper()
	list, err := RestoreLost(p.Env, nil)
	phasetest.Fatal(t, err)
	return step.Run(t.Context(), p.Env, list, step.Options{})
}

// TestLost: a lost file is made again from the keyring beside it, whether the API server still runs or not, in the middle of a change,
// too. All API servers can read all Secrets afterwards, and the same command finishes.
func TestLost(t *testing.T) {
	for name, test := range map[string]struct {
		before func(t *testing.T, w *world)
		goal   Goal
		down   bool
		same   bool // as before
	}{
		"enabled, runs":  {func(t *testing.T, w *world) { w.everywhere(t, Enable) }, Rotate, false, true},
		"enabled, down":  {func(t *testing.T, w *world) { w.everywhere(t, Enable) }, Enable, true, true},
		"rotated, runs":  {func(t *testing.T, w *world) { w.newKeys(t, 2) }, Enable, false, true},
		"rotated, down":  {func(t *testing.T, w *world) { w.newKeys(t, 2) }, Rotate, true, false},
		"disabled, down": {func(t *testing.T, w *world) { w.everywhere(t, Enable); w.everywhere(t, Disable) }, Disable, true, false},
		"begins a rotation": {func(t *testing.T, w *world) {
			w.everywhere(t, Enable)
			phasetest.Fatal(t, w.planes[0].run(Rotate))
		}, Rotate, true, false},
		"in the middle of it":    {func(t *testing.T, w *world) { w.everywhere(t, Enable); w.once(t, Rotate) }, Rotate, true, false},
		"disables, in between":   {func(t *testing.T, w *world) { w.everywhere(t, Enable); w.once(t, Disable) }, Disable, true, false},
		"enables, in the middle": {func(t *testing.T, w *world) { w.once(t, Enable) }, Enable, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cp-1", "cp-2")
			test.before(t, w)
			p := w.planes[0]
			file := p.Get(t, config.EncryptionFile)
			phasetest.Fatal(t, os.Remove(p.Root+config.EncryptionFile))
			p.down = test.down
			p.FakeHost.Before = nil // the API server isn't asked while the file is gone
			if _, err := ReadStatus(t.Context(), p.Env); (err != nil) != test.down {
				t.Errorf("the status: %v", err)
			}
			fact.In(t, p.Said.String(), config.EncryptionFile, "`slipway encryption enable`")
			phasetest.Fatal(t, p.restore(t))
			fact.In(t, p.Said.String(), "Restored", keyringFile)
			fact.NotIn(t, p.Said.String(), w.secrets(t)...)
			if now := p.Get(t, config.EncryptionFile); test.same && now != file {
				t.Errorf("the file was\n%s\nand is\n%s", file, now)
			}
			p.down = false
			phasetest.Fatal(t, p.load())
			w.everywhere(t, test.goal)
		})
	}
}

// once runs a command once on each control plane.
func (w *world) once(t *testing.T, goal Goal) {
	t.Helper()
	for _, p := range w.planes {
		phasetest.Fatal(t, p.run(goal))
	}
}

// TestRecallLost: `recall` restores a lost file first, on the day when nothing answers.
func TestRecallLost(t *testing.T) {
	w := newWorld(t, "cp-1")
	keys := w.newKeys(t, 1)
	p := w.planes[0]
	phasetest.Fatal(t, os.Remove(p.Root+config.EncryptionFile))
	p.down, w.readAt = true, "nowhere"
	phasetest.Fatal(t, p.recall(t, keys[0]))
	if want := (encryption.Order{encryption.Identity, keys[0], keys[1]}); !slices.Equal(p.loaded, want) {
		t.Errorf("the file has %v", p.loaded)
	}
}

// TestLostAndCrashed: a kubelet that delays a crashed API server is restarted, but not one whose API server runs. Other work, which may
// be why the API server doesn't come up, is done between the file and the wait.
func TestLostAndCrashed(t *testing.T) {
	for _, runs := range []bool{true, false} {
		w := newWorld(t, "cp-1")
		w.everywhere(t, Enable)
		p := w.planes[0]
		phasetest.Fatal(t, os.Remove(p.Root+config.EncryptionFile))
		healthy := runs
		p.FakeHost.On.Probe = func(context.Context, host.Probe) error {
			if !healthy {
				return errors.New("connection refused")
			}
			return nil
		}
		p.FakeHost.Jobs = nil
		other := step.Phase{Name: "other", Run: func(context.Context, *step.Env) error {
			p.Get(t, config.EncryptionFile)
			healthy = true
			return nil
		}}
		list, err := RestoreLost(p.Env, []step.Phase{other})
		if phasetest.Fatal(t, err); len(list) != 3 || list[1].Name != other.Name {
			t.Fatalf("%d phases", len(list))
		}
		phasetest.Fatal(t, step.Run(t.Context(), p.Env, list, step.Options{}))
		if restarted := slices.Contains(p.FakeHost.Did("restart"), node.KubeletUnit); restarted == runs {
			t.Errorf("the API server runs: %t; the kubelet is restarted: %t", runs, restarted)
		}
		list, err = RestoreLost(p.Env, []step.Phase{other})
		if phasetest.Fatal(t, err); len(list) != 1 {
			t.Errorf("with the file, it still has %d phases", len(list))
		}
	}
}

// TestRecallCrashed: `recall` doesn't leave a crashed API server to the kubelet's delay, either.
func TestRecallCrashed(t *testing.T) {
	for _, runs := range []bool{true, false} {
		w := newWorld(t, "cp-1")
		keys := w.newKeys(t, 1)
		p := w.planes[0]
		phasetest.Fatal(t, os.Remove(p.Root+config.EncryptionFile))
		p.down = !runs
		p.FakeHost.On.Probe = func(context.Context, host.Probe) error {
			if runs {
				return nil
			}
			return errors.New("connection refused")
		}
		p.FakeHost.Jobs = nil
		phasetest.Fatal(t, p.recall(t, keys[0]))
		if restarted := slices.Contains(p.FakeHost.Did("restart"), node.KubeletUnit); restarted == runs {
			t.Errorf("the API server runs: %t; the kubelet is restarted: %t", runs, restarted)
		}
	}
}

// TestRecallWithoutEtcd: `recall` needs no etcd, and doesn't wait for it as long as others do.
func TestRecallWithoutEtcd(t *testing.T) {
	w := newWorld(t, "cp-1")
	keys := w.newKeys(t, 1)
	p := w.planes[0]
	phasetest.Fatal(t, os.Remove(p.Root+config.EncryptionFile))
	p.down = true
	asked := &silentEtcd{Etcd: p.Etcd}
	p.Etcd = asked
	phasetest.Fatal(t, p.recall(t, keys[0]))
	if until, limited := asked.ctx.Deadline(); !limited || time.Until(until) > valuesTimeout {
		t.Errorf("it would wait until %s", until)
	}
}

// silentEtcd notes for how long it may be asked.
type silentEtcd struct {
	etcd.Etcd
	ctx context.Context
}

func (e *silentEtcd) Values(ctx context.Context, _ string, _ func(string, []byte)) error {
	e.ctx = ctx
	return errors.New("etcd doesn't answer")
}
