// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Join makes this host a node of a cluster that exists. What the cluster and
// this node shall be is in Env.Config already: see Discovery.
//
// The kubelet of a control plane boots while keys are generated, and starts
// etcd first: the API server of this node can do little before etcd has caught
// up here, and the kubelet asks that API server for its certificate.
func Join() []Phase {
	return []Phase{
		preflightJoin(),
		controlPlanePrepare(),
		kubeletStartJoin().Needing("preflight", prepare+"/download-certs"),
		etcdJoin().Needing("kubelet-start", prepare+"/certs/etcd-server", prepare+"/certs/etcd-peer",
			prepare+"/certs/apiserver-etcd-client", prepare+"/kubeconfig/admin"),
		kubeletWaitBootstrap().Needing("kubelet-start", prepare, "etcd-join"),
		controlPlaneJoin(),
		waitJoined().Needing(prepare, "etcd-join"),
	}
}

// discoveryFlags are those of every phase that needs to know the cluster.
func discoveryFlags(more ...string) []string {
	return append(more, "config", "discovery-file", "discovery-token", "discovery-token-ca-cert-hash",
		"discovery-token-unsafe-skip-ca-verification", "dry-run", "tls-bootstrap-token", "token", "token-file")
}
