// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/etcd"
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
	runs    bool // with the flags
	joins   bool // it's a member of etcd, and has neither a Node nor an API server
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
			if !strings.HasPrefix(order, "write ") {
				return nil
			}
			return w.event(func() {})
		}
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

// load makes the API server read its file.
func (p *plane) load() error {
	data, err := host.ReadIfExists(p.FakeHost.Real, config.EncryptionFile)
	if err != nil || data == nil || !p.runs {
		return err
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
		pod, err := manifests.Encode(node.NewStaticPod(p.Config, manifests.APIServerName, manifests.HostView{}, nil))
		if err != nil {
			return err
		}
		err = p.world.event(func() { p.runs = true; err = p.load() })
		if err == nil {
			p.Put(p.world.t, "/etc/kubernetes/manifests/kube-apiserver.yaml", string(pod))
		}
		return err
	}}}
}

// run is a command on this control plane.
func (p *plane) run(goal Goal) error { return p.play(&Run{Goal: goal}) }

func (p *plane) play(r *Run) error {
	return step.Run(p.world.t.Context(), p.Env, r.Phases(p.restart()), step.Options{})
}

type planeAPI struct {
	*cluster.Plan
	plane *plane
}

func (a *planeAPI) Update(ctx context.Context, obj cluster.Object, change func() (bool, error)) (bool, error) {
	if obj.GetName() == manifests.CertsSecretName {
		return a.spoil(obj.(*corev1.Secret), change)
	}
	return a.Plan.Update(ctx, obj, func() (bool, error) {
		changed, err := change()
		if err != nil || !changed {
			return changed, err
		}
		err = a.plane.world.event(func() {})
		return err == nil, err
	})
}

// spoil takes the file out of the upload.
func (a *planeAPI) spoil(uploaded *corev1.Secret, change func() (bool, error)) (bool, error) {
	w := a.plane.world
	if w.shared != nil {
		uploaded.Data = map[string][]byte{manifests.SharedEncryption: []byte("the file")}
	}
	changed, err := change()
	if err != nil || !changed {
		return true, err
	}
	if _, there := uploaded.Data[manifests.SharedEncryption]; there {
		return true, errors.New("the file is still in the upload")
	}
	return true, w.event(func() { w.shared = nil })
}

func (a *planeAPI) Ensure(ctx context.Context, objs ...cluster.Object) error {
	if err := a.plane.world.event(func() { a.plane.world.values["kube-system/"+objs[0].GetName()] = a.plane.writes() }); err != nil {
		return err
	}
	return a.Plan.Ensure(ctx, objs...)
}

func (w *world) complete() []*plane {
	return slices.DeleteFunc(slices.Clone(w.planes), func(p *plane) bool { return p.joins })
}

func (a *planeAPI) Nodes(context.Context) (list []corev1.Node, err error) {
	for _, p := range a.plane.world.complete() {
		object := cluster.NewNode(p.name)
		object.Labels = map[string]string{cluster.LabelControlPlane: ""}
		list = append(list, *object)
	}
	return list, nil
}

func (a *planeAPI) Pods(context.Context, string, string) (list []corev1.Pod, err error) {
	for _, p := range a.plane.world.complete() {
		pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: p.name}}
		pod.Annotations = map[string]string{manifests.AdvertiseAnnotation: p.address}
		list = append(list, pod)
	}
	return list, nil
}

func (a *planeAPI) Read(_ context.Context, q cluster.Query, take func(io.Reader) error) error {
	for _, p := range a.plane.world.planes {
		if p.address != q.Server {
			continue
		}
		if err := a.plane.world.event(func() { phasetest.Fatal(p.world.t, p.load()) }); err != nil {
			return err
		}
		text := "apiserver_other 1\n"
		if p.hash != "" {
			text += fmt.Sprintf("apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:1\",hash=%q} 1\n", p.hash)
		}
		return take(strings.NewReader(text))
	}
	return errors.Errorf("nobody answers at %s", q.Server)
}

func (a *planeAPI) Rewrite(_ context.Context, namespace, name string) error {
	w := a.plane.world
	return w.event(func() { w.values[namespace+"/"+name] = a.plane.writes() })
}

type planeEtcd struct {
	etcd.Etcd
	plane *plane
}

func (e *planeEtcd) Members(context.Context) (list []etcd.Member, err error) {
	for _, p := range e.plane.world.planes {
		list = append(list, etcd.Member{Name: p.name})
	}
	return list, nil
}

func (e *planeEtcd) Values(_ context.Context, prefix string, each func(string, []byte)) error {
	w := e.plane.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if prefix != w.readAt {
		return nil
	}
	for name, provider := range w.values {
		value := []byte("k8s\x00text")
		if provider != encryption.Identity {
			value = []byte("k8s:enc:secretbox:v1:" + provider + ":" + "sealed")
		}
		each(prefix+name, bytes.Clone(value))
	}
	return nil
}
