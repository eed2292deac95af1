// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/accounts"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// world is a cluster of control planes with Secrets in etcd. Clients write through all API servers between any two events, and each
// API server must be able to read everything all the time.
type world struct {
	t      *testing.T
	api    *cluster.Plan
	planes []*plane

	mu     sync.Mutex
	values map[string]string // the Secrets' names, and the providers that encrypted them
	shared encryption.Order  // of the uploaded file; nil for none
	readAt string            // the prefix of etcd's keys of Secrets
	events int
	killAt int  // the event that kills the run; 0 for none
	late   bool // it's killed after the event, not before
	dead   bool
	unfit  string // the first Secret that an API server couldn't read
}

// plane is a control plane. Its API server loads its file when somebody asks what it has loaded.
type plane struct {
	*phasetest.Stage
	world   *world
	name    string
	address string
	loaded  encryption.Order // nil for none
	hash    string
	runs    bool       // with the flags
	user    host.Owner // the API server runs as this user
	owner   host.Owner // of its file
	down    bool       // the API server
	joins   bool       // it's a member of etcd, and has neither a Node nor an API server
}

var errKilled = errors.New("killed")

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{t: t, api: cluster.NewPlan(func(cluster.Action) {}, nil), values: map[string]string{}, readAt: "/registry/secrets/"}
	key, err := certs.NewKey(config.ECDSAP256)
	phasetest.Fatal(t, err)
	sa, err := certs.EncodeKey(key)
	phasetest.Fatal(t, err)
	for i, name := range names {
		p := &plane{Stage: phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument), world: w, name: name}
		p.Config = p.Config.With(func(n *config.Node) {
			n.Name, n.Cluster.APIServer.ControlPlaneComponent = name, config.ControlPlaneComponent{}
			n.AdvertiseAddress = n.AdvertiseAddress.Next()
			for range i {
				n.AdvertiseAddress = n.AdvertiseAddress.Next()
			}
			n.Cluster.APIServer.ExtraArgs, n.Cluster.APIServer.ExtraVolumes = n.Cluster.WithEncryptionFile()
		})
		p.address = p.Config.LocalEndpoint()
		p.Put(t, "/etc/kubernetes/pki/sa.key", string(sa))
		p.FakeHost.Before = func(_ context.Context, order string) error {
			if !strings.HasPrefix(order, "write ") && !strings.HasPrefix(order, "chown ") {
				return nil
			}
			return w.event(func() {})
		}
		p.ownsFile()
		p.Cluster, p.Etcd = &planeAPI{Plan: w.api, plane: p}, &planeEtcd{plane: p}
		w.planes = append(w.planes, p)
		object := cluster.NewNode(name)
		object.Labels = map[string]string{cluster.LabelControlPlane: ""}
		phasetest.Fatal(t, w.api.Ensure(t.Context(), object))
	}
	for i := range 3 {
		w.values[fmt.Sprintf("default/s%d", i)] = encryption.Identity
	}
	return w
}

// event happens, unless the run is killed before it. Then clients write, and all API servers read.
func (w *world) event(happen func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return errKilled
	}
	w.events++
	dies := w.events == w.killAt
	if !dies || w.late {
		happen()
		for _, p := range w.planes {
			w.values["clients/of-"+p.name] = p.writes()
		}
		if w.shared == nil && len(w.planes) > 1 {
			w.upload(w.planes[w.events%len(w.planes)])
		}
		w.readAll()
	}
	if dies {
		w.dead = true
		return errKilled
	}
	return nil
}

// upload shares a control plane's file, as `upload-certs` does.
func (w *world) upload(p *plane) {
	data, err := host.ReadIfExists(p.FakeHost.Real, config.EncryptionFile)
	phasetest.Fatal(w.t, err)
	if data == nil || !p.runs {
		return
	}
	w.shared, _, err = encryption.Parse(data)
	phasetest.Fatal(w.t, err)
}

