// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

const systemCertDir = "/etc/ssl/certs"

// mount is a path of the host in a static Pod.
type mount struct {
	name, hostPath, path string
	readOnly             bool
	kind                 corev1.HostPathType
}

func directory(name, dir string) mount {
	return mount{name, dir, dir, true, corev1.HostPathDirectoryOrCreate}
}

func kubeconfig(n *config.Node, file string) mount {
	p := path.Join(n.Paths.Kubernetes, file)
	return mount{"kubeconfig", p, p, true, corev1.HostPathFileOrCreate}
}

func certMounts(n *config.Node, v HostView) []mount {
	out := []mount{directory("k8s-certs", n.Paths.PKI), directory("ca-certs", systemCertDir)}
	for _, dir := range v.CertDirs {
		out = append(out, directory(certVolume(dir), dir))
	}
	return out
}

func certVolume(dir string) string { return strings.ReplaceAll(dir[1:], "/", "-") }

// externalEtcdMounts mounts the directories of an external etcd's client certificate, unless mounts contains them.
func externalEtcdMounts(n *config.Node, mounts []mount) []mount {
	external := n.Cluster.Etcd.External
	if external == nil {
		return nil
	}
	var dirs []string
	for _, file := range []string{external.CAFile, external.CertFile, external.KeyFile} {
		if file != "" {
			dirs = append(dirs, path.Dir(file))
		}
	}
	slices.Sort(dirs)
	var out []mount
	for _, dir := range dirs {
		held := func(m mount) bool { return within(dir, m.hostPath) }
		if !slices.ContainsFunc(mounts, held) && !slices.ContainsFunc(out, held) {
			out = append(out, directory(fmt.Sprintf("etcd-certs-%d", len(out)), dir))
		}
	}
	return out
}

func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, strings.TrimSuffix(parent, "/")+"/")
}

// withExtra adds the user's mounts, which replace others of the same name, and sorts by name.
func withExtra(mounts []mount, extra []config.HostPathMount) []mount {
	for _, e := range extra {
		m := mount{e.Name, e.HostPath, e.MountPath, e.ReadOnly, e.PathType}
		if i := slices.IndexFunc(mounts, func(m mount) bool { return m.name == e.Name }); i >= 0 {
			mounts[i] = m
		} else {
			mounts = append(mounts, m)
		}
	}
	slices.SortFunc(mounts, byName)
	return mounts
}

func byName(a, b mount) int { return cmp.Compare(a.name, b.name) }

func volumes(mounts []mount) []corev1.Volume {
	var out []corev1.Volume
	for _, m := range slices.SortedFunc(slices.Values(mounts), byName) {
		out = append(out, m.volume())
	}
	return out
}

func (m mount) volume() corev1.Volume { return hostVolume(m.name, m.hostPath, &m.kind) }

func hostVolume(name, path string, kind *corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
}

// configVolume is a volume with a ConfigMap's items, or all of its keys.
func configVolume(name, configMap string, items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, Items: items,
	}}}
}

func (m mount) volumeMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: m.name, MountPath: m.path, ReadOnly: m.readOnly}
}

func (m mount) isIn(c *corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(other corev1.VolumeMount) bool { return reflect.DeepEqual(m.volumeMount(), other) })
}
