// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	stderrors "errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// etcdVolume is the volume of etcd's static Pod that holds its data.
const etcdVolume = "etcd-data"

// kubeconfigFiles returns the names of the kubeconfig files that init, join and the kubelet write.
func kubeconfigFiles() []string {
	var names []string
	for _, row := range certs.Table() {
		if row.Kubeconfig != "" {
			names = append(names, row.Kubeconfig)
		}
	}
	return append(names, "bootstrap-kubelet.conf")
}

// certificateFiles returns what a control plane has in its PKI directory, as paths without extension.
func certificateFiles() []string {
	var names []string
	for _, row := range certs.Table() {
		if row.File != "" {
			names = append(names, row.File)
		}
	}
	return append(names, certs.ServiceAccount)
}

// pluginFolders are made by the kubelet and the controller manager, from the
// innermost to the outermost. What others have put there stays.
var pluginFolders = []string{
	"/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume",
	"/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes",
}

// removeEtcdData removes the data of a member that remove-etcd-member has
// dealt with. A folder that the user chose may hold other things.
func (c *cleanup) removeEtcdData(context.Context) {
	n := c.Config
	data, err := c.Host.ReadFile(asidePath(n))
	if err != nil {
		c.did(false, ignoreForbidden(ignoreMissing(err)))
		c.warnOfEtcdData()
		return
	}
	dir, failures := etcdDataDir(data), len(c.failed)
	defer func() { c.dataLeft = len(c.failed) > failures }()
	switch {
	case !filepath.IsAbs(dir):
		c.warnf("the static Pod of etcd does not say where its data is, so they stay")
	case dir == config.DefaultEtcdDataDir:
		c.removeTree(dir)
	default:
		c.removeTree(filepath.Join(dir, "member"))
		c.removeEmpty(dir)
	}
	if wal := etcdWALDir(data); filepath.IsAbs(wal) {
		c.removeLog(wal)
	}
}

// removeLog removes the write-ahead log of an etcd that keeps it apart from its
// data, in a directory that the user chose: its files only.
func (c *cleanup) removeLog(dir string) {
	entries, err := c.Host.ReadDir(dir)
	c.did(false, ignoreForbidden(ignoreMissing(err)))
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".wal" || ext == ".tmp" {
			c.removeFile(filepath.Join(dir, e.Name()))
		}
	}
	c.removeEmpty(dir)
}

// warnOfEtcdData tells of data that nobody knows the owner of.
func (c *cleanup) warnOfEtcdData() {
	member := filepath.Join(config.DefaultEtcdDataDir, "member")
	if _, err := c.Host.Lstat(member); err == nil {
		c.warnf("%s stays: it holds data of an etcd, and no static Pod that was taken out of its cluster says that it is this node's", member)
	}
}

// etcdDataDir is where a static Pod of etcd has its data on this host.
func etcdDataDir(manifest []byte) string {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil {
		return ""
	}
	for _, v := range pod.Spec.Volumes {
		if v.Name == etcdVolume && v.HostPath != nil {
			return filepath.Clean(v.HostPath.Path)
		}
	}
	member, _ := manifests.ReadEtcd(&pod)
	return filepath.Clean(member.DataDir)
}

// removeEtcdClient removes what a join has brought for an external etcd, for it
// opens all of the cluster's data. It may be anywhere; the static Pod of the API
// server says where. What the user has put there stays.
func (c *cleanup) removeEtcdClient(context.Context) {
	pod, found := thisnode.StaticPod(c.Host, thisnode.StaticPodPath(c.Env.Config, manifests.APIServerName))
	if !found {
		return
	}
	for _, flag := range []string{"etcd-keyfile", "etcd-certfile", "etcd-cafile"} {
		path := argument(pod, flag)
		if !filepath.IsAbs(path) || strings.HasPrefix(path, c.Config.Paths.PKI+"/") {
			continue // goes with the folder
		}
		if c.Host.Made(path) {
			c.removeFile(path)
		}
		c.removeLeftovers(filepath.Dir(path), []string{filepath.Base(path)})
		for dir := filepath.Dir(path); c.Host.Made(dir); dir = filepath.Dir(dir) {
			c.removeEmpty(dir)
		}
	}
}

// removeFolders removes what the kubelet and the control plane work with.
func (c *cleanup) removeFolders(context.Context) {
	p := c.Config.Paths
	c.removeTree(p.Kubelet)
	c.removeManifests()
	if p.PKI == config.DefaultCertificatesDir {
		c.removeTree(p.PKI)
	} else {
		c.removeCertificates()
	}
	names := kubeconfigFiles()
	for _, name := range names {
		c.removeFile(filepath.Join(p.Kubernetes, name))
	}
	c.removeLeftovers(p.Kubernetes, names)
	if c.Config.Reset.CleanupTmpDir {
		c.removeTree(filepath.Join(p.Kubernetes, "tmp"))
	}
	for _, dir := range slices.Concat([]string{p.Kubernetes}, pluginFolders) {
		c.removeEmpty(dir)
	}
}

// removeManifests keeps the one that says where etcd's data are as long as they
// are there.
func (c *cleanup) removeManifests() {
	dir := c.Config.Paths.Manifests
	if !c.dataLeft {
		c.removeTree(dir)
		return
	}
	entries, err := c.Host.ReadDir(dir)
	c.did(false, err)
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); path != asidePath(c.Config) {
			c.removeFile(path)
		}
	}
}

// removeCertificates goes by name: a folder that the user chose may hold the
// certificates of others.
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

// removeLeftovers removes what runs left that were killed while they wrote one
// of these files.
func (c *cleanup) removeLeftovers(dir string, names []string) {
	entries, err := c.Host.ReadDir(dir)
	c.did(false, ignoreForbidden(ignoreMissing(err)))
	for _, e := range entries {
		if name, found := host.LeftoverOf(e.Name()); found && slices.Contains(names, name) {
			c.removeFile(filepath.Join(dir, e.Name()))
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ignoreForbidden is for a plan by a user who may not look: what such a one
// cannot see, root will.
func ignoreForbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func joined(errs []error) error { return stderrors.Join(errs...) }
