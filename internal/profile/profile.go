// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package profile has the hardening profiles as data: flags of the control plane's components, fields of the
// KubeletConfiguration, and the files those flags name. Of returns a profile by name; table.go lists the settings.
// internal/config adds them to a configuration; docs/hardening.md explains them.
package profile

import (
	_ "embed"
	"path"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// The profiles' names. Each includes the one before.
const (
	Audit     = "audit"
	CIS       = "cis"
	CISStrict = "cis-strict"
)

// Names lists the profiles.
func Names() []string { return []string{Audit, CIS, CISStrict} }

// Profile is a set of settings.
type Profile struct {
	Settings []Setting
	Fields   []Field
}

// Setting is a component's command line flag.
type Setting struct {
	Component, Name, Value string
	// InCertificatesDir is set for a value that's the name of a file in the cluster's directory of certificates.
	InCertificatesDir bool
	// Against lists flags that the component refuses beside this one.
	Against []string
	// With is a flag of an earlier setting: the component starts with this one only if that has the profile's value.
	With string
	// Mount is the directory of the host that the value is in; zero for other values.
	Mount Mount
}

// Mount is a directory of the host, which the component finds at the same path.
type Mount struct {
	Name, Dir string
	ReadOnly  bool
}

// Field is a field of the KubeletConfiguration.
type Field struct {
	Path string
	Set  func(k *kubelet.KubeletConfiguration)
}

// The directories on a control plane's host.
var (
	auditMount     = Mount{"audit-policy", "/etc/kubernetes/audit", true}
	logMount       = Mount{"audit-log", "/var/log/kubernetes/audit", false}
	hardeningMount = Mount{"hardening", "/etc/kubernetes/hardening", true}
)

// LogMount is the directory of audit logs.
func LogMount() Mount { return logMount }

// KubeletAuthorityFlag makes API servers verify kubelets' serving certificates.
const KubeletAuthorityFlag = "kubelet-certificate-authority"

// AuditLogFlag is the flag whose value is in LogMount.
const AuditLogFlag = "audit-log-path"

// File is a file that the API server reads.
type File struct {
	Flag  string // whose value is Path
	Mount Mount
	Path  string
	Data  []byte
}

var (
	//go:embed files/audit.yaml
	auditPolicy string
	//go:embed files/authentication.yaml
	authentication string
	//go:embed files/admission.yaml
	admission string
)

// Files lists the files of all profiles.
func Files() []File {
	file := func(flag string, m Mount, name, data string) File {
		return File{Flag: flag, Mount: m, Path: path.Join(m.Dir, name), Data: []byte(data)}
	}
	return []File{
		file("audit-policy-file", auditMount, "audit.yaml", auditPolicy),
		file("authentication-config", hardeningMount, "authentication.yaml", authentication),
		file("admission-control-config-file", hardeningMount, "admission.yaml", admission),
	}
}

// LogFile is the current audit log. The API server keeps rotated ones beside it.
func LogFile() string { return path.Join(logMount.Dir, "audit.log") }
