// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// etcdVolume is the data volume of etcd's static Pod.
const etcdVolume = "etcd-data"

// EtcdDataDir returns the directory on this host where a static Pod of etcd keeps its data; empty if the manifest is broken.
func EtcdDataDir(manifest []byte) string {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil {
		return ""
	}
	return etcdDataDirOf(&pod)
}

func etcdDataDirOf(pod *corev1.Pod) string {
	member, _ := manifests.ReadEtcd(pod)
	if dir, mounted := thisnode.OnHost(pod, member.DataDir); mounted && filepath.IsAbs(member.DataDir) {
		return dir
	}
	for _, v := range pod.Spec.Volumes {
		if v.Name == etcdVolume && v.HostPath != nil {
			return filepath.Clean(v.HostPath.Path)
		}
	}
	return filepath.Clean(member.DataDir)
}

// EtcdData identifies the data of an etcd on this host.
type EtcdData struct {
	// Log is the directory of its write-ahead log; empty if there is none.
	Log string
	etcd.Data
}

// Foreign is the error for a host whose data belongs to no member of its cluster.
func (d EtcdData) Foreign() error {
	return fault.WithRemedy(errors.Errorf("%s holds the data of member %x of etcd cluster %x, which is not this host's member", d.Log, d.Member, d.Cluster),
		"run `slipway reset` here, or move the directory away")
}

// ReadEtcdData looks for an etcd's log in all possible places. Without a log, it returns the zero EtcdData.
func ReadEtcdData(env *step.Env) (EtcdData, error) {
	_, logs, err := EtcdPlaces(env)
	if err != nil {
		return EtcdData{}, err
	}
	for _, dir := range logs {
		path, head, err := newestLog(env, dir)
		if err != nil {
			return EtcdData{}, err
		}
		if path == "" {
			continue
		}
		data, err := etcd.ReadData(head)
		return EtcdData{dir, data}, errors.Wrapf(err, "%s does not say which member of etcd it belongs to: reset this host, or move the directory away", path)
	}
	return EtcdData{}, nil
}

// OwnEtcdCluster returns the ID of the cluster that the data of this host's etcd belongs to; 0 if it has no data, or the host no
// etcd.
func OwnEtcdCluster(env *step.Env) (uint64, error) {
	data, err := OwnEtcdData(env)
	return data.Cluster, err
}

// OwnEtcdData identifies the data of this host's etcd; the zero Data if it has none, or the host no etcd. A workflow that was
// interrupted has removed the static Pod, but not its journal.
func OwnEtcdData(env *step.Env) (etcd.Data, error) {
	pod, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.EtcdName))
	if err != nil {
		return etcd.Data{}, err
	}
	if pod == nil {
		j, err := ReadEtcdJournal(env)
		if err != nil || j.Manifest == "" {
			return etcd.Data{}, err
		}
		pod = []byte(j.Manifest)
	}
	dir := EtcdWALDir(pod)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(EtcdDataDir(pod), thisnode.EtcdMemberDir, "wal")
	}
	path, head, err := newestLog(env, dir)
	if err != nil || path == "" {
		return etcd.Data{}, err
	}
	data, err := etcd.ReadData(head)
	return data, errors.WithMessage(err, path)
}

// newestLog returns the path and the beginning of the last log file in dir; empty if there is none. Each file says whose log it
// is.
func newestLog(env *step.Env, dir string) (path string, head []byte, err error) {
	entries, err := env.Host.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	for _, e := range entries { // sorted
		if strings.HasSuffix(e.Name(), ".wal") {
			path = filepath.Join(dir, e.Name())
		}
	}
	if path == "" {
		return "", nil, nil
	}
	head, err = host.ReadHead(env.Host, path, etcd.DataHead)
	return path, head, err
}

// EtcdPlaces returns the directories used by nothing but an etcd on this host, and the places where its log may be: for the
// static Pod that this run would write, with its patches, and for the present Pod.
func EtcdPlaces(env *step.Env) (trees, logs []string, err error) {
	have, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.EtcdName))
	if err != nil {
		return nil, nil, err
	}
	pods := [][]byte{have}
	if env.Config.Cluster.Etcd.Local != nil { // a reset only looks at the present Pod
		view, err := HostView(env)
		if err != nil {
			return nil, nil, err
		}
		wanted, err := StaticPodYAML(env, manifests.EtcdName, view, nil)
		if err != nil {
			return nil, nil, err
		}
		pods = [][]byte{wanted, have}
	}
	for _, pod := range pods {
		if dir := EtcdWALDir(pod); filepath.IsAbs(dir) {
			trees, logs = append(trees, dir), append(logs, dir)
		}
	}
	for _, pod := range pods {
		if dir := EtcdDataDir(pod); filepath.IsAbs(dir) {
			trees, logs = append(trees, filepath.Join(dir, thisnode.EtcdMemberDir)), append(logs, filepath.Join(dir, thisnode.EtcdMemberDir, "wal"))
		}
	}
	return trees, logs, nil
}

// EtcdWALDir returns the host directory of etcd's log if its static Pod has --wal-dir: a patch can mount it from another disk.
func EtcdWALDir(manifest []byte) string {
	pod, err := manifests.DecodePod(manifest)
	if err != nil {
		return ""
	}
	member, _ := manifests.ReadEtcd(pod)
	return thisnode.OnHostOr(pod, member.WALDir)
}

// OwnIdentity identifies this host's member of etcd; the zero Identity without etcd's static Pod. err says why its log couldn't be
// read, if it couldn't: then its peer URLs identify it.
func OwnIdentity(env *step.Env) (etcd.Identity, error) {
	own, found := thisnode.EtcdMember(env.Host, env.Config.Paths)
	if !found {
		return etcd.Identity{}, nil
	}
	return identityOf(env, own)
}

// identityOf identifies a member with these flags and the data on this host.
func identityOf(env *step.Env, own manifests.LocalMember) (etcd.Identity, error) {
	data, err := OwnEtcdData(env)
	return etcd.Identity{PeerURLs: own.PeerURLs(), Name: own.Name, Data: data}, err
}

// OwnMember returns the position of this host's member among etcd's; -1 if it's none of them. If its log couldn't be read, and its
// peer URLs aren't among theirs either, err says why.
func OwnMember(env *step.Env, members []etcd.Member) (position int, err error) {
	id, err := OwnIdentity(env)
	if position = id.Find(members); position >= 0 {
		err = nil
	}
	return position, err
}

// OwnPeerURL returns the peer URL of this host's member in etcd, or the static Pod's if etcd lists no such member.
func OwnPeerURL(env *step.Env, members []etcd.Member) string {
	if i, _ := OwnMember(env, members); i >= 0 {
		return members[i].PeerURL
	}
	own, _ := thisnode.EtcdMember(env.Host, env.Config.Paths)
	return own.PeerURL
}
