// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/parallel"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

const kubeletConfigMap = "ConfigMap kube-system/" + manifests.KubeletConfigMap

// kubelets collects the kubelets' shared configuration, and their own settings.
func (c *collector) kubelets(ctx context.Context) {
	text, err := cluster.ConfigMapText(ctx, c.API, metav1.NamespaceSystem, manifests.KubeletConfigMap, "kubelet")
	shared := map[string]any{}
	if err == nil {
		err = yaml.Unmarshal([]byte(text), &shared)
	}
	if err != nil {
		c.gap(kubeletConfigMap, "kubelet", "correct it", "%s was not checked: %v", kubeletConfigMap, err)
	}
	all := []breakages.Kubelet{{Where: kubeletConfigMap, From: oldestKubelet(c.State), Config: []byte(text)}}
	if err != nil {
		all = nil
	}
	c.inputs.Kubelets = append(all, c.nodeKubelets(ctx, shared)...)
}

// oldestKubelet returns the version of the oldest kubelet; empty if none is known.
func oldestKubelet(s *upgrading.State) string {
	var texts []string
	for _, n := range s.Nodes {
		texts = append(texts, n.Kubelet)
	}
	return oldestText(texts)
}

func (c *collector) nodeKubelets(ctx context.Context, shared map[string]any) []breakages.Kubelet {
	nodes := slices.Clone(c.State.Nodes)
	sort.SliceStable(nodes, func(i, j int) bool { return rank(nodes[i]) < rank(nodes[j]) })
	if left := len(nodes) - maxNodes; left > 0 {
		nodes = nodes[:maxNodes]
		c.gap("kubelets", "nodes", "look at /var/lib/kubelet/config.yaml on nodes that differ from the others",
			"only %d kubelets were asked for their configuration, %d were not", maxNodes, left)
	}
	var others []string
	for _, n := range nodes {
		if !c.isHere(n) {
			others = append(others, n.Name)
		}
	}
	found := parallel.Map(nodes, asksAtOnce, func(n upgrading.NodeVersions) breakages.Kubelet {
		if c.isHere(n) {
			return c.kubeletHere(ctx, n, shared)
		}
		return c.kubeletOf(ctx, n, shared)
	})
	if len(others) > 0 {
		slices.Sort(others)
		c.gap("kubelets", "flags", "look there at /var/lib/kubelet/kubeadm-flags.env, /etc/default/kubelet or /etc/sysconfig/kubelet, and the drop-ins of kubelet.service",
			"the flags of these kubelets were not checked, because the API does not show them: %s", strings.Join(others, ", "))
	}
	return found
}

func (c *collector) isHere(n upgrading.NodeVersions) bool {
	return c.Here != nil && c.Here.Node.Name == n.Name
}

func rank(n upgrading.NodeVersions) int {
	if n.ControlPlane {
		return 0
	}
	return 1
}

// newKubelet returns a node's kubelet, as far as the API describes it.
func newKubelet(n upgrading.NodeVersions) breakages.Kubelet {
	return breakages.Kubelet{Where: "kubelet on " + n.Name, Node: n.Name, From: n.Kubelet, OldRuntime: strings.HasPrefix(n.Runtime, "containerd://1.")}
}

func (c *collector) kubeletHere(ctx context.Context, n upgrading.NodeVersions, shared map[string]any) breakages.Kubelet {
	k, h := newKubelet(n), c.Here.Host
	k.Files = map[string]string{}
	if info, err := h.RuntimeInfo(ctx, c.Here.Node.CRISocket); err == nil {
		k.OldRuntime = info.CgroupDriver == ""
	}
	_, err := h.Lstat("/sys/fs/cgroup/cgroup.controllers")
	k.CgroupV1 = errors.Is(err, fs.ErrNotExist)
	flags, err := h.ReadFile(c.Here.Node.Paths.KubeletFlags())
	if err == nil {
		flags, _ = kubeletconfig.WithoutLeftovers(flags) // the upgrade removes these
	} else if !errors.Is(err, fs.ErrNotExist) {
		c.gap(k.Where, "flags", "run this as root", "%s: its flags were not checked: %v", k.Where, err)
	}
	for _, f := range append(thisnode.KubeadmFlags(flags), thisnode.AdministratorsFlags(h)...) {
		k.Args = append(k.Args, f.Arg)
		k.Files[f.Name] = f.From
	}
	own := map[string]any{}
	path, data := c.Here.Node.Paths.KubeletConfig(), c.Here.Kubelet
	err = nil
	if data == nil {
		data, err = h.ReadFile(path)
	}
	if err == nil {
		err = yaml.Unmarshal(data, &own)
	}
	if err != nil {
		c.gap(k.Where, path, "correct the file", "%s was not checked: %v", path, err)
	}
	k.Config = beyond(own, shared)
	return k
}

