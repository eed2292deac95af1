// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// fixedField is a field nobody can change on a live cluster.
type fixedField struct {
	source, path string
	reason       string
	instead      string // what to do; empty if nothing helps but a new cluster
}

const (
	networkReason = "the networks of Pods and Services are in certificates, running Pods and every node's routes"
	domainReason  = "running Pods have the domain in their resolv.conf, and certificates have it as a name"
	newCluster    = "make a new cluster, and move the workloads there"
)

// fixedFields lists the fixed fields, each with its reason and an alternative. A row includes the fields below it, except
// where the field itself only comes or goes (wholeFields).
func fixedFields() []fixedField {
	of, kubelet, proxy := config.ClusterSource, config.KubeletSource, config.KubeProxySource
	return []fixedField{
		{of, "kubernetesVersion", "a change of the configuration keeps the version", "`slipway upgrade apply` changes it"},
		{of, "networking.podSubnet", networkReason, newCluster},
		{of, "networking.serviceSubnet", networkReason, newCluster},
		{of, "networking.dnsDomain", domainReason, newCluster},
		{of, "clusterName", "kubeconfig files and the controller manager have it", newCluster},
		{of, "certificatesDir", "the CAs' keys and all manifests refer to it", "mount another disk at the same path"},
		{of, "encryptionAlgorithm", "the existing keys already have an algorithm", "`slipway certs renew` gives certificates new keys; for the CA's, replace the CA"},
		{of, "featureGates", "they decide how `init` builds a cluster", newCluster},
		{of, "etcd.local.dataDir", "etcd would start without its data", "stop the control plane, move the directory, and mount it at the same path"},
		{of, "etcd.local.imageTag", "etcd's version changes with an upgrade, which takes a snapshot first", "`slipway upgrade apply`"},
		{of, "etcd.local", "the cluster's data is in the etcd it has", newCluster},
		{of, "etcd.external", "the cluster's data is in the etcd it has", newCluster},
		{of, "dns.disabled", "it decides whether `init` installs CoreDNS", "`slipway init phase addon coredns --config FILE` installs it, and `kubectl` deletes it"},
		{of, "proxy.disabled", "it decides whether `init` installs kube-proxy", "`slipway init phase addon kube-proxy --config FILE` installs it, and `kubectl` deletes it"},
		{kubelet, "clusterDomain", domainReason, newCluster},
		{kubelet, "staticPodPath", "the control plane's static Pods are there", ""},
		{kubelet, "cgroupDriver", "it has to match the container runtime's, and a node's Pods don't survive the change", "drain each node, and change both there"},
		{proxy, "clusterCIDR", networkReason, newCluster},
	}
}

// wholeFields are fixed only as a whole: the fields below them may change.
var wholeFields = []string{"etcd.local", "etcd.external"}

func (f fixedField) fits(changed Field) bool {
	switch {
	case f.source != changed.Source:
		return false
	case f.path == changed.Path:
		return true
	}
	return strings.HasPrefix(changed.Path, f.path+".") && !slices.Contains(wholeFields, f.path)
}

// refused returns a fault for each changed fixed field.
func refused(present, next *config.Node, changed []Field, parts map[string]config.Part) error {
	var faults config.Faults
	add := func(source, path, reason, instead string) {
		f := config.Fault{File: source, Field: path, Message: "cannot change on a live cluster: " + reason}
		if instead != "" {
			f.Message += "; " + instead
		}
		f, _ = parts[source].Locate(f)
		faults = append(faults, f)
	}
	for _, c := range changed {
		if c.Source == config.ClusterSource && c.Path == "controlPlaneEndpoint" && c.After == nil && parts != nil { // taking it back is checked on the node
			add(c.Source, c.Path, "without it, nodes would know only one control plane", "name another address that leads to the API servers")
		}
		for _, f := range fixedFields() {
			if f.fits(c) {
				add(c.Source, c.Path, f.reason, f.instead)
				break
			}
		}
		for _, a := range fixedArgs() {
			if a.name == advertiseArg && parts == nil { // --revert may bring it back, as it worked before
				continue
			}
			if field, differs := a.differs(c, &present.Cluster, &next.Cluster); differs {
				add(c.Source, field, a.writtenIn(field)+": "+a.reason, a.instead)
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return faults
}
