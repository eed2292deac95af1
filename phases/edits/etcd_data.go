// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"cmp"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// directoryFlags say where etcd keeps its data.
var directoryFlags = []string{"config-file", "data-dir", "wal-dir"}

// moved says which directories with etcd's data the upgrade would change. A directory there may have an older copy of the same member,
// with which etcd starts as if nothing had happened.
func (c *comparison) moved() (list []string) {
	if c.component != manifests.EtcdName {
		return nil
	}
	data, log := etcdDirs(c.mine)
	nextData, nextLog := etcdDirs(c.wanted)
	if nextData != data {
		list = append(list, nextData+" instead of "+data)
	}
	rest, below := strings.CutPrefix(log, data)
	if nextLog != log && (!below || nextLog != nextData+rest) {
		list = append(list, nextLog+" instead of "+log)
	}
	return list
}

// etcdDirs returns where a static Pod's etcd keeps its data and its write-ahead log: on this host, unless it says otherwise.
func etcdDirs(pod *corev1.Pod) (data, log string) {
	member, _ := manifests.ReadEtcd(pod)
	if member.ConfigFile != "" { // then etcd ignores its flags
		named := "the directory that --config-file=" + member.ConfigFile + " names"
		return named, named
	}
	at := func(dir string) string {
		if onHost, found := thisnode.OnHost(pod, dir); found {
			return onHost
		}
		return cmp.Or(dir, "etcd's default directory") + " in its container"
	}
	return at(member.DataDir), at(logIn(member))
}

func logIn(member manifests.LocalMember) string {
	return cmp.Or(member.WALDir, path.Join(member.DataDir, thisnode.EtcdMemberDir, "wal"))
}

// restoreDirs gives etcd in a Pod the flags, variables, mounts and volumes for its data that it has in another, was.
func restoreDirs(pod, was *corev1.Pod) {
	c, from := &pod.Spec.Containers[0], &was.Spec.Containers[0]
	hasData := dataMounts(pod, was)
	var volumes []string
	for _, m := range slices.Concat(c.VolumeMounts, from.VolumeMounts) {
		if hasData(m) {
			volumes = append(volumes, m.Name)
		}
	}
	pod.Spec.Volumes = replaced(pod.Spec.Volumes, was.Spec.Volumes, func(v corev1.Volume) bool { return slices.Contains(volumes, v.Name) })
	c.VolumeMounts = replaced(c.VolumeMounts, from.VolumeMounts, hasData)
	c.Env = replaced(c.Env, from.Env, func(e corev1.EnvVar) bool {
		return slices.ContainsFunc(directoryFlags, func(flag string) bool { return manifests.EtcdVariable(flag) == e.Name })
	})
	words := directoryWords(slices.Concat(c.Command, from.Command))
	c.Command = replaced(c.Command, from.Command, func(word string) bool { return slices.Contains(words, word) })
}

// dataMounts recognizes mounts with the data of etcd in any of these Pods.
func dataMounts(pods ...*corev1.Pod) func(corev1.VolumeMount) bool {
	var dirs []string
	for _, pod := range pods {
		member, _ := manifests.ReadEtcd(pod)
		dirs = append(dirs, member.DataDir, logIn(member))
	}
	return func(m corev1.VolumeMount) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return manifests.Within(m.MountPath, dir) })
	}
}

// directoryWords returns the words of a command line that say where etcd keeps its data.
func directoryWords(command []string) (words []string) {
	for _, f := range manifests.FlagsOf(command) {
		if slices.Contains(directoryFlags, f.Name) {
			words = append(words, f.Words...)
		}
	}
	return words
}

// replaced returns a list with another's matching items in place of its own.
func replaced[T any](list, others []T, matches func(T) bool) []T {
	kept := slices.DeleteFunc(slices.Clone(list), matches)
	at := slices.IndexFunc(list, matches)
	if at < 0 {
		at = len(kept)
	}
	return slices.Insert(kept, at, slices.DeleteFunc(slices.Clone(others), func(item T) bool { return !matches(item) })...)
}

// movedFinding is an error that no flag ignores.
func (p protection) movedFinding(run, component string) fault.Finding {
	f := fault.NewFinding(fault.StaticPodProtection, fault.Error,
		"if all control planes have their data there, set etcd.local.dataDir in the ClusterConfiguration to it (`kubectl -n kube-system edit "+
			"configmap kubeadm-config`); otherwise keep it in a patch (--patches), which `slipway upgrade plan` prints; "+
			"to use another directory, move the data there, change the static Pod, and see that etcd works",
		"%s would start %s without its data, in another directory than its static Pod names: %s", run, component, strings.Join(p.moved, ", "))
	f.Final = true
	return f
}
