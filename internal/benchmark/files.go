// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// paths finds the files of an item. why says why they can't be known.
type paths func(*observation) (list []string, why string)

func fixed(path string) paths {
	return func(*observation) ([]string, string) { return []string{path}, "" }
}

func manifest(component string) paths {
	return func(o *observation) ([]string, string) { return []string{o.manifest(component)}, "" }
}

func kubeconfigs(names ...string) paths {
	return func(o *observation) (list []string, _ string) {
		for _, name := range names {
			list = append(list, filepath.Join(o.machine.Paths.Kubeconfigs, name))
		}
		return list, ""
	}
}

// onHost finds the path in a component's flag, on the host.
func onHost(component, flag string) paths {
	return func(o *observation) ([]string, string) {
		f, known := o.flagsOf(component)
		path, mounted := "", false
		if known && f.last(flag) != "" {
			path, mounted = thisnode.OnHost(o.pods[component], f.last(flag))
		}
		if !mounted {
			return nil, "cannot tell the path of --" + flag + " from " + o.manifest(component)
		}
		return []string{path}, ""
	}
}

// describe calls do for each file that exists, and wants at least one. do returns what's wrong with it.
func (o *observation) describe(find paths, do func(path string, info fs.FileInfo) (found string, ok bool)) answer {
	list, why := find(o)
	if why != "" {
		return unknown(why)
	}
	var all, wrong []string
	for _, path := range list {
		info, err := o.host.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return unknown(err.Error())
		}
		found, ok := do(path, info)
		all = append(all, found)
		if !ok {
			wrong = append(wrong, path+" "+found)
		}
	}
	switch {
	case len(all) == 0:
		return unknown("none of these exists: " + strings.Join(list, ", "))
	case len(wrong) > 0:
		return answer{Fail, strings.Join(wrong, ", ")}
	}
	return answer{Pass, strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), ", ")}
}

// mode wants no more permissions than most.
func mode(id, subject string, most fs.FileMode, find paths) row {
	return row{id, subject, fmt.Sprintf("%04o or stricter", most), func(o *observation) answer {
		return o.describe(find, func(_ string, info fs.FileInfo) (string, bool) {
			return fmt.Sprintf("%04o", info.Mode().Perm()), info.Mode().Perm()&^most == 0
		})
	}}
}

// owner wants files of root or, in a rootless control plane, of the components' users.
func owner(id, subject string, rootless bool, find paths) row {
	want := "root"
	if rootless {
		want = "root, or the user of a rootless component"
	}
	return row{id, subject, want, func(o *observation) answer {
		users, groups := []int{0}, []int{0}
		if rootless {
			users, groups = o.accounts(users, groups)
		}
		return o.describe(find, func(_ string, info fs.FileInfo) (string, bool) {
			whose, known := host.OwnerIn(info)
			return fmt.Sprintf("%d:%d", whose.UID, whose.GID), known && slices.Contains(users, whose.UID) && slices.Contains(groups, whose.GID)
		})
	}}
}

// accounts adds the users and groups of the components.
func (o *observation) accounts(users, groups []int) (u, g []int) {
	for _, pod := range o.pods {
		if pod == nil || pod.Spec.SecurityContext == nil {
			continue
		}
		c := pod.Spec.SecurityContext
		users, groups = add(users, c.RunAsUser), add(add(groups, c.RunAsGroup), c.FSGroup)
		for _, gid := range c.SupplementalGroups {
			groups = append(groups, int(gid))
		}
	}
	return users, groups
}

func add(list []int, id *int64) []int {
	if id == nil {
		return list
	}
	return append(list, int(*id))
}

