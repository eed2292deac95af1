// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Init makes this host the first node of a new cluster.
//
// The phases stand in the order in which they are listed, shown and planned.
// What each needs lets the kubelet boot, and etcd with it, while the rest of
// the keys are generated: the API server then finds etcd ready, which it would
// ask again only after a second.
func Init() []Phase {
	return []Phase{
		preflightInit(),
		certificates(),
		kubeconfigs().needing("preflight", "certs/ca"),
		localEtcd().needing("certs/etcd-ca", "certs/etcd-server", "certs/etcd-peer"),
		controlPlane().needing("certs", "kubeconfig"),
		kubeletStart().needing("certs/ca", "kubeconfig/kubelet", "etcd"),
		waitControlPlane().needing("etcd", "control-plane", "kubelet-start"),
		uploadConfig(),
		uploadCerts(),
		markControlPlane(),
		bootstrapToken(),
		kubeletFinalize(),
		addon(),
		showJoinCommand(),
	}
}
