// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"slices"

	"github.com/slipway-k8s/slipway/certs"
)

const prepare = "control-plane-prepare"

// controlPlanePrepare brings what a control plane has beyond a worker. The private keys of the cluster come from the
// other control planes; this node generates its own.
func controlPlanePrepare() Phase {
	return Phase{
		Name:    prepare,
		Summary: "Prepare this host to become a control plane",
		Flags: discoveryFlags("apiserver-advertise-address", "apiserver-bind-port", "certificate-key", "control-plane",
			"node-name", "patches"),
		Children: []Phase{
			downloadCerts(),
			joinCertificates().Needing(prepare + "/download-certs"),
			joinKubeconfigs().Needing(prepare + "/download-certs"),
			joinStaticPods().Needing(prepare+"/certs", prepare+"/kubeconfig", "kubelet-start"),
		},
		Skip: unlessControlPlane,
	}
}

func unlessControlPlane(env *Env) string {
	if !env.Config.ControlPlane {
		return "this node is a worker"
	}
	return ""
}

// joinCertificates are the certificates that each control plane has of its own.
func joinCertificates() Phase {
	p := certificates()
	p.Summary = "Generate this node's own certificates, keeping valid ones"
	p.Flags = discoveryFlags("apiserver-advertise-address", "control-plane", "node-name")
	p.Children = slices.DeleteFunc(p.Children, func(c Phase) bool { return !onJoin("certs " + c.Name) })
	return asOne(p)
}

func joinKubeconfigs() Phase {
	p := kubeconfigs()
	p.Summary = "Write the kubeconfig files of the components and the administrator"
	p.Flags = discoveryFlags("certificate-key", "control-plane")
	p.Children = slices.DeleteFunc(p.Children, func(c Phase) bool { return !onJoin("kubeconfig " + c.Name) })
	return asOne(p)
}

// joinStaticPods lets the API server start while etcd catches up. The other components would only take processor time
// from both.
func joinStaticPods() Phase {
	p := controlPlane()
	p.Flags = []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane", "dry-run", "patches"}
	p = asOne(p)
	for i := range p.Children {
		if p.Children[i].Name != "apiserver" {
			p.Children[i].Needs = []string{"etcd-join"}
		}
	}
	return p
}

// asOne makes a phase whose children have no commands in join. What the children wait for by name in init is already
// there.
func asOne(p Phase) Phase {
	p.Whole = true
	for i := range p.Children {
		p.Children[i].Flags, p.Children[i].Needs = nil, nil
	}
	return p
}

// onJoin reports whether a joining control plane runs a phase of init that issues a certificate.
func onJoin(phase string) bool {
	return slices.ContainsFunc(certs.Table(), func(row certs.Spec) bool { return row.Phase() == phase && row.OnJoin() })
}
