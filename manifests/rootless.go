// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"io/fs"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Accounts of the host that a rootless control plane runs as (KEP-2568): each
// is a system user with a group of its own name and no shell.
const (
	EtcdUser              = "kubeadm-etcd"
	APIServerUser         = "kubeadm-kas"
	ControllerManagerUser = "kubeadm-kcm"
	SchedulerUser         = "kubeadm-ks"
	// ServiceAccountKeyGroup may read sa.key; its members are APIServerUser
	// and ControllerManagerUser.
	ServiceAccountKeyGroup = "kubeadm-sa-key-readers"
)

// Account is a user of the host and its own group.
type Account struct{ UID, GID int64 }

// Users are the numbers of the accounts above on one host.
type Users struct {
	Etcd, APIServer, ControllerManager, Scheduler Account
	// ServiceAccountKeyGID is the number of ServiceAccountKeyGroup.
	ServiceAccountKeyGID int64
}

// Rootless tells whether the control plane runs as users other than root: the
// feature gate RootlessControlPlane. The accounts must exist before the static
// Pods are made, and Ownerships be applied before they are started.
func Rootless(n *config.Node) bool { return n.Cluster.FeatureGates["RootlessControlPlane"] }

// Ownership is whom a path of the host must belong to.
type Ownership struct {
	Path        string
	User, Group string
	Mode        fs.FileMode
	// Components are those that read it.
	Components []string
	// Tree marks a directory that goes with everything in it.
	Tree bool
}

// Ownerships lists what the components of a rootless control plane must be able
// to read.
func Ownerships(n *config.Node) []Ownership {
	var out []Ownership
	own := func(user, component string, paths ...string) {
		for _, p := range paths {
			out = append(out, Ownership{Path: p, User: user, Group: user, Mode: 0o600, Components: []string{component}})
		}
	}
	pki := func(file string) string { return path.Join(n.Paths.PKI, file) }
	own(APIServerUser, APIServerName, pki("apiserver.key"), pki("apiserver-kubelet-client.key"), pki("front-proxy-client.key"), pki("sa.pub"))
	own(ControllerManagerUser, ControllerManagerName, pki("ca.key"), path.Join(n.Paths.Kubernetes, "controller-manager.conf"))
	own(SchedulerUser, SchedulerName, path.Join(n.Paths.Kubernetes, "scheduler.conf"))
	out = append(out, Ownership{Path: pki("sa.key"), User: "root", Group: ServiceAccountKeyGroup, Mode: 0o640,
		Components: []string{APIServerName, ControllerManagerName}})
	if local := n.Cluster.Etcd.Local; local != nil {
		own(APIServerUser, APIServerName, pki("apiserver-etcd-client.key"))
		own(EtcdUser, EtcdName, pki("etcd/server.key"), pki("etcd/peer.key"))
		out = append(out, Ownership{Path: local.DataDir, User: EtcdUser, Group: EtcdUser, Mode: 0o700,
			Components: []string{EtcdName}, Tree: true})
	}
	return out
}

// unprivileged takes everything from a container that root would have, except
// to listen on a port below 1024 where bindsPort says so.
func unprivileged(bindsPort bool) *corev1.SecurityContext {
	drop := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if bindsPort {
		// Gaining the capability of the image's file is an escalation, so
		// that must stay allowed.
		drop.Add = []corev1.Capability{"NET_BIND_SERVICE"}
		return &corev1.SecurityContext{Capabilities: drop}
	}
	return &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: drop}
}

func (u *Users) etcd() *Account {
	if u == nil {
		return nil
	}
	return &u.Etcd
}

func (u *Users) apiServer() (*Account, []int64) {
	if u == nil {
		return nil, nil
	}
	return &u.APIServer, []int64{u.ServiceAccountKeyGID}
}

func (u *Users) controllerManager() (*Account, []int64) {
	if u == nil {
		return nil, nil
	}
	return &u.ControllerManager, []int64{u.ServiceAccountKeyGID}
}

func (u *Users) scheduler() *Account {
	if u == nil {
		return nil
	}
	return &u.Scheduler
}
