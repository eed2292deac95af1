// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// The kinds of documents a configuration file may hold.
const (
	kindInit      = "InitConfiguration"
	kindCluster   = "ClusterConfiguration"
	kindJoin      = "JoinConfiguration"
	kindReset     = "ResetConfiguration"
	kindUpgrade   = "UpgradeConfiguration"
	kindKubelet   = "KubeletConfiguration"
	kindKubeProxy = "KubeProxyConfiguration"
)

const (
	apiGroup          = "kubeadm.k8s.io"
	apiV1beta3        = apiGroup + "/v1beta3"
	apiV1beta4        = apiGroup + "/v1beta4"
	kubeletAPI        = "kubelet.config.k8s.io/v1beta1"
	kubeProxyAPI      = "kubeproxy.config.k8s.io/v1alpha1"
	tooOldAPIVersions = "v1alpha1 v1alpha2 v1alpha3 v1beta1 v1beta2"
)

// documents holds a file's documents, one per kind, nil if missing. The unread parts of a faulty document are zero.
type documents struct {
	findings

	init      *InitConfiguration
	cluster   *ClusterConfiguration
	join      *JoinConfiguration
	reset     *ResetConfiguration
	upgrade   *UpgradeConfiguration
	kubelet   *kubelet.KubeletConfiguration
	kubeProxy *kubeproxy.KubeProxyConfiguration

	// serial reports whether the user set imagePullSerial: true. v1beta4 has the same default, but doesn't ask for it.
	serial      bool
	placeholder bool
	// unnamed reports whether the node is named after this host, which the file may not be for.
	unnamed  bool
	networks []network // the cluster's valid ones, as checkNetworking finds them
	// hardened reports whether a profile has set fields of the KubeletConfiguration.
	hardened bool
	// healthCheck is the control plane's health check timeout: v1beta3 has it in ClusterConfiguration, v1beta4 in InitConfiguration.
	healthCheck *metav1.Duration

	origins map[string]*origin // by kind

	// experimental accepts experimental versions of the API.
	experimental bool
	// stored reads leniently, for a cluster's stored configuration; extras holds, by kind, the parts unknown to this version.
	stored bool
	extras Extras
	// parts are a user's changes, which the stored configurations have already.
	parts map[string]Part
}

type knownVersion struct {
	apiVersion string
	kinds      []string
}

func knownVersions() []knownVersion {
	return []knownVersion{
		{apiV1beta4, []string{kindInit, kindCluster, kindJoin, kindReset, kindUpgrade}},
		{apiV1, []string{kindInit, kindCluster, kindJoin, kindReset, kindUpgrade}},
		{apiV1beta3, []string{kindInit, kindCluster, kindJoin}},
		{kubeletAPI, []string{kindKubelet}},
		{kubeProxyAPI, []string{kindKubeProxy}},
	}
}

// knownKinds lists a file's possible contents, for messages.
func knownKinds() string {
	var list []string
	for _, v := range knownVersions() {
		if v.apiVersion == apiV1 {
			continue
		}
		list = append(list, fmt.Sprintf("%s (%s)", v.apiVersion, strings.Join(v.kinds, ", ")))
	}
	return strings.Join(list, ", ")
}

func kindsOf(apiVersion string) []string {
	for _, v := range knownVersions() {
		if v.apiVersion == apiVersion {
			return v.kinds
		}
	}
	return nil
}

// read parses a file and decodes its documents strictly. src may be nil.
func read(src *Source) *documents { return readAll(src, false) }

// readAll also reads experimental versions of the API if asked to.
func readAll(src *Source, experimental bool) *documents {
	docs := &documents{origins: make(map[string]*origin), experimental: experimental}
	if src == nil {
		return docs
	}
	for _, doc := range parse(src, maxDocuments, &docs.findings) {
		docs.add(src.Name, doc)
	}
	return docs
}

func (d *documents) add(file string, doc document) {
	apiVersion, kind, ok := d.identify(file, doc)
	if !ok {
		return
	}
	if first, dup := d.origins[kind]; dup {
		d.fault(Fault{File: file, Line: doc.line, Message: fmt.Sprintf(
			"is a second %s, after the one on line %d; a file may contain each kind once", kind, first.line)})
		return
	}
	dec := &decoder{file: file, out: &d.findings, lines: make(map[string]int), bad: make(map[string]bool), lenient: d.stored}
	d.origins[kind] = &origin{file: file, line: doc.line, lines: dec.lines, bad: dec.bad}
	d.decode(dec, doc, apiVersion, kind)
	d.origins[kind].tree = dec.known
	if d.stored {
		d.noteExtra(kind, dec, doc.root)
	}
}

