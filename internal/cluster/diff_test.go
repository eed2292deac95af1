// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/slipway-k8s/slipway/test/fact"
)

// parse reads YAML as if it were an answer from the API.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestChange(t *testing.T) {
	tests := []struct {
		name, kind string
		ours, live string
		want       string // empty: nothing to write
	}{
		{"same", "ConfigMap", `data: {a: x}`, `data: {a: x}`, ``},
		{"another's key", "ConfigMap", `data: {a: x}`, `data: {a: x, b: y}`, ``},
		{"another value", "ConfigMap", `data: {a: x}`, `data: {a: z, b: y}`, `data: {a: x, b: y}`},
		{"lacking key", "ConfigMap", `data: {a: x}`, `data: {b: y}`, `data: {a: x, b: y}`},
		{"lacking empty value", "ConfigMap", `data: {a: ""}`, `data: {b: y}`, `data: {a: "", b: y}`},
		{"lacking map", "ConfigMap", `data: {a: x}`, `metadata: {uid: u}`, `{data: {a: x}, metadata: {uid: u}}`},
		{"nothing set", "ConfigMap", `{data: {}, metadata: null}`, `data: {b: y}`, ``},
		{"server's fields stay", "ServiceAccount",
			`metadata: {name: n, labels: {a: b}}`,
			`metadata: {name: n, uid: u, resourceVersion: "7", annotations: {c: d}}`,
			`metadata: {name: n, uid: u, resourceVersion: "7", annotations: {c: d}, labels: {a: b}}`},

		{"numbers", "Service", `spec: {ports: [{port: 53}]}`, `spec: {ports: [{port: 53.0}]}`, ``},
		{"another number", "Service", `spec: {ports: [{port: 53}]}`, `spec: {ports: [{port: 54}]}`, `spec: {ports: [{port: 53}]}`},
		{"number and text", "Service", `spec: {ports: [{targetPort: 53}]}`, `spec: {ports: [{targetPort: "53"}]}`, `spec: {ports: [{targetPort: 53}]}`},
		{"false is set", "ServiceAccount", `automountServiceAccountToken: false`, `metadata: {}`, `{automountServiceAccountToken: false, metadata: {}}`},
		{"server's clusterIP stays", "Service",
			`spec: {selector: {a: new}}`, `spec: {selector: {a: old}, clusterIP: 10.0.0.9}`, `spec: {selector: {a: new}, clusterIP: 10.0.0.9}`},

		{"quantities", "DaemonSet",
			`spec: {limits: {memory: 1Gi, cpu: 100m}}`, `spec: {limits: {memory: 1024Mi, cpu: "0.1", other: 1}}`, ``},
		{"another quantity", "DaemonSet", `spec: {requests: {cpu: 100m}}`, `spec: {requests: {cpu: 200m}}`, `spec: {requests: {cpu: 100m}}`},
		{"lacking quantity", "DaemonSet", `spec: {requests: {cpu: 100m}}`, `spec: {}`, `spec: {requests: {cpu: 100m}}`},
		{"quantities are nowhere else", "ConfigMap", `data: {a: 1Gi}`, `data: {a: 1024Mi}`, `data: {a: 1Gi}`},

		{"defaults in a list", "DaemonSet",
			`spec: {containers: [{name: a, image: i}]}`, `spec: {containers: [{name: a, image: i, tty: false, env: [{name: X}]}]}`, ``},
		{"list of another length", "DaemonSet", `spec: {args: [a]}`, `spec: {args: [a, b]}`, `spec: {args: [a]}`},
		{"list in another order", "DaemonSet", `spec: {args: [a, b]}`, `spec: {args: [b, a]}`, `spec: {args: [a, b]}`},
		{"only what differs in a list is ours whole", "DaemonSet",
			`spec: {volumes: [{name: a, configMap: {name: new}}, {name: b, hostPath: {path: /}}]}`,
			`spec: {volumes: [{name: a, secret: {secretName: old}}, {name: b, hostPath: {path: /, type: ""}}]}`,
			`spec: {volumes: [{name: a, configMap: {name: new}}, {name: b, hostPath: {path: /, type: ""}}]}`},

		{"scaled by the user", "Deployment", `spec: {replicas: 2}`, `spec: {replicas: 5}`, ``},
		{"scaled by the user, updated by us", "Deployment",
			`spec: {replicas: 2, template: {a: new}}`, `spec: {replicas: 5, template: {a: old, b: c}}`,
			`spec: {replicas: 5, template: {a: new, b: c}}`},

		{"subject of others", "ClusterRoleBinding", `subjects: [{kind: Group, name: a}]`, `subjects: [{kind: User, name: z}, {kind: Group, name: a}]`, ``},
		{"lacking subject", "RoleBinding", `subjects: [{kind: Group, name: a}]`, `subjects: [{kind: User, name: z}]`,
			`subjects: [{kind: User, name: z}, {kind: Group, name: a}]`},
		{"no subject", "RoleBinding", `subjects: [{kind: Group, name: a}]`, `{}`, `subjects: [{kind: Group, name: a}]`},

		{"rules", "Role", `rules: [{verbs: [get], apiGroups: [""]}]`, `rules: [{verbs: [get], apiGroups: [""]}]`, ``},
		{"narrower rule", "ClusterRole", `rules: [{verbs: [get]}]`, `rules: [{verbs: [get], resourceNames: [x]}]`, `rules: [{verbs: [get]}]`},
		{"wider rule", "Role", `rules: [{verbs: [get], resourceNames: [x]}]`, `rules: [{verbs: [get]}]`, `rules: [{verbs: [get], resourceNames: [x]}]`},
		{"no rules", "Role", `{kind: Role, rules: null}`, `{kind: Role, rules: [{verbs: [get]}]}`, `{kind: Role, rules: null}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := wanted{ref{kind: kind{name: tt.kind}, name: "n"}, parse(t, tt.ours)}
			live := parse(t, tt.live)
			got, err := change(w, live)
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if tt.want != "" {
				want = parse(t, tt.want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(parse(t, tt.ours), w.fields) + cmp.Diff(parse(t, tt.live), live); diff != "" {
				t.Errorf("an argument was changed: %s", diff)
			}
			if got == nil {
				return
			}
			if again, err := change(w, got); err != nil || again != nil {
				t.Errorf("what was written still differs: %v, %v", again, err)
			}
		})
	}
}

func TestImmutable(t *testing.T) {
	tests := []struct{ kind, ours, live, field, is, shouldBe string }{
		{"RoleBinding", `roleRef: {kind: Role, name: a}`, `roleRef: {kind: Role, name: b}`,
			"roleRef", `{"kind":"Role","name":"b"}`, `{"kind":"Role","name":"a"}`},
		{"ClusterRoleBinding", `roleRef: {name: cluster-admin}`, `roleRef: {name: view}`, "roleRef", `{"name":"view"}`, `{"name":"cluster-admin"}`},
		{"Service", `spec: {clusterIP: 10.96.0.10}`, `spec: {clusterIP: 10.1.0.10}`, "spec.clusterIP", `"10.1.0.10"`, `"10.96.0.10"`},
		{"Deployment", `spec: {selector: {matchLabels: {a: b}}}`, `spec: {selector: {matchLabels: {a: c}}}`,
			"spec.selector", `{"matchLabels":{"a":"c"}}`, `{"matchLabels":{"a":"b"}}`},
		{"DaemonSet", `spec: {selector: {matchLabels: {a: b}}}`, `spec: {}`, "spec.selector", "null", `{"matchLabels":{"a":"b"}}`},
		{"Secret", `type: Opaque`, `type: bootstrap.kubernetes.io/token`, "type", `"bootstrap.kubernetes.io/token"`, `"Opaque"`},
	}
	for _, tt := range tests {
		w := wanted{ref{kind: kind{name: tt.kind}, namespace: "ns", name: "n"}, parse(t, tt.ours)}
		_, err := change(w, parse(t, tt.live))
		fact.Error(t, err, "update "+tt.kind+" ns/n", tt.field+" is "+tt.is, "be "+tt.shouldBe, "delete")
	}
}
