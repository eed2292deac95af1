// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

// AdvertiseAnnotation is the annotation of the API server's Pod with its address, as host:port.
const AdvertiseAnnotation = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"

// APIServer returns the API server's static Pod. Its probes use the configured address and port, even if extraArgs set others.
func APIServer(n *config.Node, v HostView) *corev1.Pod {
	extra := n.Cluster.APIServer
	mounts := certMounts(n, v)
	mounts = append(mounts, externalEtcdMounts(n, mounts)...)
	return staticPod{
		name:        APIServerName,
		annotations: map[string]string{AdvertiseAnnotation: n.LocalEndpoint()},
		args:        commandLine(apiServerArgs(n), extra.ExtraArgs),
		env:         environment(v.ProxyEnv, extra.ExtraEnvs),
		cpu:         "250m",
		mounts:      withExtra(mounts, extra.ExtraVolumes),
		health:      endpoint{n.AdvertiseAddress.String(), n.BindPort, corev1.URISchemeHTTPS},
		probes:      probes{"/livez", "/readyz", "/livez"},
		bindsPort:   true,
	}.pod(n, v)
}

func apiServerArgs(n *config.Node) []config.Arg {
	pki := func(file string) string { return path.Join(n.Paths.PKI, file) }
	args := []config.Arg{
		{Name: "advertise-address", Value: n.AdvertiseAddress.String()},
		{Name: "allow-privileged", Value: "true"},
		{Name: "client-ca-file", Value: pki("ca.crt")},
		{Name: "enable-admission-plugins", Value: "NodeRestriction"},
		{Name: "enable-bootstrap-token-auth", Value: "true"},
		{Name: "kubelet-client-certificate", Value: pki("apiserver-kubelet-client.crt")},
		{Name: "kubelet-client-key", Value: pki("apiserver-kubelet-client.key")},
		{Name: "kubelet-preferred-address-types", Value: "InternalIP,ExternalIP,Hostname"},
		{Name: "proxy-client-cert-file", Value: pki("front-proxy-client.crt")},
		{Name: "proxy-client-key-file", Value: pki("front-proxy-client.key")},
		{Name: "requestheader-allowed-names", Value: "front-proxy-client"},
		{Name: "requestheader-client-ca-file", Value: pki("front-proxy-ca.crt")},
		{Name: "requestheader-extra-headers-prefix", Value: "X-Remote-Extra-"},
		{Name: "requestheader-group-headers", Value: "X-Remote-Group"},
		{Name: "requestheader-username-headers", Value: "X-Remote-User"},
		{Name: "secure-port", Value: strconv.Itoa(int(n.BindPort))},
		{Name: "service-account-issuer", Value: "https://kubernetes.default.svc." + n.Cluster.Networking.DNSDomain},
		{Name: "service-account-key-file", Value: pki("sa.pub")},
		{Name: "service-account-signing-key-file", Value: pki("sa.key")},
		{Name: "service-cluster-ip-range", Value: n.Cluster.Networking.ServiceSubnet},
		{Name: "tls-cert-file", Value: pki("apiserver.crt")},
		{Name: "tls-private-key-file", Value: pki("apiserver.key")},
	}
	// The API server refuses modes together with a configuration file of the modes.
	if _, file := config.LastArg(n.Cluster.APIServer.ExtraArgs, "authorization-config"); !file {
		args = append(args, config.Arg{Name: "authorization-mode", Value: "Node,RBAC"})
	}
	return append(args, etcdClientArgs(n)...)
}

func etcdClientArgs(n *config.Node) []config.Arg {
	servers := etcdURL(loopback(n), etcdClientPort)
	ca, cert, key := path.Join(n.Paths.PKI, "etcd/ca.crt"), path.Join(n.Paths.PKI, "apiserver-etcd-client.crt"), path.Join(n.Paths.PKI, "apiserver-etcd-client.key")
	if e := n.Cluster.Etcd.External; e != nil {
		servers, ca, cert, key = strings.Join(e.Endpoints, ","), e.CAFile, e.CertFile, e.KeyFile
	}
	args := []config.Arg{{Name: "etcd-servers", Value: servers}}
	if ca != "" {
		args = append(args, config.Arg{Name: "etcd-cafile", Value: ca})
	}
	if cert != "" && key != "" {
		args = append(args, config.Arg{Name: "etcd-certfile", Value: cert}, config.Arg{Name: "etcd-keyfile", Value: key})
	}
	return args
}

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

const schedulerPort = 10259

func Scheduler(n *config.Node, v HostView) *corev1.Pod {
	extra := n.Cluster.Scheduler
	conf := path.Join(n.Paths.Kubernetes, "scheduler.conf")
	args := []config.Arg{
		{Name: "authentication-kubeconfig", Value: conf},
		{Name: "authorization-kubeconfig", Value: conf},
		{Name: "bind-address", Value: "127.0.0.1"},
		{Name: "kubeconfig", Value: conf},
		{Name: "leader-elect", Value: "true"},
	}
	return staticPod{
		name:   SchedulerName,
		args:   commandLine(args, extra.ExtraArgs),
		env:    environment(v.ProxyEnv, extra.ExtraEnvs),
		cpu:    "100m",
		mounts: withExtra([]mount{kubeconfig(n, "scheduler.conf")}, extra.ExtraVolumes),
		health: loopbackEndpoint(extra.ExtraArgs, schedulerPort),
		probes: probes{"/livez", "/readyz", "/livez"},
	}.pod(n, v)
}
