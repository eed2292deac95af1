// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path"
	"slices"
	"strings"
)

// Directories etcd mustn't use, because they belong to the system or to other programs: etcd's data directory is made private,
// and emptied by reset. See the Filesystem Hierarchy Standard.
var (
	systemTrees = []string{"/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr"}
	sharedDirs  = []string{
		"/", "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var",
		"/etc/cni", "/etc/kubernetes", "/etc/kubernetes/manifests", "/etc/kubernetes/pki", "/etc/ssh", "/etc/ssl", "/etc/systemd",
		"/var/backups", "/var/cache", "/var/lib", "/var/lib/cni", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker",
		"/var/lib/kubelet", "/var/lock", "/var/log", "/var/mail", "/var/opt", "/var/run", "/var/spool", "/var/tmp",
	}
)

// checkOwn refuses a directory etcd would share with others.
func (d *documents) checkOwn(field, dir string) {
	clean := path.Clean(dir)
	inTree := slices.ContainsFunc(systemTrees, func(t string) bool { return clean == t || strings.HasPrefix(clean, t+"/") })
	if path.IsAbs(dir) && (inTree || slices.Contains(sharedDirs, clean)) {
		d.faultf(kindCluster, field, "%q belongs to the system or to other programs; use a directory of its own, such as %s", printable(dir), DefaultEtcdDataDir)
	}
}
