// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Values of --network that are not files.
const (
	NoNetwork = "none"
	Flannel   = "flannel"
)

// NetworkAddOn is the Pod network that init installs.
type NetworkAddOn struct {
	Name     string // Flannel, a manifest's path, "-" for standard input, or empty for none
	Manifest []byte // the content of that file
	// Objects locates each object in the manifest, in order.
	Objects []ManifestObject
}

// StandardInput is the name of standard input in messages.
const StandardInput = "standard input"

// File is the manifest's name in messages.
func (a NetworkAddOn) File() string {
	if a.Name == "-" {
		return StandardInput
	}
	return a.Name
}

func (a NetworkAddOn) FromFile() bool { return a.Name != "" && a.Name != Flannel }

// Flannel's images: https://github.com/flannel-io/flannel/releases. The second has the CNI plugin, which is released separately.
const (
	flannelRegistry  = "ghcr.io/flannel-io"
	flannelTag       = "v0.28.10"
	flannelPluginTag = "v1.9.1-flannel3"
)

// FlannelPluginsPath is where flannel's Pods put the CNI plugins' settings.
const FlannelPluginsPath = "/etc/cni/net.d/10-flannel.conflist"

// FlannelImage and FlannelPluginImage are components, for Image.
const (
	FlannelImage       = "flannel"
	FlannelPluginImage = "flannel-cni-plugin"
)

// flannelImage returns an image's repository and tag. A user's own registry has it below flannel-io, where `bundle push` puts it.
func (c *ClusterConfiguration) flannelImage(component string) (repository, tag string) {
	tags := map[string]string{FlannelImage: flannelTag, FlannelPluginImage: flannelPluginTag}
	repository = flannelRegistry
	if c.ImageRepository != DefaultImageRepository {
		repository = c.ImageRepository + "/flannel-io"
	}
	return repository, tags[component]
}

// Flannel's default Pod networks: from its own manifest, and a unique local address (RFC 4193) with room for 256 nodes.
const (
	flannelSubnet4 = "10.244.0.0/16"
	flannelSubnet6 = "fd00:10:244::/56"
)

// defaultPodSubnet gives flannel, which needs a Pod network, a default with the Service network's IP families.
func (d *documents) defaultPodSubnet(flags *InitFlags) {
	n := &d.cluster.Networking
	if n.PodSubnet != "" || flags.networkAddOn().Name != Flannel {
		return
	}
	var subnets []string
	for _, s := range prefixes(cmp.Or(n.ServiceSubnet, defaultServiceSubnet)) {
		if s.Addr().Is4() {
			subnets = append(subnets, flannelSubnet4)
		} else {
			subnets = append(subnets, flannelSubnet6)
		}
	}
	n.PodSubnet = strings.Join(subnets, ",")
}

func (f *InitFlags) networkAddOn() NetworkAddOn {
	if !f.Given.Has("network") || f.NetworkAddOn == NoNetwork {
		return NetworkAddOn{}
	}
	return NetworkAddOn{Name: f.NetworkAddOn, Manifest: f.NetworkManifest}
}

// ManifestObject locates an object of the add-on's manifest.
type ManifestObject struct {
	// Line is where the object begins; Fields maps its fields to their lines, as far as they're known.
	Line   int
	Fields map[string]int
}

// LineOf returns the line of a field, or of its nearest parent.
func (o ManifestObject) LineOf(field string) int {
	for p := field; p != ""; p = parentPath(p) {
		if line, ok := o.Fields[p]; ok {
			return line
		}
	}
	return o.Line
}

// checkManifest finds every fault of --network's manifest that shows without an API.
func (d *documents) checkManifest(flags *InitFlags) []ManifestObject {
	addOn := flags.networkAddOn()
	if !addOn.FromFile() {
		return nil
	}
	m := manifest{file: addOn.File(), out: &d.findings, first: map[string]int{}}
	before := len(d.faults)
	m.read(addOn.Manifest)
	if len(m.objects) == 0 && len(d.faults) == before {
		d.fault(Fault{File: m.file, Message: "it contains no object; give a manifest as for `kubectl apply`"})
	}
	return m.objects
}

type manifest struct {
	file    string
	out     *findings
	objects []ManifestObject
	first   map[string]int // the line of each object, by kind and name
}

// read takes YAML documents or, like `kubectl apply`, a sequence of JSON values.
func (m *manifest) read(data []byte) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		m.readJSON(data)
		return
	}
	m.readYAML(data)
}

