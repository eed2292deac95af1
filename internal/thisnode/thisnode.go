// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package thisnode reads this host's state as a node: its cluster, its kubelet's settings, and the members of etcd, from its
// static Pod and from the Pods in the API. Its functions take a host and a Node (IsControlPlane, HasBegun and StaticPod are used
// most), and change nothing.
package thisnode

import (
	"io/fs"
	"net/netip"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

// PreparedPath is the record of the host's preparation.
const PreparedPath = "/var/lib/slipway/host.json"

// Current is this host as a control plane node, from its files: its kubelet's name and runtime, its API server's address, and the
// timeouts that its static Pods tell. Missing values stay empty, for the defaults.
func Current(h host.Host) *config.JoinConfiguration {
	n := &config.JoinConfiguration{ControlPlane: &config.JoinControlPlane{}}
	n.NodeRegistration.Name = certifiedName(h)
	n.NodeRegistration.CRISocket = KubeletSocket(h)
	n.ControlPlane.LocalAPIEndpoint = Advertised(h)
	n.Timeouts = WithStartupTime(h, &config.Timeouts{})
	return n
}

// APIServerManifest is the static Pod of a control plane's API server.
var APIServerManifest = filepath.Join(config.DefaultKubernetesDir, "manifests", manifests.APIServerName+".yaml")

// IsControlPlane reports whether this host has an API server, or has begun to get it.
func IsControlPlane(h host.Host) bool {
	_, err := h.Lstat(APIServerManifest)
	return err == nil
}

// HasBegun reports whether an earlier run has begun to make this host the node n describes. If so, operators' later edits stay.
func HasBegun(h host.Host, n *config.Node) bool {
	return IsControlPlane(h) || n.Join != nil && (HasJoined(h, n) || h.CreatedBySlipway(n.Paths.BootstrapKubeconfig()))
}

// NodeEvidence is a file that makes this host a node or part of one: its kubelet's kubeconfig file, or a static Pod; "" if there's
// none. The static Pods' directory is no sign, because the kubelet's packages bring it.
func NodeEvidence(h host.Reader, p config.Paths) (string, error) {
	for _, path := range []string{p.KubeletKubeconfig(), p.BootstrapKubeconfig()} {
		if _, err := h.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, err
		}
	}
	pods, err := host.VisibleFiles(h, p.Manifests)
	if err != nil || len(pods) == 0 {
		return "", host.IgnoreMissing(err)
	}
	return pods[0], nil
}

// StaticPod reads a static Pod. found is false if it's missing, unreadable or broken, or has no container.
func StaticPod(h host.Host, path string) (pod *corev1.Pod, found bool) {
	data, err := h.ReadFile(path)
	if err != nil {
		return nil, false
	}
	pod, err = manifests.DecodePod(data)
	return pod, err == nil
}

// CertificatesDir returns the certificates directory of this host's control plane, by its API server's static Pod; the default if that
// doesn't say.
func CertificatesDir(h host.Host) string {
	if pod, found := StaticPod(h, APIServerManifest); found {
		for _, v := range pod.Spec.Volumes {
			if v.Name == manifests.CertificatesVolume && v.HostPath != nil && path.IsAbs(v.HostPath.Path) {
				return path.Clean(v.HostPath.Path)
			}
		}
	}
	return config.DefaultCertificatesDir
}

// WithStartupTime returns a run's timeouts for this node. Its static Pods' startup probes follow one of them, which the cluster
// doesn't store, so it stays as the node was made, unless the user gives it. If it's longer than the default wait for upgraded
// components, that wait gets as long: some commands read no timeouts.
func WithStartupTime(h host.Host, given *config.Timeouts) *config.Timeouts {
	asMade, usual, kept := startupTime(h), config.DefaultLimits(), *given
	if asMade == 0 || isSet(given.ControlPlaneComponentHealthCheck, usual.ControlPlaneComponentHealthCheck) {
		return given
	}
	limit := &metav1.Duration{Duration: asMade}
	kept.ControlPlaneComponentHealthCheck = limit
	if asMade > usual.UpgradeManifests && !isSet(given.UpgradeManifests, usual.UpgradeManifests) {
		kept.UpgradeManifests = limit
	}
	return &kept
}

