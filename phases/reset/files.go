// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"bytes"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
)

// kubeconfigFiles are the names of the kubeconfig files that init, join and the kubelet write.
func kubeconfigFiles() []string {
	var names []string
	for _, row := range certs.Table() {
		if row.Kubeconfig != "" {
			names = append(names, row.Kubeconfig)
		}
	}
	return append(names, "bootstrap-kubelet.conf")
}

// certificateFiles are a control plane's files in its PKI directory, as paths without extension.
func certificateFiles() []string {
	var names []string
	for _, row := range certs.Table() {
		if row.File != "" {
			names = append(names, row.File)
		}
	}
	return append(names, certs.ServiceAccount, strings.TrimSuffix(manifests.SignerFile, ".crt"))
}

// pluginDirectories, the innermost first, are made by the kubelet and the controller manager. Other files in them stay.
var pluginDirectories = []string{
	"/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume",
	"/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes",
}

// removeEtcdData removes a member's data once remove-etcd-member has handled it. A directory the user chose may hold other files.
func (c *cleanup) removeEtcdData(context.Context) {
	n := c.Config
	c.removeFile(node.EtcdJournalPath(n.Paths))
	c.removeFile(node.MoveJournalPath(n.Paths)) // the next node here isn't at these addresses
	data, err := c.Host.ReadFile(asidePath(n))
	if err != nil {
		c.record(false, host.IgnoreForbidden(host.IgnoreMissing(err)))
		c.warnOfEtcdData()
		return
	}
	dir, failures := node.EtcdDataDir(data), len(c.failed)
	defer func() { c.dataLeft = len(c.failed) > failures }()
	switch {
	case !filepath.IsAbs(dir):
		c.warnf("the static Pod of etcd does not say where its data is, so the data stays")
	case dir == config.DefaultEtcdDataDir:
		c.removeAllButOldData(dir)
	default:
		c.removeTree(filepath.Join(dir, thisnode.EtcdMemberDir))
		c.removeEmpty(dir)
	}
	if wal := node.EtcdWALDir(data); filepath.IsAbs(wal) {
		c.removeLog(wal)
	}
}

// removeAllButOldData empties etcd's own directory. Data that a restore, a recovery or a rollback has set aside stays, unless backups
// go, too: it may be the only copy of the last changes.
func (c *cleanup) removeAllButOldData(dir string) {
	isOld := func(name string) bool {
		at, _ := thisnode.ParseOldEtcdData(name)
		return !at.IsZero()
	}
	names := c.entries(dir)
	if c.Config.Reset.Backups || !slices.ContainsFunc(names, isOld) {
		c.removeTree(dir)
		return
	}
	for _, name := range slices.DeleteFunc(names, isOld) {
		path := filepath.Join(dir, name)
		if info, err := c.Host.Lstat(path); err == nil && info.IsDir() {
			c.removeTree(path)
		} else {
			c.removeFile(path)
		}
	}
}

// removeLog removes only the files of a write-ahead log kept apart from etcd's data, in a directory the user chose.
func (c *cleanup) removeLog(dir string) {
	for _, name := range c.entries(dir) {
		if ext := filepath.Ext(name); ext == ".wal" || ext == ".tmp" {
			c.removeFile(filepath.Join(dir, name))
		}
	}
	c.removeEmpty(dir)
}

// warnOfEtcdData warns of data whose owner is unknown.
func (c *cleanup) warnOfEtcdData() {
	member := filepath.Join(config.DefaultEtcdDataDir, thisnode.EtcdMemberDir)
	if _, err := c.Host.Lstat(member); err == nil {
		c.warnf("%s stays: it holds etcd data, and nothing shows that it is this node's: no static Pod was set aside when the member left", member)
	}
}

// removeEtcdClient removes an external etcd's client files brought by a join, because they give access to all of the cluster's
// data. They may be anywhere; the API server's static Pod has their paths. Files the user put there stay.
func (c *cleanup) removeEtcdClient(context.Context) {
	pod, found := thisnode.StaticPod(c.Host, c.Config.Paths.StaticPod(manifests.APIServerName))
	if !found {
		return
	}
	for _, flag := range []string{"etcd-keyfile", "etcd-certfile", "etcd-cafile"} {
		path := manifests.FlagOf(pod, flag)
		if !filepath.IsAbs(path) || strings.HasPrefix(path, c.Config.Paths.PKI+"/") {
			continue // goes with the directory
		}
		if c.Host.CreatedBySlipway(path) {
			c.removeFile(path)
		}
		c.removeLeftovers(filepath.Dir(path), []string{filepath.Base(path)})
		for dir := filepath.Dir(path); c.Host.CreatedBySlipway(dir); dir = filepath.Dir(dir) {
			c.removeEmpty(dir)
		}
	}
}