// readAll also reads with, and writes to, a control plane that joins at this moment, with the uploaded file.
func (w *world) readAll() {
	for name, provider := range w.values {
		if strings.HasPrefix(name, "lost/") {
			continue
		}
		if w.unfit == "" && w.shared != nil && !slices.Contains(w.shared, provider) {
			w.unfit = fmt.Sprintf("after event %d, %v is uploaded, and %s is encrypted with %s", w.events, w.shared, name, provider)
		}
		for _, p := range w.planes {
			if w.unfit == "" && provider != encryption.Identity && !slices.Contains(p.loaded, provider) {
				w.unfit = fmt.Sprintf("after event %d, %s has loaded %v, and %s is encrypted with %s", w.events, p.name, p.loaded, name, provider)
			}
			if w.unfit == "" && provider == encryption.Identity && p.loaded != nil && !slices.Contains(p.loaded, provider) {
				w.unfit = fmt.Sprintf("after event %d, %s can't read %s, which isn't encrypted", w.events, p.name, name)
			}
		}
	}
	for _, p := range w.planes {
		if w.unfit == "" && len(w.shared) > 0 && w.shared[0] != encryption.Identity && !slices.Contains(p.loaded, w.shared[0]) {
			w.unfit = fmt.Sprintf("after event %d, %v is uploaded, and %s has loaded %v", w.events, w.shared, p.name, p.loaded)
		}
	}
}

func (p *plane) writes() string {
	if len(p.loaded) == 0 {
		return encryption.Identity
	}
	return p.loaded[0]
}

// ownsFile notes the owner of the file: root, unless it's written for another user.
func (p *plane) ownsFile() {
	p.FakeHost.On.WriteOwned = func(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
		if path == config.EncryptionFile {
			p.owner = owner
		}
		return p.FakeHost.Real.WriteFile(path, data, mode)
	}
	p.FakeHost.On.Give = func(path string, owner host.Owner, _ fs.FileMode) error {
		if path == config.EncryptionFile {
			p.owner = owner
		}
		return nil
	}
}

// rootless makes all API servers run as a user of their own.
func (w *world) rootless() {
	for _, p := range w.planes {
		p.Config = p.Config.With(func(n *config.Node) { n.Cluster.FeatureGates = map[string]bool{"RootlessControlPlane": true} })
		p.Put(w.t, accounts.PasswdFile, fixture.RootlessPasswd)
		p.Put(w.t, accounts.GroupFile, fixture.RootlessGroup)
		users, err := p.Accounts().Numbers()
		phasetest.Fatal(w.t, err)
		account := users.Accounts[manifests.APIServerUser]
		p.user = host.Owner{UID: int(account.UID), GID: int(account.GID)}
		p.putPod()
	}
}

func (p *plane) putPod() {
	view := manifests.HostView{}
	if p.user != (host.Owner{}) {
		view.Users = &manifests.Users{Accounts: map[string]manifests.Account{manifests.APIServerUser: {UID: int64(p.user.UID), GID: int64(p.user.GID)}}}
	}
	pod, err := manifests.Encode(node.NewStaticPod(p.Config, manifests.APIServerName, view, nil))
	phasetest.Fatal(p.world.t, err)
	p.Put(p.world.t, phasetest.APIServerManifest, string(pod))
}

// load makes the API server read its file.
func (p *plane) load() error {
	data, err := host.ReadIfExists(p.FakeHost.Real, config.EncryptionFile)
	if err != nil || data == nil || !p.runs {
		return err
	}
	if p.owner != p.user && p.world.unfit == "" {
		p.world.unfit = fmt.Sprintf("after event %d, the file of %s belongs to %v", p.world.events, p.name, p.owner)
	}
	order, _, err := encryption.Parse(data)
	p.loaded, p.hash = order, encryption.Hash(data)
	return err
}

// restart gives the API server the flags.
func (p *plane) restart() []step.Phase {
	if p.runs {
		return nil
	}
	return []step.Phase{{Name: "api-server", Run: func(context.Context, *step.Env) error {
		err := p.world.event(func() { p.runs = true; phasetest.Fatal(p.world.t, p.load()) })
		if err == nil {
			p.putPod()
		}
		return err
	}}}
}

// run is a command on this control plane.
func (p *plane) run(goal Goal) error { return p.play(&Run{Goal: goal}) }

func (p *plane) play(r *Run) error {
	return step.Run(p.world.t.Context(), p.Env, r.Phases(p.restart()), step.Options{})
}
