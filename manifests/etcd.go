// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-k8s/slipway/internal/config"
)

const (
	etcdClientPort  = 2379
	etcdPeerPort    = 2380
	etcdMetricsPort = 2381
)

// Member is a member of an etcd cluster.
type Member struct {
	Name string
	// PeerURL is the URL for other members: https://192.0.2.1:2380.
	PeerURL string
}

// Etcd returns a local etcd's static Pod. With members, itself included, it joins their cluster; otherwise, it starts a new one.
func Etcd(n *config.Node, v HostView, members []Member) *corev1.Pod {
	local := n.Cluster.Etcd.Local
	probe, port := etcdEndpoint(n)
	certs := mount{"etcd-certs", path.Join(n.Paths.PKI, "etcd"), path.Join(n.Paths.PKI, "etcd"), false, corev1.HostPathDirectoryOrCreate}
	data := mount{"etcd-data", local.DataDir, local.DataDir, false, corev1.HostPathDirectoryOrCreate}
	return staticPod{
		name:        EtcdName,
		annotations: map[string]string{EtcdURLsAnnotation: etcdURL(n.AdvertiseAddress.String(), etcdClientPort)},
		image:       n.Image(EtcdName),
		args:        commandLine(etcdArgs(n, members), local.ExtraArgs),
		env:         environment(nil, local.ExtraEnvs),
		requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("100Mi"),
		},
		mounts: []mount{data, certs},
		port:   port,
		probes: probes{
			liveness:  probe.livenessProbe("/livez"),
			readiness: probe.readinessProbe("/readyz"),
			startup:   probe.startupProbe("/readyz", n.Timeouts.ControlPlaneComponentHealthCheck),
		},
		user: v.Users.etcd(),
	}.pod()
}

func etcdArgs(n *config.Node, members []Member) []config.Arg {
	pki := func(file string) string { return path.Join(n.Paths.PKI, "etcd", file) }
	address := n.AdvertiseAddress.String()
	client, peer := etcdURL(address, etcdClientPort), etcdURL(address, etcdPeerPort)
	args := []config.Arg{
		{Name: "advertise-client-urls", Value: client},
		{Name: "cert-file", Value: pki("server.crt")},
		{Name: "client-cert-auth", Value: "true"},
		{Name: "data-dir", Value: n.Cluster.Etcd.Local.DataDir},
		{Name: "feature-gates", Value: "InitialCorruptCheck=true"},
		{Name: "initial-advertise-peer-urls", Value: peer},
		{Name: "initial-cluster", Value: initialCluster(n, members)},
		{Name: "key-file", Value: pki("server.key")},
		{Name: "listen-client-urls", Value: etcdURL(loopback(n), etcdClientPort) + "," + client},
		{Name: "listen-metrics-urls", Value: "http://" + hostPort(loopback(n), etcdMetricsPort)},
		{Name: "listen-peer-urls", Value: peer},
		{Name: "name", Value: n.Name},
		{Name: "peer-cert-file", Value: pki("peer.crt")},
		{Name: "peer-client-cert-auth", Value: "true"},
		{Name: "peer-key-file", Value: pki("peer.key")},
		{Name: "peer-trusted-ca-file", Value: pki("ca.crt")},
		{Name: "snapshot-count", Value: "10000"},
		{Name: "trusted-ca-file", Value: pki("ca.crt")},
		{Name: "watch-progress-notify-interval", Value: "5s"},
	}
	if len(members) > 0 {
		args = append(args, config.Arg{Name: "initial-cluster-state", Value: "existing"})
	}
	return args
}

func initialCluster(n *config.Node, members []Member) string {
	if len(members) == 0 {
		return n.Name + "=" + etcdURL(n.AdvertiseAddress.String(), etcdPeerPort)
	}
	var all []string
	for _, m := range members {
		all = append(all, m.Name+"="+m.PeerURL)
	}
	return strings.Join(all, ",")
}

// etcdEndpoint returns etcd's health endpoint: the first address of its metrics.
func etcdEndpoint(n *config.Node) (endpoint, int32) {
	e, port := endpoint{loopback(n), corev1.URISchemeHTTP}, int32(etcdMetricsPort)
	list, _ := config.LastArg(n.Cluster.Etcd.Local.ExtraArgs, "listen-metrics-urls")
	first, _, _ := strings.Cut(list, ",")
	u, err := url.Parse(first)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return e, port
	}
	if u.Hostname() != "" {
		e.host = u.Hostname()
	}
	if u.Scheme == "https" {
		e.scheme = corev1.URISchemeHTTPS
	}
	if p, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		port = int32(p)
	}
	return e, port
}

// loopback returns the loopback address in the node's IP family.
func loopback(n *config.Node) string {
	if n.AdvertiseAddress.Is6() {
		return "::1"
	}
	return "127.0.0.1"
}

func etcdURL(host string, port int) string { return "https://" + hostPort(host, port) }

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
