// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
// container that trusts the host's CAs needs each one that exists.
func CertDirs() []string {
	return []string{
		"/etc/ca-certificates",
		"/etc/pki/ca-trust",
		"/etc/pki/tls/certs",
		"/usr/local/share/ca-certificates",
		"/usr/share/ca-certificates",
	}
}

// AsIn returns v with the host's facts from a static Pod with a container: the proxies, the directories of CA certificates, and
// whether the key of the cluster's CA was there. They may have changed since.
func (v HostView) AsIn(pod *corev1.Pod) HostView {
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
	v.SeveralCAs = slices.ContainsFunc(c.Command, func(arg string) bool {
		return strings.HasPrefix(arg, "--cluster-signing-cert-file=") && strings.HasSuffix(arg, "/"+SignerFile)
	})
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
	slices.SortFunc(out, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return out
}
