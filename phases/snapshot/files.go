// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// collection gathers the files with which a bare host can take this control plane's place.
type collection struct {
	env    *step.Env
	files  map[string]snapshots.File
	ofHost map[string]bool
	size   int
	// missed says for which files there was no room, or which couldn't be read; more is how many others there are.
	missed []string
	more   int
	// full is true once there's no room for another file.
	full bool
}

const (
	maxFiles  = 10_000
	maxMissed = 100
)

// filesHere returns this control plane's files: everything in /etc/kubernetes but the backups of upgrades, the kubelet's settings,
// and whatever else the static Pods take from this host.
func filesHere(env *step.Env) (files []snapshots.File, missed []string) {
	paths := env.Config.Paths
	c := &collection{env: env, files: map[string]snapshots.File{}, ofHost: map[string]bool{}}
	c.markOfHost()
	for _, dir := range []string{paths.Kubernetes, paths.PKI, paths.Kubeconfigs, paths.Manifests} {
		c.tree(dir)
	}
	for _, path := range kubeletFiles(env) {
		c.file(path)
	}
	pods, _ := host.VisibleFiles(env.Host, paths.Manifests) // tree has noted the error
	for _, path := range pods {
		if pod, found := thisnode.StaticPod(env.Host, path); found {
			c.pod(pod)
		}
	}
	for _, f := range c.files {
		files = append(files, f)
	}
	slices.SortStableFunc(files, func(a, b snapshots.File) int { return strings.Compare(a.Path, b.Path) })
	if c.more > 0 {
		c.missed = append(c.missed, fmt.Sprintf("%d others", c.more))
	}
	return files, c.missed
}

// kubeletFiles are files with the settings of this host's kubelet, and its certificate: without the CA's key, nobody could issue it
// again.
func kubeletFiles(env *step.Env) []string {
	paths := env.Config.Paths
	return []string{
		paths.KubeletConfig(), paths.InstanceConfig(), paths.KubeletFlags(),
		"/etc/default/kubelet", "/etc/sysconfig/kubelet", thisnode.KubeletClientPEM(env.Host, env.Settings()),
	}
}

// markOfHost marks the files that every control plane has its own of.
func (c *collection) markOfHost() {
	paths := c.env.Config.Paths
	for _, path := range kubeletFiles(c.env) {
		c.ofHost[path] = true
	}
	for _, component := range manifests.Components(c.env.Config) {
		c.ofHost[c.env.Config.Paths.StaticPod(component)] = true
	}
	for _, row := range certs.Table() {
		switch {
		case row.Kubeconfig != "":
			c.ofHost[filepath.Join(paths.Kubeconfigs, row.Kubeconfig)] = true
		case !row.IsCA():
			c.ofHost[filepath.Join(paths.PKI, row.CertFile())] = true
			c.ofHost[filepath.Join(paths.PKI, row.KeyFile())] = true
		}
	}
}

// outputs are flags that name files a component writes.
var outputs = []string{"audit-log-path", "data-dir", "log-file", "wal-dir"}

// pod adds the files that a static Pod takes from this host: files named by its flags, volumes that are a file, and directories
// it only reads.
func (c *collection) pod(pod *corev1.Pod) {
	for _, f := range manifests.PodFlags(pod) {
		if path, found := thisnode.OnHost(pod, f.Value); found && filepath.IsAbs(f.Value) && !slices.Contains(outputs, f.Name) {
			if info, err := c.env.Host.Stat(path); err == nil && info.Mode().IsRegular() {
				c.file(path)
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		switch info, err := c.env.Host.Stat(v.HostPath.Path); {
		case err != nil:
		case info.Mode().IsRegular():
			c.file(v.HostPath.Path)
		case onlyRead(pod, v.Name):
			c.tree(v.HostPath.Path)
		}
	}
}

// onlyRead reports whether no container of a Pod may write to a volume.
func onlyRead(pod *corev1.Pod, volume string) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume && !m.ReadOnly }) {
			return false
		}
	}
	return true
}

// skipped reports whether a directory's content belongs to the operating system, or is a backup itself.
func (c *collection) skipped(dir string) bool {
	others := append(manifests.CertDirs(), "/etc/ssl/certs", "/etc/pki", "/proc", "/sys", "/dev", "/run", "/var/run", node.BackupRoot(c.env))
	return slices.ContainsFunc(others, func(other string) bool { return dir == other || strings.HasPrefix(dir, other+"/") })
}

// tree adds all regular files below a directory, and links to files.
func (c *collection) tree(dir string) {
	if c.skipped(dir) {
		return
	}
	entries, err := c.env.Host.ReadDir(dir)
	c.miss(dir, host.IgnoreMissing(err))
	for _, e := range entries {
		if c.full {
			c.miss(dir, errNoRoom)
			return
		}
		path := filepath.Join(dir, e.Name())
		_, leftover := host.LeftoverOf(e.Name())
		switch {
		case e.IsDir():
			c.tree(path)
		case !leftover && e.Type()&^fs.ModeSymlink == 0:
			c.file(path)
		}
	}
}

func (c *collection) miss(path string, err error) {
	if err == nil {
		return
	}
	switch text := path + ": " + err.Error(); {
	case slices.Contains(c.missed, text):
	case len(c.missed) == maxMissed:
		c.more++
	default:
		c.missed = append(c.missed, text)
	}
}

var errNoRoom = fmt.Errorf("there is room for %d files of %d MiB together", maxFiles, snapshots.MaxFiles>>20)

// file adds a file, or the target of a link. A missing one isn't needed.
func (c *collection) file(path string) {
	if _, done := c.files[path]; done || c.skipped(filepath.Dir(path)) {
		return
	}
	info, err := c.env.Host.Stat(path)
	switch {
	case err != nil:
		c.miss(path, host.IgnoreMissing(err))
		return
	case !info.Mode().IsRegular():
		c.miss(path, errors.New("it is a link to a directory, or to no file"))
		return
	case info.Size() > snapshots.MaxFile:
		c.miss(path, fmt.Errorf("it has %d bytes, and a file may have %d MiB", info.Size(), snapshots.MaxFile>>20))
		return
	case len(c.files) == maxFiles || c.size+int(info.Size()) > snapshots.MaxFiles:
		c.full = true
		c.miss(path, errNoRoom)
		return
	}
	data, err := c.env.Host.ReadFile(path)
	if err != nil {
		c.miss(path, err)
		return
	}
	owner, _ := host.OwnerIn(info)
	c.size += len(data)
	c.files[path] = snapshots.File{Path: path, Mode: info.Mode().Perm(), Owner: owner, OfHost: c.ofHost[path], Data: data}
}
