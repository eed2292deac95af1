// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// UnlessControlPlane is the Skip of phases for control planes: it returns why a worker has nothing to do.
func UnlessControlPlane(env *step.Env) string {
	if !env.Config.ControlPlane {
		return "this node is a worker"
	}
	return ""
}

// UnlessLocalEtcd is the Skip of phases for a local etcd: it returns why there's none.
func UnlessLocalEtcd(env *step.Env) string {
	if env.Config.Cluster.Etcd.External != nil {
		return "etcd is external"
	}
	return ""
}

// StaticPods names the components that have a static Pod on this host, etcd first.
func StaticPods(env *step.Env) []string {
	return slices.DeleteFunc(manifests.Components(env.Config), func(name string) bool {
		_, err := env.Host.Lstat(env.Config.Paths.StaticPod(name))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// StaticPodYAML returns a component's manifest with the user's patches applied. members are those an etcd joins: see manifests.Etcd.
func StaticPodYAML(env *step.Env, component string, view manifests.HostView, members []manifests.Member) ([]byte, error) {
	data, err := manifests.Encode(NewStaticPod(env.Config, component, view, members))
	if err != nil {
		return nil, err
	}
	patches, err := env.Patches()
	if err != nil {
		return nil, err
	}
	return patches.Apply(component, data, &corev1.Pod{})
}

// NewStaticPod returns a component's static Pod without the user's patches.
func NewStaticPod(n *config.Node, component string, view manifests.HostView, members []manifests.Member) *corev1.Pod {
	switch component {
	case manifests.EtcdName:
		return manifests.Etcd(n, view, members)
	case manifests.APIServerName:
		return manifests.APIServer(n, view)
	case manifests.ControllerManagerName:
		return manifests.ControllerManager(n, view)
	}
	return manifests.Scheduler(n, view)
}

// HostView reads the facts of this host that go into its static Pods.
func HostView(env *step.Env) (manifests.HostView, error) {
	users, err := env.Accounts().Numbers()
	if err != nil {
		return manifests.HostView{}, err
	}
	view := manifests.HostView{ProxyEnv: manifests.ProxyEnv(env.Host.Environ()), Users: users}
	for _, dir := range manifests.CertDirs() {
		if _, err := env.Host.ReadDir(dir); err == nil {
			view.CertDirs = append(view.CertDirs, dir)
		}
	}
	ca, _ := certs.Find(env.Config, certs.CA)
	cert, key, err := env.PKI().Read(ca)
	if err != nil {
		return view, err
	}
	view.ExternalCA = cert != nil && key == nil
	view.SeveralCAs, err = env.PKI().SeveralCAs()
	return view, err
}

// EtcdMinor returns a static Pod's minor version of etcd, such as 3.6; empty if the image's tag isn't a version.
func EtcdMinor(manifest []byte) string { return MinorOf(manifests.ImageOf(manifest)) }

// MinorOf returns the minor version in an image's tag, such as 3.6; empty if the tag isn't a version.
func MinorOf(image string) string { return releases.MinorOf(manifests.TagOf(image)) }
