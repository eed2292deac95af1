// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Init makes this host the first node of a new cluster.
//
// The phases stand in the order in which they are listed, shown and planned.
// What each needs makes etcd start with the kubelet, which boots while most of
// the keys are generated; the API server starts while the last ones are, and the
// last phases talk to the API side by side.
func Init() []Phase {
	return []Phase{
		preflightInit(),
		certificates(),
		kubeconfigs().needing("preflight", "certs/ca"),
		localEtcd().needing("certs/etcd-server", "certs/etcd-peer"),
		kubeletStart().needing("kubeconfig/kubelet", "etcd"),
		controlPlane().needing("kubelet-start"),
		waitControlPlane().needing("etcd", "control-plane"),
		uploadConfig().needing("wait-control-plane", "kubeconfig"),
		uploadCerts().needing("wait-control-plane", "kubeconfig"),
		markControlPlane().needing("wait-control-plane", "kubeconfig"),
		bootstrapToken().needing("wait-control-plane", "kubeconfig"),
		kubeletFinalize().needing("wait-control-plane", "kubeconfig"),
		addon().needing("wait-control-plane", "kubeconfig"),
		showJoinCommand().needing("upload-config", "upload-certs", "mark-control-plane", "bootstrap-token", "kubelet-finalize", "addon"),
	}
}