func (d *documents) decode(dec *decoder, doc document, apiVersion, kind string) {
	if apiVersion == apiV1beta3 {
		if !d.stored { // kubeadm v1.30 and older keep it; the next upload writes the newest
			d.warn(Fault{File: dec.file, Line: doc.line, Message: apiV1beta3 +
				" is deprecated; `slipway config migrate` converts the file to " + apiV1beta4})
		}
		dec.v1beta3 = true
		defer d.takeTimeouts(dec, kind)
	}
	if apiVersion == apiV1 {
		d.takeMergeMethods(dec, doc.root, "")
	}
	switch kind {
	case kindInit:
		d.init = decodeNew[InitConfiguration](dec, doc.root)
	case kindCluster:
		d.cluster = decodeNew[ClusterConfiguration](dec, doc.root)
	case kindJoin:
		d.join = decodeNew[JoinConfiguration](dec, doc.root)
	case kindReset:
		d.reset = decodeNew[ResetConfiguration](dec, doc.root)
	case kindUpgrade:
		d.upgrade = decodeNew[UpgradeConfiguration](dec, doc.root)
	case kindKubelet:
		d.kubelet = decodeNew[kubelet.KubeletConfiguration](dec, doc.root)
	case kindKubeProxy:
		d.kubeProxy = decodeNew[kubeproxy.KubeProxyConfiguration](dec, doc.root)
	}
}

// open reads a file for a command that uses documents of some kinds. It refuses a valid file with none of them: its author can't
// have meant the defaults. It warns about other documents, except component configurations for init.
func open(src *Source, kinds ...string) (*documents, error) {
	d := read(src)
	if src == nil {
		return d, nil
	}
	uses := func(kind string) bool { return slices.Contains(kinds, kind) }
	found := slices.Sorted(maps.Keys(d.origins))
	if len(d.faults) == 0 && !slices.ContainsFunc(found, uses) {
		instead := "it has no documents"
		if len(found) > 0 {
			instead = "only " + strings.Join(found, ", ")
		}
		d.fault(Fault{File: src.Name, Message: fmt.Sprintf("contains no %s (%s), %s", strings.Join(kinds, " or "), apiV1beta4, instead)})
		return nil, d.err()
	}
	for _, kind := range found {
		if component := kind == kindKubelet || kind == kindKubeProxy; !uses(kind) && (!component || !uses(kindInit)) {
			o := d.origins[kind]
			d.warn(Fault{File: o.file, Line: o.line, Message: kind + " is ignored by this command"})
		}
	}
	return d, nil
}

func decodeNew[T any](d *decoder, node *yaml.Node) *T {
	v := new(T)
	d.decode(node, v)
	return v
}

// identify returns a document's version and kind, or adds a fault.
func (d *documents) identify(file string, doc document) (apiVersion, kind string, ok bool) {
	if doc.root.Kind != yaml.MappingNode {
		d.fault(Fault{File: file, Line: doc.line, Message: "the document must be a mapping with apiVersion and kind, is " + describe(doc.root)})
		return "", "", false
	}
	apiVersion, versionLine := textField(doc.root, "apiVersion")
	kind, kindLine := textField(doc.root, "kind")
	switch {
	case d.stored:
		return apiVersion, kind, d.identifyStored(file, apiVersion, kind, versionLine)
	case apiVersion == "":
		d.fault(Fault{File: file, Line: doc.line, Field: "apiVersion", Message: "is missing; the latest is " + apiV1beta4})
	case kind == "":
		d.fault(Fault{File: file, Line: doc.line, Field: "kind", Message: "is missing; expected one of " + knownKinds()})
	case apiVersion == apiV1 && !d.experimental:
		d.fault(Fault{File: file, Line: versionLine, Field: "apiVersion", Message: apiV1 +
			" is experimental; only `slipway config migrate` and `slipway config validate` read it, with --allow-experimental-api"})
	case slices.Contains(kindsOf(apiVersion), kind):
		return apiVersion, kind, true
	case tooOld(apiVersion):
		d.fault(Fault{File: file, Line: versionLine, Field: "apiVersion", Message: fmt.Sprintf(
			"%s has been removed; migrate the file to v1beta3 with kubeadm v1.22 to v1.30, then run `slipway config migrate`", apiVersion)})
	case kindsOf(apiVersion) != nil:
		d.fault(Fault{File: file, Line: kindLine, Field: "kind", Message: fmt.Sprintf(
			"%s has no kind %q; expected one of %s%s", apiVersion, printable(kind), strings.Join(kindsOf(apiVersion), ", "), didYouMean(kind, kindsOf(apiVersion)))})
	default:
		d.fault(Fault{File: file, Line: versionLine, Field: "apiVersion", Message: fmt.Sprintf(
			"unknown apiVersion %q with kind %q; expected one of %s", printable(apiVersion), printable(kind), knownKinds())})
	}
	return "", "", false
}

func tooOld(apiVersion string) bool {
	version, ok := strings.CutPrefix(apiVersion, apiGroup+"/")
	return ok && slices.Contains(strings.Fields(tooOldAPIVersions), version)
}

func textField(n *yaml.Node, name string) (value string, line int) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1]; n.Content[i].Value == name && v.Kind == yaml.ScalarNode && v.Tag == "!!str" {
			return v.Value, v.Line
		}
	}
	return "", n.Line
}
