// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// The host's accounts for a rootless control plane (KEP-2568): system users without a shell, each with a group of the same name.
const (
	EtcdUser              = "kubeadm-etcd"
	APIServerUser         = "kubeadm-kas"
	ControllerManagerUser = "kubeadm-kcm"
	SchedulerUser         = "kubeadm-ks"
	// ServiceAccountKeyGroup can read sa.key; its members are APIServerUser and ControllerManagerUser.
	ServiceAccountKeyGroup = "kubeadm-sa-key-readers"
)

// RootlessUsers lists the users, without accounts that are only groups.
func RootlessUsers() []string {
	return []string{EtcdUser, APIServerUser, ControllerManagerUser, SchedulerUser}
}

// users maps components to their users in a rootless control plane. The kubelet is root.
var users = map[string]string{
	EtcdName:              EtcdUser,
	APIServerName:         APIServerUser,
	ControllerManagerName: ControllerManagerUser,
	SchedulerName:         SchedulerUser,
}

// keyReaders are the components that read sa.key.
var keyReaders = []string{APIServerName, ControllerManagerName}

// Account is a user of the host and its group, by number.
type Account struct{ UID, GID int64 }

// Users are the accounts above on one host.
type Users struct {
	Accounts             map[string]Account // those of RootlessUsers, by name
	ServiceAccountKeyGID int64              // the number of ServiceAccountKeyGroup
}

// Rootless reports whether the control plane's components run as users other than root (feature gate RootlessControlPlane). The
// accounts must exist before the static Pods are built, and Ownerships must be applied before they start.
func Rootless(n *config.Node) bool { return n.Cluster.FeatureGates["RootlessControlPlane"] }

// Ownership says who must own a path of the host.
type Ownership struct {
	Path        string
	User, Group string
	Mode        fs.FileMode
	// Components lists the components that read it.
	Components []string
	// Tree marks a directory given away with everything in it.
	Tree bool
}

// Ownerships lists the files for a rootless control plane's components: their private keys according to the certificate table,
// the key for an external etcd, the keys of service accounts, profiles' files and logs, and etcd's data.
func Ownerships(n *config.Node) []Ownership {
	var out []Ownership
	own := func(component, path string) {
		if user := users[component]; user != "" {
			out = append(out, Ownership{Path: path, User: user, Group: user, Mode: 0o600, Components: []string{component}})
		}
	}
	pki := func(file string) string { return path.Join(n.Paths.PKI, file) }
	for _, row := range certs.Specs(n) {
		if row.Kubeconfig != "" {
			own(row.UsedBy, path.Join(n.Paths.Kubernetes, row.Kubeconfig))
		} else {
			own(row.UsedBy, pki(row.KeyFile()))
		}
	}
	own(APIServerName, pki(certs.ServiceAccountPublicKey))
	if x := n.Cluster.Etcd.External; x != nil && mayOwnEtcdKey(n, path.Clean(x.KeyFile)) {
		own(APIServerName, x.KeyFile)
	}
	for _, file := range n.ProfileFiles() {
		own(APIServerName, file.Path)
	}
	if n.Cluster.HasEncryptionFile() {
		own(APIServerName, config.EncryptionFile)
	}
	if dir := n.AuditLogDir(); dir != "" {
		out = append(out, Ownership{Path: dir, User: APIServerUser, Group: APIServerUser, Mode: 0o700,
			Components: []string{APIServerName}, Tree: true})
	}
	out = append(out, Ownership{Path: pki(certs.ServiceAccountKey), User: "root", Group: ServiceAccountKeyGroup, Mode: 0o640,
		Components: keyReaders})
	if local := n.Cluster.Etcd.Local; local != nil {
		out = append(out, Ownership{Path: local.DataDir, User: EtcdUser, Group: EtcdUser, Mode: 0o700,
			Components: []string{EtcdName}, Tree: true})
	}
	return out
}

// mayOwnEtcdKey reports whether the API server may own the key for an external etcd. Outside the PKI directory, it may belong to others,
// and a ConfigMap shouldn't change the owner of any file of the host. With the key of a CA, the API server's user could sign
// certificates for anybody.
func mayOwnEtcdKey(n *config.Node, key string) bool {
	isCAs := func(row certs.Spec) bool { return row.IsCA() && key == path.Join(n.Paths.PKI, row.KeyFile()) }
	return strings.HasPrefix(key, n.Paths.PKI+"/") && !slices.ContainsFunc(certs.Table(), isCAs)
}

// unprivileged drops all of a container's capabilities, except for listening on a port below 1024 if bindsPort is set.
func unprivileged(bindsPort bool) *corev1.SecurityContext {
	drop := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if bindsPort {
		// The program's file in the image has the capability, and gaining it counts as escalation, which must stay allowed.
		drop.Add = []corev1.Capability{"NET_BIND_SERVICE"}
		return &corev1.SecurityContext{Capabilities: drop}
	}
	return &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: drop}
}
