// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// The ConfigMaps that store a cluster's configuration; errors of LoadCluster name them.
const (
	ClusterSource   = "ConfigMap kube-system/kubeadm-config"
	KubeletSource   = "ConfigMap kube-system/kubelet-config"
	KubeProxySource = "ConfigMap kube-system/kube-proxy"
)

func storedKinds() map[string]string {
	return map[string]string{ClusterSource: kindCluster, KubeletSource: kindKubelet, KubeProxySource: kindKubeProxy}
}

// LoadCluster returns the desired state of a node of an existing cluster, from the cluster's stored configuration and the node's
// own settings.
//
// clusterConfiguration is the key ClusterConfiguration of the ConfigMap kube-system/kubeadm-config, kubelet the key kubelet of
// kubelet-config, and kubeProxy the key config.conf of kube-proxy; the latter two may be empty for all defaults. self comes from
// LoadJoin, or is nil if only the host's facts are known; its discovery only says that the node joins. A node with
// self.ControlPlane becomes or is a control plane. The result has no bootstrap tokens.
//
// Older and newer versions, and people, have written these ConfigMaps: unknown fields and feature gates are warnings, and the
// Node's documents keep them. Their values come from outside, so they're checked like a user's; labels aren't resolved over the
// network, and paths must be absolute and mustn't go upward. Invalid input is returned as Faults whose file is the ConfigMap.
func LoadCluster(clusterConfiguration, kubelet, kubeProxy []byte, self *JoinConfiguration, opts Options) (*Node, []string, error) {
	d := newStored()
	d.addStored(ClusterSource, kindCluster, clusterConfiguration)
	if d.cluster != nil {
		d.cluster.KubernetesVersion = cmp.Or(opts.Version, d.cluster.KubernetesVersion)
	}
	if err := d.unsupported(); err != nil && !opts.AnyVersion {
		return nil, nil, err
	}
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
	n.Extras = d.extras
	n.Paths.AdminKubeconfig = cmp.Or(opts.Kubeconfig, n.Paths.AdminKubeconfig)
	return n, d.warningTexts(), nil
}

func newStored() *documents {
	return &documents{origins: make(map[string]*origin), stored: true, extras: make(Extras)}
}

// MergeUnknownFields returns wanted, the source's next ConfigMap value, together with the stored fields unknown to this version.
// An unreadable stored value is replaced as a whole. The warnings report both.
func MergeUnknownFields(source string, stored, wanted []byte) (data []byte, warnings []string, err error) {
	kind := storedKinds()[source]
	d := newStored()
	d.addStored(source, kind, stored)
	if len(d.faults) > 0 {
		return wanted, []string{"the present value cannot be read, so a new one would lack its unknown fields: " + sorted(d.faults)[0].Error()}, nil
	}
	data, err = d.extras[kind].into(wanted)
	return data, d.warningTexts(), err
}

// NormalizeStored returns a stored ClusterConfiguration as this version would write it, and wanted as it would replace that, so
// that equal meanings compare equal. An unreadable stored value is returned as it is.
func NormalizeStored(stored, wanted []byte) (have, replacement []byte, err error) {
	replacement, _, err = MergeUnknownFields(ClusterSource, stored, wanted)
	if err != nil {
		return nil, nil, err
	}
	n, _, err := LoadCluster(stored, nil, nil, nil, Options{AnyVersion: true})
	if err != nil {
		return stored, replacement, nil //nolint:nilerr // the difference then shows the stored text
	}
	have, err = n.KubeadmConfigYAML()
	return have, replacement, err
}

// addStored reads the value of a ConfigMap: one document, of the given kind.
func (d *documents) addStored(source, kind string, data []byte) {
	docs := parse(&Source{Name: source, Data: data}, maxDocuments, &d.findings)
	if len(docs) != 1 {
		d.fault(Fault{File: source, Message: fmt.Sprintf("contains %d documents instead of one %s", len(docs), kind)})
		return
	}
	if got, line := textField(docs[0].root, "kind"); got != kind {
		d.fault(Fault{File: source, Line: line, Field: "kind", Message: fmt.Sprintf("must be %s, is %q", kind, printable(got))})
		return
	}
	d.add(source, docs[0])
}

func (d *documents) completeStored(self *JoinConfiguration, opts Options) {
	d.checkStoredVersion()
	assumed := d.cluster.Networking == Networking{} // tools that store a cluster's configuration store its networks
	defaultCluster(d.cluster)
	d.checkNetworking()
	if assumed { // the host's address may well be within the default ones
		d.networks = nil
	}
	d.takeSelf(self, opts)
	d.checkCluster()
	d.checkStoredPaths()
	d.cleanPaths()
	d.cluster.ControlPlaneEndpoint = withPort(d.cluster.ControlPlaneEndpoint, d.init.LocalAPIEndpoint.BindPort)
	d.checkComponents()
	d.completeComponents()
}

