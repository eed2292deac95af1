// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/fact"
)

// loadManifest loads a node with a Pod network from a file.
func loadManifest(t *testing.T, text string) (*Node, error) {
	t.Helper()
	n, _, err := LoadInit(t.Context(), nil, InitFlags{Given: []string{"network"}, NetworkAddOn: "net.yaml", NetworkManifest: []byte(text)}, testOptions())
	return n, err
}

// TestManifestFaults: all faults are found at once, each with its line, and none shows a value.
func TestManifestFaults(t *testing.T) {
	_, err := loadManifest(t, `# a network
apiVersion: v1
kind: Namespace
metadata: {name: net}
---
- a list
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: net}
stringData: {psk: [hidden]}
data: {other: 17}
---
kind: DaemonSet
apiVersion: apps/v1
metadata:
  name: agent
  namespace: net
spec:
  template:
    spec:
      hostnetwork: true
      containers:
      - name: agent
        image: example.org/agent
        ports:
        - containerPort: http
        env:
        - {name: DEBUG, value: true}
---
apiVersion: net.example/v1
kind: Pool
metadata: {labels: {a: b}}
spec: {cidr: 10.1.0.0/16}
spec: {cidr: 10.2.0.0/16}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  metadata: {name: anything}
- apiVersion: v1
  kind: Namespace
  metadata: {name: net}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a
`)
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("%T: %v", err, err)
	}
	want := []string{
		"net.yaml:6: | a list",
		"net.yaml:11: stringData.psk:",
		"net.yaml:12: data.other:",
		`net.yaml:22: spec.template.spec.hostnetwork: | "hostNetwork"`,
		"net.yaml:27: spec.template.spec.containers[0].ports[0].containerPort:",
		"net.yaml:29: spec.template.spec.containers[0].env[0].value: | boolean | quotes",
		"net.yaml:33: metadata.name:",
		"net.yaml:35: spec: | 34",
		"net.yaml:40: kind:",
		"net.yaml:44: metadata.name: | Namespace net | 2",
		"net.yaml:47: | YAML",
	}
	if len(faults) != len(want) {
		t.Fatalf("%d faults, want %d:\n%v", len(faults), len(want), err)
	}
	for i, f := range faults {
		fact.In(t, f.Error(), fact.Of(want[i])...)
	}
	if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "17") {
		t.Errorf("a value is shown:\n%v", err)
	}
}

// TestManifestWithoutObjects also covers files that are no manifest at all.
func TestManifestWithoutObjects(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "net.yaml: | no object | `kubectl apply`",
		"---\n# only a comment\n": "net.yaml: | no object | `kubectl apply`",
		"a: [":                    "net.yaml:1: | YAML",
		"kind: Pod":               "net.yaml:1: apiVersion:",
		"apiVersion: a/v1\nkind: B\nmetadata:\n  name: 5\n": "net.yaml:4: metadata.name:",
		`{"kind": "Pod"`:           "net.yaml:1: | YAML",
		"{apiVersion: v1, kind: a": "net.yaml:1: | YAML",
	} {
		_, err := loadManifest(t, text)
		fact.Error(t, err, fact.Of(want)...)
	}
}

// TestManifestLines: each object knows its fields' lines, to locate the API's complaints.
func TestManifestLines(t *testing.T) {
	const named = `"metadata": {"name": "a"}}`
	for name, tt := range map[string]struct {
		text  string
		lines []int // of the objects
		field string
		at    int // of that field of the last object
	}{
		"YAML": {"\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\n\n# x\napiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n  name: b\n" +
			"spec:\n  template:\n    spec:\n      containers:\n      - name: a\n        image: a\n", []int{2, 9}, "spec.template.spec.containers[0].image", 18},
		"a parent's": {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", []int{1}, "metadata.annotations[a].b", 3},
		"unknown":    {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", []int{1}, "data", 1},
		"a list":     {"kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n- kind: Namespace\n  apiVersion: v1\n  metadata:\n    name: b\n", []int{4, 7}, "metadata.name", 10},
		"JSON": {"{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\",\n" + named + "\n{\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\",\n\t" + named,
			[]int{1, 3}, "metadata", 5},
		"merges": {"apiVersion: v1\nkind: ConfigMap\nmetadata: &m\n  name: a\n---\napiVersion: v1\nkind: Namespace\nx: &y {a: b}\nmetadata:\n  <<: *y\n  name: b\n",
			[]int{1, 6}, "metadata.name", 6},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := loadManifest(t, tt.text)
			if err != nil {
				t.Fatal(err)
			}
			var lines []int
			for _, o := range n.NetworkAddOn.Objects {
				lines = append(lines, o.Line)
			}
			if diff := cmp.Diff(tt.lines, lines); diff != "" {
				t.Fatalf("-want +got:\n%s", diff)
			}
			if got := n.NetworkAddOn.Objects[len(lines)-1].LineOf(tt.field); got != tt.at {
				t.Errorf("%s is on line %d, want %d", tt.field, got, tt.at)
			}
		})
	}
}

// TestManifestFits: real network add-ons have no faults.
func TestManifestFits(t *testing.T) {
	n, err := loadManifest(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.net.example, creationTimestamp: null}
spec: {group: net.example, names: {kind: Pool, plural: pools}, preserveUnknownFields: false}
status: {conditions: [], storedVersions: []}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: kube-system}
type: Opaque
data: {psk: aGlkZGVu}
immutable: no
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system, labels: {k8s-app: agent}}
spec:
  selector: {matchLabels: {k8s-app: agent}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
  template:
    metadata: {labels: {k8s-app: agent}}
    spec:
      hostNetwork: true
      tolerations: [{operator: Exists, effect: NoSchedule}]
      containers:
      - name: agent
        image: example.org/agent
        resources: {requests: {cpu: 250m, memory: 64Mi}, limits: {cpu: 1}}
        livenessProbe: {httpGet: {path: /healthz, port: 9099}, periodSeconds: 10}
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
      volumes: [{name: cni, hostPath: {path: /etc/cni/net.d, type: DirectoryOrCreate}}]
---
{}
`)
	if err != nil || len(n.NetworkAddOn.Objects) != 3 {
		t.Errorf("%v, %v", n, err)
	}
	if warned := slices.ContainsFunc(n.NetworkAddOn.Objects, func(o ManifestObject) bool { return len(o.Fields) == 0 }); warned {
		t.Error("an object has no lines")
	}
}
