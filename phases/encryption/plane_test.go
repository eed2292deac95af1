// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

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
		if p.address != cmp.Or(q.Server, a.plane.address) || p.down {
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
	w.mu.Lock()
	provider := w.values[namespace+"/"+name]
	w.mu.Unlock()
	for _, p := range w.planes {
		if provider != encryption.Identity && !slices.Contains(p.loaded, provider) {
			return errors.Errorf("%s cannot read %s/%s with %s", p.name, namespace, name, provider)
		}
	}
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
