// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"net"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// findNames finds the certificates that lack a name, and the names that the API server's certificate loses. A name that this node or
// the cluster's clients use stays.
func (r *Run) findNames(ctx context.Context, env *step.Env) (err error) {
	if r.certificates, err = lackingNames(env); err != nil || len(r.Removed) == 0 {
		return err
	}
	row, _ := certs.Find(env.Config, certs.APIServer)
	cert, err := env.PKI().Current(row)
	if err != nil || cert == nil || !certs.HasAny(row, cert, r.Removed) {
		return err
	}
	users, err := usersOf(ctx, env)
	if err != nil {
		return err
	}
	for _, name := range r.Removed {
		switch by := users[name]; {
		case !certs.HasAny(row, cert, []string{name}):
		case by != "":
			env.UI.Warn("keeping "+name+" in "+env.PKI().Files(row)[0]+", because "+by+" still uses that name", "change its address, then run `slipway reconfigure node`")
		default:
			r.lost = append(r.lost, name)
		}
	}
	if len(r.lost) > 0 && !slices.ContainsFunc(r.certificates, isAPIServers) {
		r.certificates = append(r.certificates, row)
	}
	return nil
}

// usersOf returns what leads to a host by that host's name: this node's kubeconfig files, kube-proxy, and joining nodes.
func usersOf(ctx context.Context, env *step.Env) (map[string]string, error) {
	users := map[string]string{}
	add := func(by, endpoint string) {
		if name, _, err := net.SplitHostPort(endpoint); err == nil {
			users[name] = by
		}
	}
	for _, path := range kubeconfigFiles(env) {
		_, at, err := readKubeconfigEndpoint(env, path)
		if err != nil {
			return nil, err
		}
		add(path, at)
	}
	for _, cm := range [][3]string{
		{metav1.NamespaceSystem, manifests.KubeProxyConfigMap, "kubeconfig.conf"}, {metav1.NamespacePublic, manifests.ClusterInfoName, clusterInfoKey},
	} {
		text, err := cluster.ConfigMapText(ctx, env.Cluster, cm[0], cm[1], cm[2])
		if err != nil {
			return nil, err
		}
		if at, err := kubeconfig.Endpoint([]byte(text)); err == nil { // somebody else's text leads nowhere known
			add("ConfigMap "+cm[0]+"/"+cm[1], at)
		}
	}
	return users, nil
}
