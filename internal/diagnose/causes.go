// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/etcd"
)

// Causes returns the table of known causes, most specific first. docs/diagnose.md explains them.
func Causes() []Cause {
	return slices.Concat([]Cause{
		{Name: "kubelet-unit", Summary: "the kubelet's unit is missing, masked or stopped, or there is no systemd to start it", look: kubeletUnit},
		{Name: "swap", Summary: "swap is on, and the kubelet refuses to run with it", look: swap},
		{Name: "cgroup-version", Summary: "the kubelet refuses to run on this host's cgroup version", look: cgroupVersion},
		{Name: "cgroup-driver", Summary: "the kubelet and the container runtime use different cgroup drivers", look: cgroupDriver},
		{Name: "runtime-down", Summary: "the container runtime does not answer", look: runtimeDown},
		{Name: "disk-full", Summary: "a file system is full", look: diskFull},
		{Name: "kubelet-config", Summary: "the kubelet does not accept its configuration", look: kubeletConfig},
		{Name: "bad-flag", Summary: "the kubelet or a static Pod has a flag that it does not accept", look: badFlag},
		{Name: "port-taken", Summary: "another program listens on a port that a component needs", look: portTaken},
		{Name: "address-changed", Summary: "the node's address is not on this host any more", look: addressChanged},
		{Name: "address-missing", Summary: "a component is told to listen on an address that this host does not have", look: addressMissing},
		{Name: "clock", Summary: "this host's clock is wrong", look: clock},
		{Name: "certificate", Summary: "a certificate has expired, is missing, or does not fit its key or its use", look: certificate},
		{Name: "kubelet-serving", Summary: "the kubelet's serving certificate expires, and nobody has approved its request for the next", look: kubeletServing},
		{Name: "ca-mismatch", Summary: "two sides trust different CAs", look: caMismatch},
	}, etcdCauses(), []Cause{
		{Name: "image", Summary: "an image is missing and cannot be pulled", look: image},
		{Name: "pod-sandbox", Summary: "no Pod can start, because its sandbox cannot be created", look: podSandbox},
		{Name: "name-unknown", Summary: "a name does not resolve", look: nameUnknown},
		{Name: "proxy", Summary: "a proxy blocks requests to the cluster", look: proxy},
		{Name: "node-name", Summary: "the kubelet's certificate is of a node with another name", look: nodeName},
		{Name: "forbidden", Summary: "the API server gives nodes no rights", look: forbidden},
		{Name: "unauthorized", Summary: "the API server refuses probes, or does not accept the kubelet's credentials", look: unauthorized},
		{Name: "webhook", Summary: "an admission webhook fails or rejects requests", look: webhook},
		{Name: "manifest-copy", Summary: "several manifests are the same Pod", look: manifestTwice},
		{Name: "static-pod", Summary: "the kubelet cannot use a manifest or create its container", look: staticPodUnusable},
		{Name: "manifest-missing", Summary: "a component of the control plane has no manifest", look: manifestMissing},
		{Name: "encryption-file", Summary: "the API server's file with encryption keys is missing", look: encryptionFileMissing},
		{Name: "container-crash", Summary: "a container of a static Pod keeps crashing", fallback: true, look: containerCrash},
		{Name: "kubelet-crash", Summary: "the kubelet keeps crashing", fallback: true, look: kubeletCrash},
		{Name: "etcd-unhealthy", Summary: "etcd runs, but is not healthy", fallback: true, look: etcdUnhealthy},
		{Name: "apiserver-unhealthy", Summary: "the API server runs, but is not healthy", fallback: true, look: apiServerUnhealthy},
		{Name: "apiserver-unreachable", Summary: "no API server on another host answers this one", fallback: true, look: apiServerUnreachable},
		{Name: "not-running", Summary: "a static Pod has no container", fallback: true, look: notRunning},
	})
}

func etcdCauses() []Cause {
	return []Cause{
		{Name: "etcd-interrupted", Summary: "a command that gives etcd other data was interrupted, and has taken its manifest away", look: etcdInterrupted},
		{Name: "etcd-member", Summary: "etcd is not a member of its cluster", look: etcdMember},
		{Name: "etcd-data", Summary: "etcd cannot use its data directory", look: etcdData},
		{Name: etcd.Corrupt, Summary: "the members of etcd do not have the same data", look: concern(etcd.Corrupt)},
		{Name: etcd.NoSpace, Summary: "etcd's database has reached its quota", look: etcdSpace},
		{Name: etcd.NearQuota, Summary: "etcd's database is near its quota", look: concern(etcd.NearQuota)},
		{Name: etcd.NotStarted, Summary: "a member was added to etcd, but has never started", look: concern(etcd.NotStarted)},
		{Name: etcd.Learner, Summary: "a member of etcd is still a learner, which has no vote", look: concern(etcd.Learner)},
		{Name: etcd.Lagging, Summary: "a member of etcd is far behind the others", look: concern(etcd.Lagging)},
		{Name: "etcd-unknown-peer", Summary: "etcd waits for a member that never existed", look: etcdUnknownPeer},
		{Name: "etcd-slow-disk", Summary: "etcd's disk is too slow", look: etcdSlowDisk},
		{Name: "etcd-unreachable", Summary: "an etcd on other hosts does not answer", look: etcdUnreachable},
	}
}
