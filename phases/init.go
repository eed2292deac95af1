// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Init makes this host the first node of a new cluster.
//
// The phases are listed, shown and planned in this order. They run as soon as
// what they need is there: the kubelet boots while most keys are generated, and
// etcd elects its leader and the API server starts while the last ones are. The
// controller manager and the scheduler start when the API server knows their
// rights, and while they do, the last phases write to the API side by side.
func Init() []Phase {
	return []Phase{
		preflightInit(),
		certificates(),
		kubeconfigs().needing("preflight", "certs/ca"),
		kubeletStart().needing("kubeconfig/kubelet"),
		localEtcd().needing("kubelet-start", "certs/etcd-server", "certs/etcd-peer"),
		controlPlane().needing("etcd"),
		waitControlPlane().needing("control-plane/apiserver", "kubeconfig"),
		uploadConfig().needing("wait-control-plane/health"),
		uploadCerts().needing("wait-control-plane/health"),
		markControlPlane().needing("wait-control-plane/health"),
		bootstrapToken().needing("wait-control-plane/health"),
		kubeletFinalize().needing("wait-control-plane/health"),
		addon().needing("wait-control-plane/health"),
		showJoinCommand().needing("wait-control-plane", "upload-config", "upload-certs", "mark-control-plane", "bootstrap-token", "kubelet-finalize", "addon"),
	}
}
