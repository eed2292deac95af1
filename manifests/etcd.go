// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"math"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

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

// Etcd returns a local etcd's static Pod. With members, itself included, it joins their cluster; otherwise, it starts a cluster.
func Etcd(n *config.Node, v HostView, members []Member) *corev1.Pod {
	local := n.Cluster.Etcd.Local
	certs := mount{"etcd-certs", path.Join(n.Paths.PKI, "etcd"), path.Join(n.Paths.PKI, "etcd"), false, corev1.HostPathDirectoryOrCreate}
	data := mount{"etcd-data", local.DataDir, local.DataDir, false, corev1.HostPathDirectoryOrCreate}
	return staticPod{
		name:        EtcdName,
		annotations: map[string]string{EtcdURLsAnnotation: etcdURL(n.AdvertiseAddress.String(), etcdClientPort)},
		args:        commandLine(etcdArgs(n, members), local.ExtraArgs),
		env:         environment(nil, local.ExtraEnvs),
		cpu:         "100m",
		memory:      "100Mi",
		mounts:      []mount{data, certs},
		health:      etcdEndpoint(n),
		probes:      probes{"/livez", "/readyz", "/readyz"},
	}.pod(n, v)
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
func etcdEndpoint(n *config.Node) endpoint {
	e := endpoint{loopback(n), etcdMetricsPort, corev1.URISchemeHTTP}
	list, _ := config.LastArg(n.Cluster.Etcd.Local.ExtraArgs, "listen-metrics-urls")
	first, _, _ := strings.Cut(list, ",")
	u, err := url.Parse(first)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return e
	}
	if u.Hostname() != "" {
		e.host = u.Hostname()
	}
	if u.Scheme == "https" {
		e.scheme = corev1.URISchemeHTTPS
	}
	if p, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		e.port = int32(p)
	}
	return e
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

// EtcdURLsAnnotation is the annotation of an etcd Pod with its client URLs, separated by commas.
const EtcdURLsAnnotation = "kubeadm.kubernetes.io/etcd.advertise-client-urls"

// LocalMember is a member of etcd as its static Pod describes it.
type LocalMember struct {
	Name string
	// PeerURL is the first of its peer URLs, and MorePeerURLs has the others, if there are any. etcd sorts them.
	PeerURL      string
	MorePeerURLs []string
	ClientURLs   []string
	DataDir      string
	// WALDir is the directory of its write-ahead log, if that isn't below DataDir.
	WALDir string
	// ConfigFile is the file that etcd reads its settings from instead, if any.
	ConfigFile string
	// Initial are the members it was started with, itself included.
	Initial []Member
	// Joined reports whether it was started as a member of an existing cluster.
	Joined bool
}

const etcdVariables = "ETCD_"

// EtcdVariable is the environment variable that stands for a flag of etcd's.
func EtcdVariable(flag string) string {
	return etcdVariables + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// EtcdFlags returns the flags in etcd's static Pod and, of flags that aren't given, the variables that stand for them.
func EtcdFlags(pod *corev1.Pod) []Flag {
	if pod == nil || len(pod.Spec.Containers) == 0 {
		return nil
	}
	given := PodFlags(pod)
	flags := given
	for _, e := range pod.Spec.Containers[0].Env {
		name, ofEtcd := strings.CutPrefix(e.Name, etcdVariables)
		f := Flag{Name: strings.ToLower(strings.ReplaceAll(name, "_", "-")), Value: e.Value}
		if e.ValueFrom != nil {
			f.Value = "$" + e.Name
		}
		if ofEtcd && len(FlagsNamed(given, f.Name)) == 0 {
			flags = append(flags, f)
		}
	}
	return flags
}

// ReadEtcd reads the settings in etcd's static Pod; found is false if they contain no peer URL.
func ReadEtcd(pod *corev1.Pod) (m LocalMember, found bool) {
	flags := EtcdFlags(pod)
	flag := func(name string) string { return lastValue(flags, name) }
	m = LocalMember{
		Name: flag("name"), DataDir: flag("data-dir"), WALDir: flag("wal-dir"), ConfigFile: flag("config-file"),
		Initial: readInitialCluster(flag("initial-cluster")), Joined: flag("initial-cluster-state") == "existing",
	}
	peers := strings.Split(flag("initial-advertise-peer-urls"), ",")
	m.PeerURL, m.MorePeerURLs = peers[0], peers[1:]
	if urls := flag("advertise-client-urls"); urls != "" {
		m.ClientURLs = strings.Split(urls, ",")
	}
	return m, m.PeerURL != ""
}

// PeerURLs are all the URLs for other members.
func (m LocalMember) PeerURLs() []string { return append([]string{m.PeerURL}, m.MorePeerURLs...) }

// defaultQuota is etcd's, in bytes.
const defaultQuota = 2 << 30

// EtcdQuota returns how many bytes the database of a static Pod's etcd may have. A value that etcd can't read counts as none.
func EtcdQuota(pod *corev1.Pod) int64 {
	quota, err := strconv.ParseInt(lastValue(EtcdFlags(pod), "quota-backend-bytes"), 0, 64)
	switch {
	case err != nil || quota == 0:
		return defaultQuota
	case quota < 0:
		return math.MaxInt64
	}
	return quota
}

func readInitialCluster(value string) []Member {
	var all []Member
	for pair := range strings.SplitSeq(value, ",") {
		if name, url, ok := strings.Cut(pair, "="); ok {
			all = append(all, Member{name, url})
		}
	}
	return all
}

// Endpoints returns the initial members' client URLs, assuming the default port, then its own, as it may have no vote yet.
func (m LocalMember) Endpoints() []string {
	var urls []string
	for _, peer := range m.Initial {
		u, err := url.Parse(peer.PeerURL)
		if err == nil && !slices.Contains(m.PeerURLs(), peer.PeerURL) {
			urls = append(urls, etcdURL(u.Hostname(), etcdClientPort))
		}
	}
	return append(urls, m.ClientURLs...)
}

// PeerURL returns the URL at which other members reach an etcd with this address.
func PeerURL(address string) string { return etcdURL(address, etcdPeerPort) }

// EtcdLocalPeerURL returns n's peer URL on the loopback interface, for an etcd whose --listen-peer-urls include it.
func EtcdLocalPeerURL(n *config.Node) string { return PeerURL(loopback(n)) }

// EtcdLocalURL returns the client URL of n's etcd on this host.
func EtcdLocalURL(n *config.Node) string { return etcdURL(loopback(n), etcdClientPort) }
