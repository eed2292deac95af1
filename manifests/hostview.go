// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// HostView is what a static Pod depends on beyond the configuration.
type HostView struct {
	// CertDirs are those of CertDirs() that are folders on the host.
	CertDirs []string
	// ExternalCA tells that the cluster's CA is there without its key, so
	// that the controller manager cannot sign.
	ExternalCA bool
	// ProxyEnv is what ProxyEnv() finds in the host's environment.
	ProxyEnv []corev1.EnvVar
	// Users are the accounts of a rootless control plane, nil where the
	// control plane runs as root. See Rootless.
	Users *Users
}

// CertDirs lists the folders in which distributions keep CA certificates,
// besides /etc/ssl/certs. Some are what links in /etc/ssl/certs point into, so
// each that exists must be there in a container that trusts the host's CAs.
func CertDirs() []string {
	return []string{
		"/etc/ca-certificates",
		"/etc/pki/ca-trust",
		"/etc/pki/tls/certs",
		"/usr/local/share/ca-certificates",
		"/usr/share/ca-certificates",
	}
}

// ProxyEnv picks from environ (NAME=VALUE, as os.Environ has it) the variables
// that name proxies and are not empty: those that end in _proxy in any case.
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