func (m *manifest) readJSON(data []byte) {
	dec := json.NewDecoder(bytes.NewReader(data))
	for !m.out.full() {
		var value json.RawMessage
		err := dec.Decode(&value)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil { // YAML's parser gives the line
			m.readYAML(data)
			return
		}
		lines := bytes.Count(data[:int(dec.InputOffset())-len(value)], []byte("\n"))
		m.readYAML(append(bytes.Repeat([]byte("\n"), lines), value...))
	}
}

func (m *manifest) readYAML(data []byte) {
	for _, doc := range parse(&Source{Name: m.file, Data: data}, math.MaxInt, m.out) {
		m.object(doc.root)
	}
}

func (m *manifest) faultf(n *yaml.Node, field, format string, args ...any) {
	m.out.fault(Fault{File: m.file, Line: n.Line, Field: field, Message: fmt.Sprintf(format, args...)})
}

// object checks an object, or a list's objects.
func (m *manifest) object(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		m.faultf(n, "", "must be an object of the API, is %s", describe(n))
		return
	}
	if items := valueOf(n, "items"); items != nil && items.Kind == yaml.SequenceNode {
		for _, item := range items.Content {
			m.object(item)
		}
		return
	}
	if len(n.Content) == 0 { // {}
		return
	}
	where := ManifestObject{Line: n.Line}
	apiVersion, _ := textField(n, "apiVersion")
	kind, _ := textField(n, "kind")
	for _, field := range []struct{ name, value string }{{"apiVersion", apiVersion}, {"kind", kind}} {
		if field.value == "" {
			m.faultf(n, field.name, "is missing")
		}
	}
	if !merges(n) { // the API checks a merge's additions
		dec := &decoder{file: m.file, out: m.out, lines: map[string]int{}, bad: map[string]bool{}}
		dec.value(n, typeOf(apiVersion, kind), "")
		where.Fields = dec.lines
		m.name(n, apiVersion, kind, dec.bad["metadata.name"])
	}
	m.objects = append(m.objects, where)
}

// name checks that the object has a unique name. bad says that a bad name has already been reported.
func (m *manifest) name(n *yaml.Node, apiVersion, kind string, bad bool) {
	metadata := valueOf(n, "metadata")
	if metadata == nil || metadata.Kind != yaml.MappingNode {
		m.faultf(n, "metadata.name", "is missing")
		return
	}
	name, line := textField(metadata, "name")
	if name == "" {
		if !bad {
			m.faultf(metadata, "metadata.name", "is missing, or is not a string")
		}
		return
	}
	namespace, _ := textField(metadata, "namespace")
	key := path.Join(apiVersion, kind, namespace, name)
	if first, dup := m.first[key]; dup {
		m.out.fault(Fault{File: m.file, Line: line, Field: "metadata.name",
			Message: fmt.Sprintf("%s %s appears twice, first on line %d", printable(kind), printable(path.Join(namespace, name)), first)})
		return
	}
	m.first[key] = n.Line
}

func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// merges reports whether a document uses <<, or aliases, which may stand for a mapping with a merge.
func merges(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || n.Tag == "!!merge" || slices.ContainsFunc(n.Content, merges)
}

// typeOf returns the Go type of a kind this program knows, with all its fields, and any otherwise.
func typeOf(apiVersion, kind string) reflect.Type {
	known := map[string]reflect.Type{
		"v1/ConfigMap":      reflect.TypeFor[corev1.ConfigMap](),
		"v1/Namespace":      reflect.TypeFor[corev1.Namespace](),
		"v1/Pod":            reflect.TypeFor[corev1.Pod](),
		"v1/Secret":         reflect.TypeFor[corev1.Secret](),
		"v1/Service":        reflect.TypeFor[corev1.Service](),
		"v1/ServiceAccount": reflect.TypeFor[corev1.ServiceAccount](),

		"apps/v1/DaemonSet":  reflect.TypeFor[appsv1.DaemonSet](),
		"apps/v1/Deployment": reflect.TypeFor[appsv1.Deployment](),

		"rbac.authorization.k8s.io/v1/ClusterRole":        reflect.TypeFor[rbacv1.ClusterRole](),
		"rbac.authorization.k8s.io/v1/ClusterRoleBinding": reflect.TypeFor[rbacv1.ClusterRoleBinding](),
		"rbac.authorization.k8s.io/v1/Role":               reflect.TypeFor[rbacv1.Role](),
		"rbac.authorization.k8s.io/v1/RoleBinding":        reflect.TypeFor[rbacv1.RoleBinding](),
	}
	if t, ok := known[apiVersion+"/"+kind]; ok {
		return t
	}
	return reflect.TypeFor[any]()
}
