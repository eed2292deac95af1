// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

// EtcdURLsAnnotation is the annotation of an etcd Pod with its client URLs, separated by commas.
const EtcdURLsAnnotation = "kubeadm.kubernetes.io/etcd.advertise-client-urls"

// LocalMember is a member of etcd as its static Pod describes it.
type LocalMember struct {
	Name       string
	PeerURL    string
	ClientURLs []string
	DataDir    string
	// WALDir is the directory of its write-ahead log, if that isn't below DataDir.
	WALDir string
	// Initial are the members it was started with, itself included.
	Initial []Member
	// Joined reports whether it was started as a member of an existing cluster.
	Joined bool
}

// ReadEtcd reads the arguments of etcd's static Pod; found is false if they contain no peer URL.
func ReadEtcd(pod *corev1.Pod) (m LocalMember, found bool) {
	if len(pod.Spec.Containers) == 0 {
		return m, false
	}
	c := pod.Spec.Containers[0]
	for _, arg := range append(c.Command, c.Args...) {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch name {
		case "name":
			m.Name = value
		case "initial-advertise-peer-urls":
			m.PeerURL, _, _ = strings.Cut(value, ",")
		case "advertise-client-urls":
			m.ClientURLs = strings.Split(value, ",")
		case "data-dir":
			m.DataDir = value
		case "wal-dir":
			m.WALDir = value
		case "initial-cluster":
			m.Initial = readInitialCluster(value)
		case "initial-cluster-state":
			m.Joined = value == "existing"
		}
	}
	return m, m.PeerURL != ""
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
		if err == nil && peer.PeerURL != m.PeerURL {
			urls = append(urls, etcdURL(u.Hostname(), etcdClientPort))
		}
	}
	return append(urls, m.ClientURLs...)
}

// PeerURL returns the peer URL of the etcd at an address.
func PeerURL(address string) string { return etcdURL(address, etcdPeerPort) }

// EtcdLocalURL returns the client URL of n's etcd on this host.
func EtcdLocalURL(n *config.Node) string { return etcdURL(loopback(n), etcdClientPort) }
