// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Join makes this host a node of the existing cluster that discovery described in Env.Config.
//
// The kubelet of a control plane starts while keys are generated, and starts etcd first: this node's API server can do little
// before its etcd has caught up, and the kubelet asks that API server for its certificate.
func Join() []step.Phase {
	return []step.Phase{
		preflightJoin(),
		controlPlanePrepare(),
		kubelet.StartJoin().Needing("preflight", prepare+"/download-certs"),
		etcdJoin().Needing("kubelet-start", prepare+"/certs/etcd-server", prepare+"/certs/etcd-peer",
			prepare+"/certs/apiserver-etcd-client", prepare+"/kubeconfig/admin"),
		kubelet.WaitBootstrap().Needing("kubelet-start", prepare, "etcd-join"),
		controlPlaneJoin().Needing("kubelet-wait-bootstrap", "wait-control-plane"),
		waitJoined().Needing(prepare, "etcd-join"),
		kubelet.ServingCertificate().Needing("kubelet-wait-bootstrap", "wait-control-plane"),
	}
}
