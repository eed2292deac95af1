// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
	"github.com/slipway-k8s/slipway/test/tier"
)

// target is the keyring's.
func (w *world) target(t *testing.T) string {
	t.Helper()
	s, err := ReadStatus(t.Context(), w.planes[0].Env)
	phasetest.Fatal(t, err)
	return s.Target
}

// everywhere runs a command on each control plane, in turn, until all of them have loaded their last file.
func (w *world) everywhere(t *testing.T, goal Goal) {
	t.Helper()
	for range 3 {
		for _, p := range w.planes {
			if err := p.run(goal); err != nil {
				t.Fatalf("%s on %s: %v\n%s", goal, p.name, err, p.Said.String())
			}
		}
		s, err := ReadStatus(t.Context(), w.planes[0].Env)
		phasetest.Fatal(t, err)
		if s.Settled() {
			break
		}
	}
	w.holds(t, goal)
}

// holds checks the end of a change.
func (w *world) holds(t *testing.T, goal Goal) {
	t.Helper()
	target := w.target(t)
	if goal == Disable != (target == encryption.Identity) {
		t.Errorf("%s: the target is %q", goal, target)
	}
	for name, provider := range w.values {
		if provider != target {
			t.Errorf("%s: %s is encrypted with %s instead of %s", goal, name, provider, target)
		}
	}
	for _, p := range w.planes {
		if !slices.Equal(p.loaded, encryption.Only(target)) {
			t.Errorf("%s: %s has loaded %v", goal, p.name, p.loaded)
		}
		for _, path := range []string{config.EncryptionFile, keyringFile} {
			if info, err := os.Stat(p.Root + path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
		fact.NotIn(t, p.Said.String()+p.Results.String(), w.secrets(t)...)
	}
	if w.unfit != "" {
		t.Error(w.unfit)
	}
}

// secrets are the keys.
func (w *world) secrets(t *testing.T) (list []string) {
	t.Helper()
	ring, _, err := readKeyring(t.Context(), w.planes[0].Env)
	phasetest.Fatal(t, err)
	for _, k := range ring.Keys {
		list = append(list, k.Secret.Reveal())
	}
	return list
}

// TestLife: encryption is enabled, the key rotated, and the encryption disabled and enabled again, while every API server can read
// every Secret.
func TestLife(t *testing.T) {
	for _, names := range [][]string{{"cp-1"}, {"cp-1", "cp-2", "cp-3"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			w := newWorld(t, names...)
			w.everywhere(t, Enable)
			first := w.target(t)
			w.everywhere(t, Enable)
			if w.target(t) != first {
				t.Error("enabled twice, and there are two keys")
			}
			w.everywhere(t, Rotate)
			second := w.target(t)
			w.everywhere(t, Rotate)
			if w.target(t) != second || second == first {
				t.Errorf("the keys were %s, %s and %s", first, second, w.target(t))
			}
			w.everywhere(t, Disable)
			w.everywhere(t, Disable)
			w.everywhere(t, Enable)
			if n := len(w.secrets(t)); n != 3 {
				t.Errorf("%d keys are kept", n)
			}
		})
	}
}

// TestCrash: a run that's killed before or after any of its events is finished by the same command.
func TestCrash(t *testing.T) {
	for _, goal := range []Goal{Enable, Rotate, Disable} {
		t.Run(string(goal), func(t *testing.T) {
			whole := killed(t, goal, 0, false)
			if whole.events < 20 {
				t.Fatalf("it has only %d events", whole.events)
			}
			for _, at := range tier.Sample(t, 8, 2*whole.events) {
				killed(t, goal, at/2+1, at%2 == 1)
			}
		})
	}
}

// killed reaches a goal on two control planes. The run with event number at is killed there, and run again.
func killed(t *testing.T, goal Goal, at int, late bool) *world {
	t.Helper()
	w := newWorld(t, "cp-1", "cp-2")
	w.rootless()
	if goal != Enable {
		w.everywhere(t, Enable)
	}
	w.events, w.killAt, w.late = 0, at, late
	for range 3 {
		for _, p := range w.planes {
			err := p.run(goal)
			if w.dead {
				w.dead, w.killAt = false, 0
				err = p.run(goal)
			}
			if err != nil {
				t.Fatalf("killed at event %d (late: %t): %v", at, late, err)
			}
		}
	}
	ran := w.events
	w.killAt = 0
	w.holds(t, goal) // it looks, too
	w.events = ran
	return w
}

// TestRefusals: facts that Slipway can't explain end a run before it changes anything.
func TestRefusals(t *testing.T) {
	t.Run("not enabled", func(t *testing.T) {
		w := newWorld(t, "cp-1")
		for _, goal := range []Goal{Rotate, Disable} {
			if err := w.planes[0].run(goal); err == nil {
				t.Errorf("%s succeeded", goal)
			}
		}
	})
	t.Run("an edited file", func(t *testing.T) {
		w := newWorld(t, "cp-1")
		w.everywhere(t, Enable)
		secret := w.secrets(t)[0]
		w.planes[0].Append(t, config.EncryptionFile, "# edited\n")
		err := w.planes[0].run(Rotate)
		fact.In(t, fmt.Sprint(err), config.EncryptionFile)
		fact.NotIn(t, fmt.Sprint(err), secret)
	})
	t.Run("another file", func(t *testing.T) {
		w := newWorld(t, "cp-1")
		w.planes[0].Config = w.planes[0].Config.With(func(n *config.Node) {
			n.Cluster.APIServer.ExtraArgs = []config.Arg{{Name: "encryption-provider-config", Value: "/etc/mine.yaml"}}
		})
		fact.In(t, fmt.Sprint(w.planes[0].run(Enable)), "/etc/mine.yaml")
	})
	t.Run("Secrets elsewhere", func(t *testing.T) {
		w := newWorld(t, "cp-1")
		w.everywhere(t, Enable)
		p := w.planes[0]
		w.readAt = "/of/secrets/" // --etcd-prefix needs no slash
		p.Flagged(t, "--etcd-prefix=of")
		w.everywhere(t, Rotate)
		w.readAt = "/elsewhere/secrets/"
		before := p.Get(t, config.EncryptionFile)
		for _, goal := range []Goal{Enable, Rotate} {
			fact.Error(t, p.run(goal), "/of/secrets/", encryption.KeyringSecret)
		}
		if _, err := ReadStatus(t.Context(), p.Env); err == nil {
			t.Error("the status knows etcd's Secrets")
		}
		w.readAt = "/of/secrets/"
		p.Flagged(t, "--etcd_servers-overrides=/events#https://192.0.2.1:2379,/secrets#https://192.0.2.1:2379;https://192.0.2.2:2379")
		fact.Error(t, p.run(Rotate), overridesFlag)
		if p.Get(t, config.EncryptionFile) != before {
			t.Error("the file has changed")
		}
	})
	t.Run("a member that joins", func(t *testing.T) {
		w := newWorld(t, "cp-1", "cp-2")
		w.planes[1].joins = true
		err := w.planes[0].run(Enable)
		if err == nil || len(w.planes[0].loaded) > 0 {
			t.Errorf("it went on: %v", err)
		}
	})
	t.Run("an API server without an address", func(t *testing.T) {
		w := newWorld(t, "cp-1", "cp-2")
		w.planes[1].address = ""
		fact.Error(t, w.planes[0].run(Enable), "cp-2", manifests.AdvertiseAnnotation)
	})
	t.Run("another sa.key", func(t *testing.T) {
		w := newWorld(t, "cp-1", "cp-2")
		w.everywhere(t, Enable)
		other := newWorld(t, "cp-1")
		w.planes[1].Put(t, "/etc/kubernetes/pki/sa.key", other.planes[0].Get(t, "/etc/kubernetes/pki/sa.key"))
		before := w.planes[1].Get(t, config.EncryptionFile)
		if err := w.planes[1].run(Rotate); err == nil || w.planes[1].Get(t, config.EncryptionFile) != before {
			t.Errorf("it went on: %v", err)
		}
	})
}

// TestOwner: a file that the API server's user can't read is given to it.
func TestOwner(t *testing.T) {
	w := newWorld(t, "cp-1")
	w.rootless()
	w.everywhere(t, Enable)
	p, key := w.planes[0], w.target(t)
	for _, change := range []func() error{
		func() error { return p.run(Enable) },
		func() error { return p.recall(t, key) },
	} {
		p.owner = host.Owner{}
		phasetest.Fatal(t, change())
		if p.owner != p.user || p.user == (host.Owner{}) || w.unfit != "" {
			t.Errorf("the owner is %v: %s", p.owner, w.unfit)
		}
	}
}

// TestWaits: a control plane says on which others it waits.
func TestWaits(t *testing.T) {
	w := newWorld(t, "cp-1", "cp-2", "cp-3")
	phasetest.Fatal(t, w.planes[0].run(Enable))
	fact.In(t, w.planes[0].Said.String()+w.planes[0].Results.String(), "`slipway encryption enable`", "cp-2, cp-3")
	if got := strings.Join(w.planes[0].loaded, " "); !strings.HasPrefix(got, encryption.Identity+" ") {
		t.Errorf("cp-1 has loaded %q", got)
	}
}
