// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path"
)

// Where a cluster keeps its configuration; errors of LoadCluster name them.
const (
	ClusterSource   = "ConfigMap kube-system/kubeadm-config"
	KubeletSource   = "ConfigMap kube-system/kubelet-config"
	KubeProxySource = "ConfigMap kube-system/kube-proxy"
)

// LoadCluster makes the desired state of a node of a cluster that exists, from
// what the cluster keeps and what the node says of itself.
//
// clusterConfiguration is the key ClusterConfiguration of ConfigMap
// kube-system/kubeadm-config, kubelet the key kubelet of kubelet-config,
// kubeProxy the key config.conf of kube-proxy; an empty one of the latter two
// counts as all defaults. self is what LoadJoin returns, nil for a node about
// which nothing but the host's facts are known; its discovery is not looked
// at. A node with self.ControlPlane becomes or is a control plane. A node of
// the result has no bootstrap tokens.
//
// The ConfigMaps come from outside: they are read as strictly as a user's
// file, nothing that they leave open is asked from the network, and paths in
// them must be absolute and in their shortest form. Bad input is returned as
// Faults whose file is the ConfigMap.
func LoadCluster(clusterConfiguration, kubelet, kubeProxy []byte, self *JoinConfiguration, opts Options) (*Node, []string, error) {
	d := &documents{origins: make(map[string]*origin)}
	d.addStored(ClusterSource, kindCluster, clusterConfiguration)
	if len(kubelet) > 0 {
		d.addStored(KubeletSource, kindKubelet, kubelet)
	}
	if len(kubeProxy) > 0 {
		d.addStored(KubeProxySource, kindKubeProxy, kubeProxy)
	}
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	d.completeStored(self, opts)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	n, err := d.node(&InitFlags{}, opts)
	if err != nil {
		return nil, d.warningTexts(), err
	}
	n.ControlPlane = d.join.ControlPlane != nil
	return n, d.warningTexts(), nil
}

// addStored reads a ConfigMap's value, which is one document of one kind.
func (d *documents) addStored(source, kind string, data []byte) {
	docs := parse(&Source{Name: source, Data: data}, &d.findings)
	if len(docs) != 1 {
		d.fault(Fault{File: source, Message: fmt.Sprintf("holds %d documents instead of one %s", len(docs), kind)})
		return
	}
	if got, line := textField(docs[0].root, "kind"); got != kind {
		d.fault(Fault{File: source, Line: line, Field: "kind", Message: fmt.Sprintf("must be %s, is %q", kind, printable(got))})
		return
	}
	d.add(source, docs[0])
}

// completeStored defaults and validates what a cluster keeps together with
// what the node says of itself.
func (d *documents) completeStored(self *JoinConfiguration, opts Options) {
	d.checkStoredVersion()
	defaultCluster(d.cluster)
	d.checkNetworking()
	d.takeSelf(self, opts)
	d.checkCluster()
	d.checkStoredPaths()
	d.cluster.ControlPlaneEndpoint = withPort(d.cluster.ControlPlaneEndpoint, d.init.LocalAPIEndpoint.BindPort)
	d.checkComponents()
	d.completeComponents(opts.Facts)
}

// takeSelf gives the node's own part the place that it has in the
// configuration of a first control plane.
func (d *documents) takeSelf(self *JoinConfiguration, opts Options) {
	d.join = &JoinConfiguration{}
	if self != nil {
		d.join = new(*self)
	}
	c := d.join
	d.serial = self != nil && c.NodeRegistration.ImagePullSerial != nil && *c.NodeRegistration.ImagePullSerial
	primary := firstPrefix(d.cluster.Networking.ServiceSubnet)
	if c.ControlPlane != nil {
		c.ControlPlane = new(*c.ControlPlane)
		defaultEndpoint(&c.ControlPlane.LocalAPIEndpoint, opts.Facts, primary)
	}
	defaultJoin(c, opts.Facts)
	d.init = &InitConfiguration{
		NodeRegistration: c.NodeRegistration, DryRun: c.DryRun, SkipPhases: c.SkipPhases,
		Patches: c.Patches, Timeouts: c.Timeouts,
		LocalAPIEndpoint: APIEndpoint{BindPort: DefaultBindPort},
	}
	if c.ControlPlane == nil {
		return
	}
	d.init.LocalAPIEndpoint = c.ControlPlane.LocalAPIEndpoint
	d.init.CertificateKey = c.ControlPlane.CertificateKey
	if d.init.LocalAPIEndpoint.AdvertiseAddress == "" && (c.DryRun || opts.Placeholders) {
		d.placeholderAddress(primary)
	}
	d.checkAdvertise(kindJoin, "controlPlane.localAPIEndpoint.advertiseAddress", d.init.LocalAPIEndpoint.AdvertiseAddress, d.clusterNetworks())
	d.checkFamilies()
}

// checkStoredVersion takes an exact version only: the network is not asked
// what a label in somebody's ConfigMap stands for.
func (d *documents) checkStoredVersion() {
	c := d.cluster
	switch version := c.KubernetesVersion; {
	case version == "":
		d.faultf(kindCluster, "kubernetesVersion", "is missing")
	case !exactVersion().MatchString(version):
		d.faultf(kindCluster, "kubernetesVersion", "%q is no version such as %s", printable(version), DefaultKubernetesVersion)
	case versionFault(version) != "":
		d.faultf(kindCluster, "kubernetesVersion", "%q %s", printable(version), versionFault(version))
	case version[0] != 'v':
		c.KubernetesVersion = "v" + version
	}
}

// checkStoredPaths refuses paths that do not say plainly where they lead: this
// node reads and writes there as root because somebody else's ConfigMap says
// so.
func (d *documents) checkStoredPaths() {
	c := d.cluster
	d.checkClean("certificatesDir", c.CertificatesDir)
	if l := c.Etcd.Local; l != nil {
		d.checkClean("etcd.local.dataDir", l.DataDir)
	}
	if x := c.Etcd.External; x != nil {
		d.checkClean("etcd.external.caFile", x.CAFile)
		d.checkClean("etcd.external.certFile", x.CertFile)
		d.checkClean("etcd.external.keyFile", x.KeyFile)
	}
}

func (d *documents) checkClean(field, file string) {
	if path.IsAbs(file) && path.Clean(file) != file {
		d.faultf(kindCluster, field, "%q must be in its shortest form, %s", printable(file), printable(path.Clean(file)))
	}
}

// address reads an address that may be left open: a worker has no API server.
func address(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	return netip.ParseAddr(text)
}

// DefaultCluster is what LoadCluster reads where there is no cluster to ask.
func DefaultCluster() []byte {
	return fmt.Appendf(nil, "apiVersion: %s\nkind: %s\nkubernetesVersion: %s\n", apiV1beta4, kindCluster, DefaultKubernetesVersion)
}