// takeSelf turns the node's own settings into those of a first control plane.
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
	d.checkAdvertise(kindJoin, "controlPlane.localAPIEndpoint.advertiseAddress", d.init.LocalAPIEndpoint.AdvertiseAddress, d.networks)
	if len(d.networks) > 0 {
		d.checkFamilies(d.judge(opts.Existing || c.Discovery == Discovery{}, "control-plane-prepare/control-plane"))
	}
}

func (d *documents) identifyStored(file, apiVersion, kind string, line int) bool {
	known := versionsOf(kind)
	message := ""
	switch {
	case slices.Contains(known, apiVersion):
		return true
	case apiVersion == "":
		message = "is missing; expected one of " + strings.Join(known, ", ")
	case tooOld(apiVersion):
		message = fmt.Sprintf("%s is too old: convert the content of the ConfigMap to %s with `kubeadm config migrate` of v1.22 to v1.30, and store the result in the ConfigMap", apiVersion, apiV1beta3)
	default:
		message = fmt.Sprintf("%q is unknown to this version, which reads %s; use the version that wrote it, or a newer one", printable(apiVersion), strings.Join(known, ", "))
	}
	d.fault(Fault{File: file, Line: line, Field: "apiVersion", Message: message})
	return false
}

func versionsOf(kind string) []string {
	var list []string
	for _, v := range knownVersions() {
		if v.apiVersion != apiV1 && slices.Contains(v.kinds, kind) {
			list = append(list, v.apiVersion)
		}
	}
	return list
}

// checkStoredVersion accepts exact versions only: labels in a ConfigMap are not resolved over the network.
func (d *documents) checkStoredVersion() {
	c := d.cluster
	switch version := c.KubernetesVersion; {
	case version == "":
		d.faultf(kindCluster, "kubernetesVersion", "is missing")
	case !exactVersion().MatchString(version):
		d.faultf(kindCluster, "kubernetesVersion", "%q is not an exact version such as %s", printable(version), DefaultKubernetesVersion)
	case version[0] != 'v':
		c.KubernetesVersion = "v" + version
	}
}

// unsupported returns a single fault if this program can't add nodes to such a version: it's more useful than the others.
func (d *documents) unsupported() error {
	if d.cluster == nil || !exactVersion().MatchString(d.cluster.KubernetesVersion) {
		return nil
	}
	version := d.cluster.KubernetesVersion
	fault := versionFault(version)
	if fault == "" {
		return nil
	}
	return Faults{d.place(kindCluster, "kubernetesVersion", fmt.Sprintf(
		"%q %s: join with kubeadm of the cluster's version, or bring the cluster to a supported version", printable(version), fault))}
}

// checkStoredPaths refuses a path that goes upward: this node uses them as root because a ConfigMap says so.
func (d *documents) checkStoredPaths() {
	for _, p := range d.cluster.paths() {
		if path.IsAbs(*p.value) && slices.Contains(strings.Split(*p.value, "/"), "..") {
			d.faultf(kindCluster, p.field, "%q must not contain ..; it means %s", printable(*p.value), printable(path.Clean(*p.value)))
		}
	}
}

// pathField is a field with the path of a file or a directory on this host.
type pathField struct {
	field string
	value *string
}

func (c *ClusterConfiguration) paths() []pathField {
	list := []pathField{{"certificatesDir", &c.CertificatesDir}}
	if l := c.Etcd.Local; l != nil {
		list = append(list, pathField{"etcd.local.dataDir", &l.DataDir})
	}
	if x := c.Etcd.External; x != nil {
		const at = "etcd.external."
		list = append(list, pathField{at + "caFile", &x.CAFile}, pathField{at + "certFile", &x.CertFile}, pathField{at + "keyFile", &x.KeyFile})
	}
	return list
}

// cleanPaths brings paths into their shortest form, in which they're compared and stored.
func (d *documents) cleanPaths() {
	for _, p := range d.cluster.paths() {
		if path.IsAbs(*p.value) {
			*p.value = path.Clean(*p.value)
		}
	}
}

// address parses an address that may be empty: a worker has no API server.
func address(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	return netip.ParseAddr(text)
}

// DefaultCluster is a minimal ClusterConfiguration, for LoadCluster without a cluster to ask. It has no networks, so this host's
// address may be anywhere.
func DefaultCluster() []byte {
	return fmt.Appendf(nil, "apiVersion: %s\nkind: %s\nkubernetesVersion: %s\n", apiV1beta4, kindCluster, DefaultKubernetesVersion)
}
