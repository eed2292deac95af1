// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// secondOpinion bounds asking the API for members where the static Pod of this
// host names some already: the API may be down, as after losing a quorum.
const secondOpinion = 3 * time.Second

// EtcdEndpoints returns what finds the client URLs of etcd's members: those
// that the static Pod on this host names, and those whose Pods the API has.
func EtcdEndpoints(h host.Host, api cluster.Cluster, n *config.Node) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var urls []string
		if member, found := localMember(h, n); found {
			urls = member.Endpoints()
			limited, cancel := context.WithTimeout(ctx, secondOpinion)
			defer cancel()
			ctx = limited
		}
		pods, err := api.Pods(ctx, metav1.NamespaceSystem, "component=etcd,tier=control-plane")
		if err != nil && len(urls) == 0 {
			return nil, err
		}
		for _, pod := range pods {
			for url := range strings.SplitSeq(pod.Annotations[manifests.EtcdURLsAnnotation], ",") {
				if url != "" && !slices.Contains(urls, url) {
					urls = append(urls, url)
				}
			}
		}
		if len(urls) == 0 {
			return nil, errors.New("the cluster has no Pod of an etcd that runs on its control planes: is its etcd external?")
		}
		return urls, nil
	}
}

// KnownMembers are those that the static Pod of etcd on this host was started
// with, itself among them; none where there is no such Pod.
func KnownMembers(h host.Host, n *config.Node) []etcd.Member {
	local, _ := localMember(h, n)
	var members []etcd.Member
	for _, m := range local.Initial {
		members = append(members, etcd.Member{Name: m.Name, PeerURL: m.PeerURL})
	}
	return members
}

// localMember is what the static Pod of etcd on this host says of its member.
func localMember(h host.Host, n *config.Node) (manifests.LocalMember, bool) {
	data, err := h.ReadFile(filepath.Join(n.Paths.Manifests, manifests.EtcdName+".yaml"))
	if err != nil {
		return manifests.LocalMember{}, false
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(data, &pod); err != nil {
		return manifests.LocalMember{}, false
	}
	return manifests.ReadEtcd(&pod)
}
