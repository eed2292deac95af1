// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Join makes this host a node of an existing cluster, which discovery has described in Env.Config.
//
// The kubelet of a control plane starts while keys are generated, and starts etcd first: this node's API server can do
// little before its etcd has caught up, and the kubelet asks that API server for its certificate.
func Join() []Phase {
	return []Phase{
		preflightJoin(),
		controlPlanePrepare(),
		kubeletStartJoin().Needing("preflight", prepare+"/download-certs"),
		etcdJoin().Needing("kubelet-start", prepare+"/certs/etcd-server", prepare+"/certs/etcd-peer",
			prepare+"/certs/apiserver-etcd-client", prepare+"/kubeconfig/admin"),
		kubeletWaitBootstrap().Needing("kubelet-start", prepare, "etcd-join"),
		controlPlaneJoin().Needing("kubelet-wait-bootstrap", "wait-control-plane"),
		waitJoined().Needing(prepare, "etcd-join"),
	}
}

// discoveryFlags are the flags of every phase that needs to know the cluster.
func discoveryFlags(more ...string) []string {
	return append(more, "config", "discovery-file", "discovery-token", "discovery-token-ca-cert-hash",
		"discovery-token-unsafe-skip-ca-verification", "dry-run", "tls-bootstrap-token", "token", "token-file")
}