func controlPlaneFileRows() []row {
	const privateMode = 0o600
	var rows []row
	for i, component := range []string{apiServer, controllerManager, scheduler} {
		id := func(n int) string { return fmt.Sprintf("1.1.%d", 2*i+n) }
		rows = append(rows, mode(id(1), "manifest of "+component, privateMode, manifest(component)), owner(id(2), "manifest of "+component, false, manifest(component)))
	}
	admin := kubeconfigs("admin.conf", "super-admin.conf")
	return append(rows,
		mode("1.1.13", "admin.conf, super-admin.conf", privateMode, admin), owner("1.1.14", "admin.conf, super-admin.conf", false, admin),
		mode("1.1.15", "scheduler.conf", privateMode, kubeconfigs("scheduler.conf")), owner("1.1.16", "scheduler.conf", true, kubeconfigs("scheduler.conf")),
		mode("1.1.17", "controller-manager.conf", privateMode, kubeconfigs("controller-manager.conf")),
		owner("1.1.18", "controller-manager.conf", true, kubeconfigs("controller-manager.conf")),
		owner("1.1.19", "the cluster's certificates and keys", true, pkiFiles),
	)
}

// pkiFiles is the directory of --client-ca-file, with everything in it.
func pkiFiles(o *observation) ([]string, string) {
	ca, why := onHost(apiServer, "client-ca-file")(o)
	if why != "" {
		return nil, why
	}
	return below(o, filepath.Dir(ca[0]), false)
}

// below lists a directory with everything in it. linked says that a link has led there: a second one might lead back.
func below(o *observation, dir string, linked bool) (list []string, why string) {
	entries, err := o.host.ReadDir(dir)
	if err != nil {
		return nil, err.Error()
	}
	list = []string{dir}
	for _, e := range entries {
		path, isLink := filepath.Join(dir, e.Name()), e.Type()&fs.ModeSymlink != 0
		isDir := e.IsDir()
		if isLink {
			info, err := o.host.Stat(path)
			isDir = err == nil && info.IsDir()
		}
		switch {
		case !isDir:
			list = append(list, path)
			continue
		case isLink && linked:
			return nil, path + " is a link to a directory, found through another link"
		}
		more, why := below(o, path, linked || isLink)
		if why != "" {
			return nil, why
		}
		list = append(list, more...)
	}
	return list, ""
}

func etcdFileRows() []row {
	data := onHost(etcd, "data-dir")
	return []row{
		mode("1.1.7", "manifest of "+etcd, 0o600, manifest(etcd)), owner("1.1.8", "manifest of "+etcd, false, manifest(etcd)),
		mode("1.1.11", "etcd's data directory", 0o700, data),
		{"1.1.12", "etcd's data directory", "etcd's own user, which is not root", func(o *observation) answer {
			own := ownUser(o.pods[etcd])
			return o.describe(data, func(_ string, info fs.FileInfo) (string, bool) {
				whose, known := host.OwnerIn(info)
				return fmt.Sprintf("%d:%d", whose.UID, whose.GID), known && whose.UID != 0 && int64(whose.UID) == own
			})
		}},
	}
}

// ownUser is the user of a Pod; 0 unless it names another.
func ownUser(pod *corev1.Pod) int64 {
	if pod == nil || pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.RunAsUser == nil {
		return 0
	}
	return *pod.Spec.SecurityContext.RunAsUser
}

// unitFiles are the files of the kubelet's unit.
func unitFiles(o *observation) ([]string, string) {
	files, err := thisnode.UnitFiles(o.host)
	if err != nil {
		return nil, err.Error()
	}
	if !slices.ContainsFunc(files, func(path string) bool { return filepath.Base(path) == host.KubeletUnit }) {
		return nil, "cannot find " + host.KubeletUnit + " in " + strings.Join(host.UnitDirs(), ", ")
	}
	return slices.DeleteFunc(files, func(path string) bool { // a link to /dev/null hides others
		info, err := o.host.Stat(path)
		return err == nil && !info.Mode().IsRegular()
	}), ""
}

func kubeletFileRows(o *observation) []row {
	settings := fixed(filepath.Join(o.machine.Paths.Kubelet, "config.yaml"))
	return []row{
		mode("4.1.1", "the kubelet's unit", 0o600, unitFiles), owner("4.1.2", "the kubelet's unit", false, unitFiles),
		mode("4.1.5", "kubelet.conf", 0o600, kubeconfigs("kubelet.conf")), owner("4.1.6", "kubelet.conf", false, kubeconfigs("kubelet.conf")),
		mode("4.1.9", "the kubelet's config.yaml", 0o600, settings), owner("4.1.10", "the kubelet's config.yaml", false, settings),
	}
}
