// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

const controllerManagerPort = 10257

// ControllerManager returns the controller manager's static Pod. Without the CA's key, it signs no certificates.
func ControllerManager(n *config.Node, v HostView) *corev1.Pod {
	extra := n.Cluster.ControllerManager
	return staticPod{
		name:   ControllerManagerName,
		args:   commandLine(controllerManagerArgs(n, v), extra.ExtraArgs),
		env:    environment(v.ProxyEnv, extra.ExtraEnvs),
		cpu:    "200m",
		mounts: withExtra(append(certMounts(n, v), kubeconfig(n, "controller-manager.conf")), extra.ExtraVolumes),
		health: loopbackEndpoint(extra.ExtraArgs, controllerManagerPort),
		probes: probes{liveness: "/healthz", startup: "/healthz"},
	}.pod(n, v)
}

func controllerManagerArgs(n *config.Node, v HostView) []config.Arg {
	pki := func(file string) string { return path.Join(n.Paths.PKI, file) }
	conf := path.Join(n.Paths.Kubernetes, "controller-manager.conf")
	signingCert, signingKey := pki("ca.crt"), pki("ca.key")
	if v.SeveralCAs {
		signingCert = pki(SignerFile)
	}
	if v.ExternalCA {
		signingCert, signingKey = "", ""
	}
	args := []config.Arg{
		{Name: "authentication-kubeconfig", Value: conf},
		{Name: "authorization-kubeconfig", Value: conf},
		{Name: "bind-address", Value: "127.0.0.1"},
		{Name: "client-ca-file", Value: pki("ca.crt")},
		{Name: "cluster-name", Value: n.Cluster.ClusterName},
		{Name: "cluster-signing-cert-file", Value: signingCert},
		{Name: "cluster-signing-key-file", Value: signingKey},
		{Name: "controllers", Value: "*,bootstrapsigner,tokencleaner"},
		{Name: "kubeconfig", Value: conf},
		{Name: "leader-elect", Value: "true"},
		{Name: "requestheader-client-ca-file", Value: pki("front-proxy-ca.crt")},
		{Name: "root-ca-file", Value: pki("ca.crt")},
		{Name: "service-account-private-key-file", Value: pki("sa.key")},
		{Name: "use-service-account-credentials", Value: "true"},
	}
	if n.Cluster.Networking.PodSubnet != "" {
		args = append(args,
			config.Arg{Name: "allocate-node-cidrs", Value: "true"},
			config.Arg{Name: "cluster-cidr", Value: n.Cluster.Networking.PodSubnet},
			config.Arg{Name: "service-cluster-ip-range", Value: n.Cluster.Networking.ServiceSubnet})
	}
	return args
}

// loopbackEndpoint returns the health endpoint of a component that listens on 127.0.0.1, unless its extraArgs set another
// address. With an unspecified address (0.0.0.0 or ::) it also listens on the Pod's address.
func loopbackEndpoint(extra []config.Arg, port int32) endpoint {
	bind, given := config.LastArg(extra, "bind-address")
	switch {
	case !given:
		bind = "127.0.0.1"
	case bind == "0.0.0.0" || bind == "::":
		bind = ""
	}
	return endpoint{bind, port, corev1.URISchemeHTTPS}
}
