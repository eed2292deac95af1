// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

// standIn imitates another project's package, as far as Slipway's package depends on it.
type standIn struct {
	name, version string
	// files maps paths to texts. Files below /etc, and those in conffiles, belong to the administrator.
	files     map[string]string
	conffiles []string
	depends   []string
	provides  []string
	replaces  []string // packages that are removed in its favor
	preinst   string   // a script that runs before the package is unpacked
}

const (
	dropIn      = "systemd/system/kubelet.service.d/10-kubeadm.conf"
	ourDropIn   = "/usr/lib/" + dropIn
	theirDropIn = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS\n"
)

// kubeadm imitates Kubernetes' package, with the drop-in below a directory.
func kubeadm(below string) standIn {
	return standIn{name: "kubeadm", version: "1.37.0", files: map[string]string{
		"/usr/bin/kubeadm":   "#!/bin/sh\necho kubeadm\n",
		below + "/" + dropIn: theirDropIn,
	}}
}

// kubelet has the unit, and the distribution's file for administrators.
func kubelet(environment string) standIn {
	return standIn{name: "kubelet", version: "1.37.0", files: map[string]string{
		"/usr/bin/kubelet":                        "#!/bin/sh\n",
		"/usr/lib/systemd/system/kubelet.service": "[Unit]\nDescription=kubelet\n\n[Service]\nExecStart=/usr/bin/kubelet\n\n[Install]\nWantedBy=multi-user.target\n",
		environment:                               "KUBELET_EXTRA_ARGS=\n",
	}}
}

// pack makes the package, and returns its path.
func (s standIn) pack(t *testing.T, format string) string {
	t.Helper()
	dir := t.TempDir()
	info := &nfpm.Info{Name: s.name, Arch: runtime.GOARCH, Version: s.version, VersionSchema: "none", Release: "1.1",
		Maintainer: "Nobody <nobody@example.org>", Description: "stand-in for " + s.name}
	info.Depends, info.Provides, info.Conflicts, info.Replaces = s.depends, s.provides, s.replaces, s.replaces
	if s.preinst != "" {
		info.Scripts.PreInstall = filepath.Join(dir, "preinst")
		must(t, os.WriteFile(info.Scripts.PreInstall, []byte(s.preinst), 0o755))
	}
	for path, text := range s.files {
		source := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		must(t, os.WriteFile(source, []byte(text), 0o644))
		content := &files.Content{Source: source, Destination: path, FileInfo: &files.ContentFileInfo{Mode: 0o644}}
		if strings.HasPrefix(path, "/usr/bin/") {
			content.FileInfo.Mode = 0o755
		}
		if strings.HasPrefix(path, "/etc/") || slices.Contains(s.conffiles, path) {
			content.Type = files.TypeConfigNoReplace
		}
		info.Contents = append(info.Contents, content)
	}
	path, err := writePackage(info, format, dir)
	must(t, err)
	return path
}