func (c *cleanup) removeDirectories(context.Context) {
	p, used := c.Config.Paths, thisnode.CertificatesDir(c.Host)
	c.removeTree(p.Kubelet)
	c.removeManifests()
	if p.PKI == config.DefaultCertificatesDir {
		c.removeTree(p.PKI)
		if used != p.PKI {
			c.warnf("the API server's certificates in %s stay; `slipway reset --cert-dir %s` removes them, too", used, used)
		}
	} else {
		c.removeCertificates()
	}
	names := kubeconfigFiles()
	for _, name := range names {
		c.removeFile(filepath.Join(p.Kubernetes, name))
	}
	c.removeLeftovers(p.Kubernetes, names)
	c.removeProfileFiles()
	c.keepEncryptionKeys()
	if c.Config.Reset.CleanupTmpDir && !c.dataLeft { // the record of a rollback there says where etcd's data was set aside
		c.removeTree(node.BackupRoot(c.Env))
	}
	c.endRollback()
	for _, dir := range slices.Concat([]string{node.BackupRoot(c.Env), p.Kubernetes}, pluginDirectories) {
		c.removeEmpty(dir)
	}
}

func (c *cleanup) removeAccounts(context.Context) {
	c.record(c.Accounts().RemoveUsers())
	c.record(c.Accounts().RemoveGroups())
}

// removeManifests keeps the static Pod that says where etcd's data is, as long as the data is there.
func (c *cleanup) removeManifests() {
	dir := c.Config.Paths.Manifests
	if !c.dataLeft {
		c.removeTree(dir)
		return
	}
	for _, name := range c.entries(dir) {
		if path := filepath.Join(dir, name); path != asidePath(c.Config) {
			c.removeFile(path)
		}
	}
}

// removeCertificates removes files by name: a directory the user chose may hold other certificates.
func (c *cleanup) removeCertificates() {
	pki := c.Config.Paths.PKI
	names := map[string][]string{}
	for _, file := range certificateFiles() {
		for _, ext := range []string{".crt", ".key", ".pub"} {
			path := filepath.Join(pki, file+ext)
			c.removeFile(path)
			names[filepath.Dir(path)] = append(names[filepath.Dir(path)], filepath.Base(path))
		}
	}
	for _, dir := range []string{filepath.Join(pki, "etcd"), pki} {
		c.removeLeftovers(dir, names[dir])
		c.removeEmpty(dir)
	}
}

// removeLeftovers removes the temporary files of a run that was killed while writing any of these.
func (c *cleanup) removeLeftovers(dir string, names []string) {
	for _, entry := range c.entries(dir) {
		if name, found := host.LeftoverOf(entry); found && slices.Contains(names, name) {
			c.removeFile(filepath.Join(dir, entry))
		}
	}
}

// removeProfileFiles removes the files of profiles that nobody has edited. Audit logs are the operator's.
func (c *cleanup) removeProfileFiles() {
	names := map[string][]string{}
	for _, f := range profile.Files() {
		names[f.Mount.Dir] = append(names[f.Mount.Dir], filepath.Base(f.Path))
		have, err := host.ReadIfExists(c.Host, f.Path)
		switch {
		case err != nil:
			c.record(false, host.IgnoreForbidden(err))
		case have == nil:
		case bytes.Equal(have, f.Data) || c.Host.Unchanged(f.Path):
			c.removeFile(f.Path)
		default:
			c.warnf("%s stays: it isn't as a profile made it", f.Path)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(names)) {
		c.removeLeftovers(dir, names[dir])
		c.removeEmpty(dir)
	}
	logs := profile.LogMount().Dir
	c.removeEmpty(logs)
	if len(c.entries(logs)) > 0 {
		c.UI.Printf("%s stays: it has the audit logs of this node's API server", logs)
	}
}