func isSet(d *metav1.Duration, usual time.Duration) bool { return d != nil && d.Duration != usual }

// startupTime is how long the kubelet gives this node's API server to start, from its static Pod; 0 if unknown.
func startupTime(h host.Host) time.Duration {
	pod, found := StaticPod(h, APIServerManifest)
	if !found || pod.Spec.Containers[0].StartupProbe == nil {
		return 0
	}
	probe := pod.Spec.Containers[0].StartupProbe
	return time.Duration(probe.FailureThreshold*probe.PeriodSeconds) * time.Second
}

// Advertised is the address of this host's API server, by its static Pod; empty if unknown.
func Advertised(h host.Host) config.APIEndpoint {
	pod, found := StaticPod(h, APIServerManifest)
	if !found {
		return config.APIEndpoint{}
	}
	endpoint, err := netip.ParseAddrPort(pod.Annotations[manifests.AdvertiseAnnotation])
	if err != nil {
		return config.APIEndpoint{}
	}
	return config.APIEndpoint{AdvertiseAddress: endpoint.Addr().String(), BindPort: int32(endpoint.Port())}
}

// OnHost maps a path in a Pod's first container to the host, by the innermost mount. found is false if it's elsewhere: in the image,
// for example.
func OnHost(pod *corev1.Pod, inContainer string) (onHost string, found bool) {
	if pod == nil || len(pod.Spec.Containers) == 0 {
		return "", false
	}
	longest := -1
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		at := strings.TrimSuffix(path.Clean(m.MountPath), "/")
		rest, within := strings.CutPrefix(path.Clean(inContainer), at)
		if !within || rest != "" && rest[0] != '/' || len(at) <= longest {
			continue
		}
		longest, onHost, found = len(at), "", false
		for _, v := range pod.Spec.Volumes {
			if v.Name == m.Name && v.HostPath != nil {
				onHost, found = path.Join(v.HostPath.Path, m.SubPath, rest), true
			}
		}
	}
	return onHost, found
}

// OnHostOr is OnHost, but returns the path itself if the host has none.
func OnHostOr(pod *corev1.Pod, path string) string {
	if onHost, found := OnHost(pod, path); found {
		return onHost
	}
	return path
}

// JoinUnfinished is the path of a file that exists from the start of a control plane's first join until its components are
// healthy. Nothing else distinguishes a broken from a complete control plane: its kubelet registers its Node before they're
// healthy, and administrators may remove the Node's marks afterwards. Nodes joined by kubeadm or an older Slipway lack the file.
func JoinUnfinished(n *config.Node) string {
	return filepath.Join(n.Paths.Kubelet, "slipway-join-unfinished")
}

// SeemsUnfinished reports whether the init or join that began to make this host the node n describes didn't finish, as far as
// this host shows.
//
// After an init, kubelet.conf names the certificate the kubelet rotates. If it doesn't rotate any, only the cluster knows whether
// the init finished. A join has finished once the kubelet has its certificate and has registered its Node, and a control plane's
// components have been healthy. Its marks say less: they can be left out, or removed. A control plane that has joined still has
// them if it loses the certificate.
func SeemsUnfinished(h host.Host, n *config.Node) bool {
	switch {
	case n.Upgrade != nil || n.Reset != nil:
		return false
	case n.Join != nil && joinUnfinished(h, n):
		return true
	case n.Join != nil && HasJoined(h, n):
		return h.CreatedBySlipway(n.Paths.BootstrapKubeconfig()) && n.Join.NodeGone
	case n.Join != nil:
		return h.CreatedBySlipway(n.Paths.BootstrapKubeconfig()) || !n.Join.Marked
	}
	path := n.Paths.KubeletKubeconfig()
	data, err := h.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return !IsControlPlane(h)
	}
	if err != nil || !h.Unchanged(path) {
		return false
	}
	_, elsewhere, err := kubeconfig.ClientCertificate(data)
	return err == nil && elsewhere == ""
}

func joinUnfinished(h host.Host, n *config.Node) bool {
	_, err := h.Lstat(JoinUnfinished(n))
	return n.ControlPlane && err == nil
}
