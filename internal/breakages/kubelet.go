// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// Kubelet is a node's kubelet, as it will start after the upgrade.
type Kubelet struct {
	Where      string // for people: kubelet on worker-1
	Node       string // empty for settings that all nodes share
	From       string // its version, if it isn't the control plane's
	Args       []config.Arg
	Files      map[string]string // the file of each flag in Args, as far as it's known
	Config     []byte            // KubeletConfiguration, with the node's drop-ins merged in
	CgroupV1   bool
	OldRuntime bool // set if the container runtime lacks the CRI call RuntimeConfig, as containerd 1.7 does
}

// kubelets checks each kubelet from the step after its own release on.
func (c *checker) kubelets() {
	for _, k := range c.Kubelets {
		if !c.takes(cmp.Or(k.From, c.From)) {
			continue
		}
		known := c.flagsOf(releases.Kubelet)
		known.files = k.Files
		c.flags(k.Where, known, k.Args)
		doc, ok := c.document(File{Where: k.Where, Data: k.Config})
		if !ok {
			continue
		}
		c.fields(k.Where, releases.Kubelet, "", doc)
		set := gatesIn(doc)
		maps.Copy(set, gatesOf(k.Args))
		c.gates(k.Where, releases.Kubelet, set)
		c.kubeletValues(k, doc, set)
		c.kubeletHost(k, doc)
	}
}

// passed reports whether a node's kubelet already has this release.
func (c *checker) passed(node string) bool {
	return slices.ContainsFunc(c.Kubelets, func(k Kubelet) bool {
		return node != "" && k.Node == node && !c.takes(cmp.Or(k.From, c.From))
	})
}

// kubeletValues finds values whose meaning changes.
func (c *checker) kubeletValues(k Kubelet, doc map[string]any, set map[string]bool) {
	if !c.reaches("1.37") {
		return
	}
	on := releases.Enabled(c.release.Gates(releases.Kubelet), set)["MemoryQoS"]
	factor, hasFactor := doc["memoryThrottlingFactor"].(float64)
	f := fault.Finding{Name: "memory-throttling", Subject: k.Where, Field: "memoryThrottlingFactor"}
	switch {
	case hasFactor && !on && factor != 0.9:
		f.Severity = fault.Error
		f.Message = k.Where + ": the kubelet 1.37 refuses memoryThrottlingFactor without feature gate MemoryQoS"
		f.Remedy = "remove memoryThrottlingFactor from the kubelet's configuration"
		c.add(f)
	case hasFactor && on:
		f.Message = fmt.Sprintf("%s: memoryThrottlingFactor %v takes effect, because MemoryQoS is on by default in 1.37: containers are "+
			"slowed down before they reach their memory limit", k.Where, factor)
		f.Remedy = "remove memoryThrottlingFactor from the kubelet's configuration, unless this is wanted"
		c.add(f)
	}
	if qps, ok := doc["eventRecordQPS"].(float64); ok && qps == 0 { // #117119
		c.add(fault.Finding{Name: "event-qps", Subject: k.Where, Field: "eventRecordQPS",
			Message: k.Where + ": eventRecordQPS 0 no longer means 5 events a second, but no limit",
			Remedy:  "set eventRecordQPS to the limit that is wanted; the default is 50"})
	}
}

// kubeletHost finds hosts that newer kubelets won't accept.
func (c *checker) kubeletHost(k Kubelet, doc map[string]any) {
	if fails, set := doc["failCgroupV1"].(bool); c.reaches("1.35") && k.CgroupV1 && (fails || !set) { // #134744
		c.add(fault.Finding{Name: "cgroup-v1", Severity: fault.Error, Subject: k.Where, Field: "failCgroupV1",
			Message: k.Where + ": the node has cgroup v1, with which the kubelet 1.35 does not start",
			Remedy:  "move the node to cgroup v2, or set failCgroupV1: false in the kubelet's configuration"})
	}
	if k.OldRuntime { // #139121
		c.add(fault.Finding{Name: "runtime-config-call", Subject: k.Where, Field: "RuntimeConfig",
			Message: k.Where + ": the container runtime does not report its cgroup driver (CRI RuntimeConfig), which Kubernetes 1.38 requires",
			Remedy:  "upgrade the container runtime, for example to containerd 2"})
	}
}

// fields finds fields of a configuration file that the program doesn't know. It ignores them, with a warning.
func (c *checker) fields(where, program, prefix string, doc map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		path := prefix + name
		if prefix == "" && (name == "apiVersion" || name == "kind") {
			continue
		}
		if !c.release.HasField(program, path) {
			c.add(fault.Finding{Name: "field-removed", Subject: where, Field: path,
				Message: fmt.Sprintf("%s: %s has no field %s and ignores it", where, c.programName(program), path),
				Remedy:  "remove the field"})
			continue
		}
		if !c.release.HasFieldsBelow(program, path) {
			continue // a value, or the user's own names
		}
		for _, below := range objectsIn(doc[name]) {
			c.fields(where, program, path+".", below)
		}
	}
}

// objectsIn returns the objects in a value: the object itself, or those in a list.
func objectsIn(value any) []map[string]any {
	switch v := value.(type) {
	case map[string]any:
		return []map[string]any{v}
	case []any:
		var list []map[string]any
		for _, item := range v {
			list = append(list, objectsIn(item)...)
		}
		return list
	}
	return nil
}

func gatesIn(doc map[string]any) map[string]bool {
	set := map[string]bool{}
	gates, _ := doc["featureGates"].(map[string]any)
	for name, value := range gates {
		if on, ok := value.(bool); ok {
			set[name] = on
		}
	}
	return set
}

// document reads a YAML document, and adds a finding if it can't.
func (c *checker) document(f File) (map[string]any, bool) {
	doc := map[string]any{}
	if err := yaml.Unmarshal(f.Data, &doc); err != nil {
		c.add(fault.Finding{Name: NotChecked, Subject: f.Where, Field: "YAML",
			Message: fmt.Sprintf("%s: cannot be read, and was not checked: %v", f.Where, err), Remedy: "correct the file"})
		return nil, false
	}
	return doc, true
}
