// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases"
)

// newAPIParts are for commands that talk to the API and only read from this host: they take no lock and have no etcd.
func newAPIParts(g *globals, node *config.Node, kubeconfig userKubeconfig) *parts {
	real := host.New()
	return &parts{
		env:     &phases.Env{Config: node, Host: real, Cluster: userCluster(node, kubeconfig), UI: newUI(g)},
		begin:   func() (func(), error) { return func() {}, nil },
		confirm: ask,
		show:    showResult,
		close:   real.Close,
	}
}

// userCluster is the cluster that the user's kubeconfig names.
func userCluster(node *config.Node, kubeconfig userKubeconfig) *cluster.Real {
	return cluster.New(cluster.Options{
		Kubeconfig: node.Paths.AdminKubeconfig,
		ReadFile:   func(string) ([]byte, error) { return kubeconfig.read() },
		Timeout:    node.Timeouts.KubernetesAPICall,
	})
}
