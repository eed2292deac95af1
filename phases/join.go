// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Join makes this host a node of a cluster that exists. What the cluster and
// this node shall be is in Env.Config already: see Discovery.
//
// The kubelet of a control plane asks this node's own API server for its
// certificate, which is up once etcd has caught up here.
func Join() []Phase {
	return []Phase{
		preflightJoin(),
		controlPlanePrepare(),
		kubeletStartJoin(),
		etcdJoin(),
		kubeletWaitBootstrap(),
		controlPlaneJoin(),
		waitJoined().needing("etcd-join"),
	}
}

// discoveryFlags are those of every phase that needs to know the cluster.
func discoveryFlags(more ...string) []string {
	return append(more, "config", "discovery-file", "discovery-token", "discovery-token-ca-cert-hash",
		"discovery-token-unsafe-skip-ca-verification", "dry-run", "tls-bootstrap-token", "token", "token-file")
}
