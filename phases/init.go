// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Init makes this host the first node of a new cluster.
//
// The phases stand in the order in which they are listed, shown and planned.
// What each needs makes the kubelet boot while most of the keys are generated,
// etcd elect itself and the API server start while the last ones are, and the
// other components while the API server writes its default roles. The last
// phases talk to the API side by side.
func Init() []Phase {
	return []Phase{
		preflightInit(),
		certificates(),
		kubeconfigs().needing("preflight", "certs/ca"),
		kubeletStart().needing("kubeconfig/kubelet"),
		localEtcd().needing("kubelet-start", "certs/etcd-server", "certs/etcd-peer"),
		controlPlane().needing("etcd"),
		waitControlPlane().needing("control-plane/apiserver", "kubeconfig"),
		uploadConfig().needing("wait-control-plane"),
		uploadCerts().needing("wait-control-plane"),
		markControlPlane().needing("wait-control-plane"),
		bootstrapToken().needing("wait-control-plane"),
		kubeletFinalize().needing("wait-control-plane"),
		addon().needing("wait-control-plane"),
		showJoinCommand().needing("upload-config", "upload-certs", "mark-control-plane", "bootstrap-token", "kubelet-finalize", "addon"),
	}
}