// configzFields lists the fields of a kubelet's running configuration that rules need. The others show defaults, set or not.
var configzFields = []string{"featureGates", "eventRecordQPS", "failCgroupV1", "memoryThrottlingFactor"}

// kubeletOf asks another node's kubelet for its configuration, through the API.
func (c *collector) kubeletOf(ctx context.Context, n upgrading.NodeVersions, shared map[string]any) breakages.Kubelet {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	k := newKubelet(n)
	var running struct {
		Config map[string]any `json:"kubeletconfig"`
	}
	configz := cluster.Query{Path: cluster.KubeletPath(n.Name, "configz")}
	if err := cluster.ReadJSON(ctx, c.API, configz, largestAnswer, &running); err != nil {
		c.gap(k.Where, "configz", "make the node Ready, or look at /var/lib/kubelet/config.yaml there", "%s: its configuration was not checked: %v", k.Where, err)
	}
	own := map[string]any{}
	for _, name := range configzFields {
		if value, set := running.Config[name]; set && value != nil {
			own[name] = value
		}
	}
	if own["memoryThrottlingFactor"] == 0.9 { // the default
		delete(own, "memoryThrottlingFactor")
	}
	if v, err := version.ParseSemantic(n.Kubelet); err == nil && v.LessThan(version.MustParseSemantic("1.35.0")) {
		delete(own, "failCgroupV1") // a default that changes in 1.35
		k.CgroupV1 = c.hasCgroupV1(ctx, k)
	}
	k.Config = beyond(own, shared)
	return k
}

// hasCgroupV1 asks a kubelet's metrics.
func (c *collector) hasCgroupV1(ctx context.Context, k breakages.Kubelet) (v1 bool) {
	q := cluster.Query{Path: cluster.KubeletPath(k.Node, "metrics"), Accept: "text/plain"}
	err := c.API.Read(ctx, q, cluster.Within(largestAnswer, func(r io.Reader) error {
		return eachLine(r, func(line []byte) { v1 = v1 || string(line) == "kubelet_cgroup_version 1" })
	}))
	if err != nil {
		c.gap(k.Where, "cgroups", "check it there: stat -fc %T /sys/fs/cgroup", "%s: its version of cgroups was not checked: %v", k.Where, err)
	}
	return v1
}

func eachLine(r io.Reader, take func(line []byte)) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		take(lines.Bytes())
	}
	return errors.WithStack(lines.Err())
}

// beyond returns a node's configuration without the shared settings, which are reported once. failCgroupV1 stays: its effect
// depends on the node.
func beyond(own, shared map[string]any) []byte {
	kept := map[string]any{}
	for name, value := range own {
		if name == "failCgroupV1" || !reflect.DeepEqual(value, shared[name]) {
			kept[name] = value
		}
	}
	gates, _ := kept["featureGates"].(map[string]any)
	common, _ := shared["featureGates"].(map[string]any)
	if gates != nil {
		differing := map[string]any{}
		for name, value := range gates {
			if value != common[name] {
				differing[name] = value
			}
		}
		kept["featureGates"] = differing
	}
	if fails, set := shared["failCgroupV1"]; set && kept["failCgroupV1"] == nil {
		kept["failCgroupV1"] = fails
	}
	data, _ := json.Marshal(kept) // values of a YAML or JSON document always encode
	return data
}
