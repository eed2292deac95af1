// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// EtcdAPITimeout bounds asking the API for members if this host's static Pod already names some: the API may be down, for example
// after the loss of a quorum.
const EtcdAPITimeout = 3 * time.Second

// OwnEtcdEndpoints returns a function that finds the client URLs of this host's etcd member. It needs no API server.
func OwnEtcdEndpoints(h host.Host, p config.Paths) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) {
		member, found := EtcdMember(h, p)
		if by, interrupted, _ := InterruptedEtcd(h, p.Kubernetes); !found && interrupted {
			return nil, by
		}
		if !found {
			return nil, errors.New("the static Pod of etcd does not say which member it is")
		}
		return member.Endpoints(), nil
	}
}

// NoEtcdPodError is the error of EtcdEndpoints if no Pod in the API names a member's client URL. On a new control plane it passes: the
// kubelet reports a static Pod some seconds after it has registered its node.
type NoEtcdPodError struct {
	// Silent names etcd's Pods without the annotation.
	Silent []string
	// Refused says which Pods aren't believed, and why. Unmarked lists the Nodes of refused Pods that lack the control plane
	// label.
	Refused  []error
	Unmarked []string
}

func (e *NoEtcdPodError) Error() string {
	var refused strings.Builder
	for _, r := range e.Refused {
		refused.WriteString("; " + r.Error())
	}
	if len(e.Silent) > 0 {
		return fmt.Sprintf("no etcd Pod of the cluster has the annotation %s, which names its member's client URLs: %s lack it",
			manifests.EtcdURLsAnnotation, strings.Join(e.Silent, ", ")) + refused.String()
	}
	return "the cluster has no etcd Pod on its control planes; is its etcd external?" + refused.String()
}

// Remedy says how to find the Pods, or which nodes to label.
func (e *NoEtcdPodError) Remedy() string {
	if len(e.Unmarked) > 0 {
		return "if " + strings.Join(e.Unmarked, ", ") + " is a control plane, label it: `kubectl label node NAME " + cluster.LabelControlPlane + "=`; " +
			"if it is a worker, find out who runs its Pod, and do not trust it"
	}
	return "on a control plane, `kubectl -n kube-system get pods -l component=etcd` shows these Pods, and `slipway diagnose` why one is missing"
}

// EtcdEndpoints returns a function that finds the client URLs of etcd's members, in this host's static Pod and in the API's Pods of
// control planes; if the API doesn't answer, in the data of this host's etcd. It leaves out Pods that aren't believed and invalid
// URLs, with one warning each. If nothing is left, the error is a *NoEtcdPodError.
func EtcdEndpoints(h host.Host, api cluster.Cluster, n *config.Node, u ui.UI) func(context.Context) ([]string, error) {
	var warned sync.Map
	return func(ctx context.Context) ([]string, error) {
		var urls []string
		own := ""
		if member, found := EtcdMember(h, n.Paths); found {
			urls, own = member.Endpoints(), n.Name
			limited, cancel := context.WithTimeout(ctx, EtcdAPITimeout)
			defer cancel()
			ctx = limited
		}
		pods, err := lookUp(ctx, api, own)
		switch {
		case err != nil && len(urls) == 0:
			if by, interrupted, _ := InterruptedEtcd(h, n.Paths.Kubernetes); interrupted { // so the API can't work
				return nil, by
			}
			return nil, err
		case err != nil:
			pods = inAPI{urls: storedURLs(h, n.Paths)}
		}
		for _, fault := range slices.Concat(pods.refused, pods.invalid) {
			if _, before := warned.LoadOrStore(fault.Error(), true); !before {
				u.Warnf("%s; this member is not asked", fault)
			}
		}
		for _, url := range pods.urls {
			if !slices.Contains(urls, url) {
				urls = append(urls, url)
			}
		}
		switch {
		case len(urls) == 0 && len(pods.invalid) > 0:
			return nil, pods.invalid[0]
		case len(urls) == 0:
			return nil, &NoEtcdPodError{Silent: pods.silent, Refused: pods.refused, Unmarked: pods.unmarked}
		}
		return urls, nil
	}
}

// storedURLs returns the client URLs of all members that this host's etcd knew when it stopped. Its static Pod names only the members of
// the time it joined, and a running etcd reports its members itself.
func storedURLs(h host.Host, p config.Paths) (urls []string) {
	pod, _ := StaticPod(h, p.StaticPod(manifests.EtcdName))
	member, _ := manifests.ReadEtcd(pod)
	database, mounted := OnHost(pod, path.Join(member.DataDir, "member", "snap", "db"))
	if !mounted {
		return nil
	}
	f, err := h.Open(database)
	if err != nil {
		return nil
	}
	defer f.Close()
	members, err := etcd.StoredMembers(f)
	if err != nil {
		return nil
	}
	for _, m := range members {
		urls = append(urls, slices.DeleteFunc(m.ClientURLs, func(url string) bool { return etcd.CheckClientURL(url) != nil })...)
	}
	return urls
}

// KnownEtcdMembers returns the members this host's static Pod of etcd was started with, including its own; none without such a Pod.
func KnownEtcdMembers(h host.Host, p config.Paths) []etcd.Member {
	local, _ := EtcdMember(h, p)
	var members []etcd.Member
	for _, m := range local.Initial {
		members = append(members, etcd.Member{Name: m.Name, PeerURL: m.PeerURL})
	}
	return members
}

// EtcdMember returns the member described by this host's static Pod of etcd.
func EtcdMember(h host.Host, p config.Paths) (manifests.LocalMember, bool) {
	pod, _ := StaticPod(h, p.StaticPod(manifests.EtcdName))
	return manifests.ReadEtcd(pod)
}

// ExternalEtcd returns the etcd on other hosts that this host's API server uses, by its static Pod; nil if there's none.
func ExternalEtcd(h host.Host, p config.Paths) *config.ExternalEtcd {
	pod, found := StaticPod(h, p.StaticPod(manifests.APIServerName))
	if _, local := EtcdMember(h, p); local || !found {
		return nil
	}
	external := &config.ExternalEtcd{
		CAFile: manifests.FlagOf(pod, "etcd-cafile"), CertFile: manifests.FlagOf(pod, "etcd-certfile"), KeyFile: manifests.FlagOf(pod, "etcd-keyfile"),
	}
	for text := range strings.SplitSeq(manifests.FlagOf(pod, "etcd-servers"), ",") {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" {
			continue
		}
		if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
			external.Endpoints = append(external.Endpoints, text)
		}
	}
	if len(external.Endpoints) == 0 {
		return nil
	}
	return external
}
