// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// controlPlaneJoin records this node's role in the API.
func controlPlaneJoin() step.Phase {
	mark := markControlPlane()
	mark.Flags = []string{"config", "control-plane", "dry-run", "node-name"}
	return step.Phase{
		Name:     "control-plane-join",
		Summary:  "Mark this node as a control plane in the cluster",
		Flags:    append([]string{"apiserver-advertise-address", "patches"}, mark.Flags...),
		Children: []step.Phase{mark},
		Skip:     node.UnlessControlPlane,
	}
}

// waitJoined is wait-control-plane for a joining node.
func waitJoined() step.Phase {
	p := waitControlPlane()
	p.Skip = node.UnlessControlPlane
	return p
}

const prepare = "control-plane-prepare"

// controlPlanePrepare adds everything a control plane has beyond a worker. The cluster's private keys come from the other control
// planes; this node generates its own.
func controlPlanePrepare() step.Phase {
	return step.Phase{
		Name:    prepare,
		Summary: "Prepare this host to become a control plane",
		Flags: kubelet.DiscoveryFlags("apiserver-advertise-address", "apiserver-bind-port", "certificate-key", "control-plane",
			"node-name", "patches"),
		Children: []step.Phase{
			downloadCerts(),
			joinCertificates().Needing(prepare + "/download-certs"),
			joinKubeconfigs().Needing(prepare + "/download-certs"),
			joinStaticPods().Needing(prepare+"/certs", prepare+"/kubeconfig", "kubelet-start"),
		},
		Skip: node.UnlessControlPlane,
	}
}

// joinCertificates issues each control plane's own certificates.
func joinCertificates() step.Phase {
	p := joinPhase(certificates())
	p.Summary = "Generate this node's own certificates, keeping valid ones"
	p.Flags = kubelet.DiscoveryFlags("apiserver-advertise-address", "control-plane", "node-name")
	return p
}

func joinKubeconfigs() step.Phase {
	p := joinPhase(kubeconfigs())
	p.Flags = kubelet.DiscoveryFlags("certificate-key", "control-plane")
	return p
}

// joinStaticPods lets the API server start while etcd catches up. The other components would only take processor time from both.
func joinStaticPods() step.Phase {
	p := controlPlane()
	p.Flags = []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane", "dry-run", "patches"}
	p = withoutChildCommands(p)
	for i := range p.Children {
		if c := &p.Children[i]; c.Name == "apiserver" {
			write := c.Run
			c.Run = func(ctx context.Context, env *step.Env) error {
				if err := encryptionKeysEarly(ctx, env); err != nil {
					return err
				}
				return write(ctx, env)
			}
		} else {
			c.Needs = []string{"etcd-join"}
		}
	}
	return p
}

// withoutChildCommands makes one phase of children that have no commands in join. The children's needs in init are already met.
func withoutChildCommands(p step.Phase) step.Phase {
	p.Whole = true
	for i := range p.Children {
		p.Children[i].Flags, p.Children[i].Needs = nil, nil
	}
	return p
}

// joinPhase makes one phase of the certificates or kubeconfig files that a joining control plane gets.
func joinPhase(p step.Phase) step.Phase {
	p.Children = slices.DeleteFunc(p.Children, func(c step.Phase) bool {
		return !slices.ContainsFunc(certs.Table(), func(row certs.Spec) bool { return row.Phase() == p.Name+" "+c.Name && row.OnJoin() })
	})
	return withoutChildCommands(p)
}
