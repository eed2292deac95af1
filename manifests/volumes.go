// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

// CertificatesVolume is the name of the API server's volume with the certificates directory.
const CertificatesVolume = "k8s-certs"

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
	out := []mount{directory(CertificatesVolume, n.Paths.PKI), directory("ca-certs", systemCertDir)}
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
		held := func(m mount) bool { return Within(m.hostPath, dir) }
		if !slices.ContainsFunc(mounts, held) && !slices.ContainsFunc(out, held) {
			out = append(out, directory(fmt.Sprintf("etcd-certs-%d", len(out)), dir))
		}
	}
	return out
}

// Within reports whether a file is dir or in it.
func Within(dir, file string) bool {
	rest, found := strings.CutPrefix(path.Clean(file), strings.TrimSuffix(path.Clean(dir), "/"))
	return found && (rest == "" || rest[0] == '/')
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
	sort.SliceStable(mounts, func(i, j int) bool { return mounts[i].name < mounts[j].name })
	return mounts
}

func volumes(mounts []mount) []corev1.Volume {
	var out []corev1.Volume
	for _, m := range mounts {
		out = append(out, m.volume())
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
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

// HostView has everything a static Pod depends on beyond the configuration.
type HostView struct {
	// CertDirs lists the directories from CertDirs() that exist on the host.
	CertDirs []string
	// ExternalCA reports that the cluster's CA is on the host without its key, so that the controller manager can't sign.
	ExternalCA bool
	// SeveralCAs reports that the cluster's CA file holds others, too, so that the controller manager signs with SignerFile.
	SeveralCAs bool
	ProxyEnv   []corev1.EnvVar // the result of ProxyEnv() for the host's environment
	// Users are the accounts of a rootless control plane; nil if it runs as root. See Rootless.
	Users *Users
}

// SignerFile is below the directory of certificates.
const SignerFile = "ca-signer.crt"

// CertDirs returns distributions' directories for CA certificates, besides /etc/ssl/certs. Links there can point into them, so a
// container that trusts the host's CAs needs each that exists.
func CertDirs() []string {
	return []string{
		"/etc/ca-certificates",
		"/etc/pki/ca-trust",
		"/etc/pki/tls/certs",
		"/usr/local/share/ca-certificates",
		"/usr/share/ca-certificates",
	}
}

// FromPod returns v with the host's facts from a static Pod with a container: the proxies, the directories of CA certificates, and
// whether the key of the cluster's CA was there. They may have changed since.
func (v HostView) FromPod(pod *corev1.Pod) HostView {
	c := &pod.Spec.Containers[0]
	var environ []string
	for _, e := range c.Env {
		environ = append(environ, e.Name+"="+e.Value)
	}
	v.ProxyEnv = ProxyEnv(environ)
	v.CertDirs = slices.DeleteFunc(CertDirs(), func(dir string) bool {
		return !directory(certVolume(dir), dir).isIn(c)
	})
	v.ExternalCA = slices.Contains(c.Command, "--cluster-signing-key-file=")
	v.SeveralCAs = path.Base(FlagOf(pod, "cluster-signing-cert-file")) == SignerFile
	return v
}

// ProxyEnv returns the nonempty proxy variables in environ (NAME=VALUE, as from os.Environ), which end in _proxy, in any case.
func ProxyEnv(environ []string) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && strings.HasSuffix(strings.ToLower(name), "_proxy") {
			out = append(out, corev1.EnvVar{Name: name, Value: value})
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
