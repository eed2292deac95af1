// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

// EtcdURLsAnnotation is where the Pod of a local etcd tells its client URLs,
// separated by commas.
const EtcdURLsAnnotation = "kubeadm.kubernetes.io/etcd.advertise-client-urls"

// LocalMember is a member of etcd as its static Pod describes it.
type LocalMember struct {
	Name       string
	PeerURL    string
	ClientURLs []string
	DataDir    string
	// WALDir is where its write-ahead log is, if not below DataDir.
	WALDir string
	// Initial are the members that it was started with, itself among them.
	Initial []Member
}

// ReadEtcd reads the arguments of a static Pod of etcd; found is false for a
// Pod that does not say where its peers find it.
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

// Endpoints lists the client URLs of this member and of those that it was
// started with, this one last: it may not have a vote yet. A peer is taken to
// serve its clients at the usual port.
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

// PeerURL is where the other members find an etcd at address.
func PeerURL(address string) string { return etcdURL(address, etcdPeerPort) }

// EtcdLocalURL is where an etcd of n serves its clients on this host.
func EtcdLocalURL(n *config.Node) string { return etcdURL(loopback(n), etcdClientPort) }
