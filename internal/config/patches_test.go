// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/slipway-k8s/slipway/test/fact"
)

func patchFiles(pairs ...string) []PatchFile {
	var files []PatchFile
	for i := 0; i < len(pairs); i += 2 {
		files = append(files, PatchFile{Name: pairs[i], Data: []byte(pairs[i+1])})
	}
	return files
}

const patchedPod = `apiVersion: v1
kind: Pod
metadata:
  labels:
    component: etcd
  name: etcd
  namespace: kube-system
spec:
  containers:
  - command:
    - etcd
    - --a=b
    image: registry.k8s.io/etcd:1
    name: etcd
    resources: {}
  volumes:
  - hostPath:
      path: /a
      type: ""
    name: a
status: {}
`

func TestPatchesApply(t *testing.T) {
	const label = "    component: etcd\n"
	replace := func(old, with string) string { return strings.Replace(patchedPod, old, with, 1) }
	for _, tt := range []struct {
		name  string
		files []PatchFile
		want  string
	}{
		{"none", nil, patchedPod},
		{"of another target", patchFiles("kube-apiserver.yaml", "metadata: {labels: {a: b}}"), patchedPod},
		{"strategic by default", patchFiles("etcd.yaml", "metadata: {labels: {a: b}}"), replace(label, "    a: b\n"+label)},
		{"strategic joins containers by name",
			patchFiles("etcd+strategic.yaml", "spec: {containers: [{name: etcd, image: example.com/etcd:2}]}"),
			replace("registry.k8s.io/etcd:1", "example.com/etcd:2")},
		{"strategic deletes", patchFiles("etcd.yaml", "spec: {volumes: [{name: a, $patch: delete}]}"),
			replace("  volumes:\n  - hostPath:\n      path: /a\n      type: \"\"\n    name: a\n", "")},
		{"merge replaces lists and removes by null",
			patchFiles("etcd+merge.json", `{"metadata": {"labels": null}, "spec": {"volumes": [{"name": "b", "emptyDir": {}}]}}`),
			strings.Replace(replace("  labels:\n    component: etcd\n", ""),
				"  - hostPath:\n      path: /a\n      type: \"\"\n    name: a\n", "  - emptyDir: {}\n    name: b\n", 1)},
		{"JSON operations", patchFiles("etcd+json.yaml",
			"- {op: test, path: /spec/containers/0/command/1, value: --a=b}\n- {op: replace, path: /spec/containers/0/command/1, value: --a=c}\n"),
			replace("--a=b", "--a=c")},
		{"in the order of names, whatever the order of files",
			patchFiles("etcd2.yaml", "metadata: {labels: {a: 'two'}}", "etcd10+merge.yaml", "metadata: {labels: {a: 'ten'}}"),
			replace(label, "    a: two\n"+label)},
		{"each document", patchFiles("etcd-x.y+json.yaml", "- {op: add, path: /metadata/labels/a, value: b}\n---\n---\n- {op: add, path: /metadata/labels/c, value: d}\n"),
			replace(label, "    a: b\n    c: d\n"+label)},
		{"other files in the directory", patchFiles("README.md", "a: [", ".etcd.yaml.swp", "\x00", "Makefile", ""), patchedPod},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, err := ParsePatches(tt.files)
			if err != nil {
				t.Fatal(err)
			}
			got, err := set.Apply("etcd", []byte(patchedPod), &corev1.Pod{})
			if err != nil {
				t.Fatal(err)
			}
			sameText(t, []byte(tt.want), got)
		})
	}
}

func TestPatchesApplyTypes(t *testing.T) {
	set, err := ParsePatches(patchFiles(
		"kubeletconfiguration.yaml", "maxPods: 7\nevictionHard: {memory.available: 1Gi}",
		"corednsdeployment0.yaml", "spec: {replicas: 3}"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := set.Apply(PatchKubelet, []byte("kind: KubeletConfiguration\nmaxPods: 5\nevictionHard: {nodefs.available: 1%}\n"), &kubelet.KubeletConfiguration{})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"maxPods: 7", "  memory.available: 1Gi", "  nodefs.available: 1%"} {
		if !strings.Contains(string(got), line+"\n") {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
	_, err = set.Apply(PatchCoreDNS, []byte("kind: Deployment\n"), &appsv1.Deployment{})
	fact.Error(t, err, "corednsdeployment0.yaml, line 1:", "corednsdeployment:", "no container")
}

func TestPatchesApplyErrors(t *testing.T) {
	const prefix = " | etcd: | "
	for _, tt := range []struct{ name, data, want string }{
		{"etcd.yaml", "spec: {foo: SECRET}", `etcd.yaml, line 1:` + prefix + `"spec.foo"`},
		{"etcd.yaml", "\n\nmetadata: {labels: {a: 1}}", `etcd.yaml, line 3:` + prefix +
			`metadata.labels | number | string`},
		{"etcd+merge.yaml", "spec: null", `etcd+merge.yaml, line 1:` + prefix + `no container`},
		{"etcd+merge.yaml", "kind: Foo", `etcd+merge.yaml, line 1:` + prefix + `apiVersion, kind, metadata.name or metadata.namespace`},
		{"etcd+merge.yaml", "metadata: null", `etcd+merge.yaml, line 1:` + prefix + `apiVersion, kind, metadata.name or metadata.namespace`},
		{"etcd+json.json", `[{"op":"remove","path":"/spec/containers"}]`, `etcd+json.json, line 1:` + prefix + `no container`},
		{"etcd+json.json", `[{"op":"remove","path":"/spec/containers/0/image"}]`, `etcd+json.json, line 1:` + prefix + `container 1 | name | image`},
		{"etcd+json.json", `[{"op":"remove","path":"/nowhere"}]`, `etcd+json.json, line 1:` + prefix +
			`'/nowhere'`},
		{"etcd.yaml", "spec: {containers: 5}", `etcd.yaml, line 1:` + prefix},
	} {
		set, err := ParsePatches(patchFiles(tt.name, tt.data))
		if err != nil {
			t.Fatal(err)
		}
		_, err = set.Apply("etcd", []byte(patchedPod), &corev1.Pod{})
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %s\n got %v\nwant %s", tt.name, tt.data, err, tt.want)
		}
		fact.Error(t, err, fact.Of(tt.want)...)
	}
}

// TestHiddenSecrets: a patch saved as it was printed, without its secrets, isn't applied.
func TestHiddenSecrets(t *testing.T) {
	for body, field := range map[string]string{
		"spec: {containers: [{name: etcd, env: [{name: A, value: '[redacted]'}]}]}": "spec.containers[0].env[0].value",
		"a: {b: [redacted]}":                        "a.b",
		"a: 'http://[redacted]@192.0.2.1'":          "a",
		"a: {b: [secret, redacted]}":                "",
		"a: redacted # [redacted] hides a secret\n": "",
	} {
		_, err := ParsePatches(patchFiles("etcd0+merge.yaml", body))
		if field == "" && err != nil || field != "" && (err == nil || !strings.Contains(err.Error(), "etcd0+merge.yaml:1: "+field+": ")) {
			t.Errorf("%s: %v, want a fault of %q", body, err, field)
		}
	}
	_, err := ParsePatches(patchFiles("etcd+json.yaml", "- {op: test, path: /a, value: b}\n- op: add\n  path: /a\n  value: --token=[redacted]\n"))
	if err == nil || !strings.Contains(err.Error(), "etcd+json.yaml:1: [1].value: ") {
		t.Error(err)
	}
}

// TestIgnoredPatches: files that look like patches are named, and change nothing, as with kubeadm.
func TestIgnoredPatches(t *testing.T) {
	set, err := ParsePatches(patchFiles(
		"etcd.yml", "a: [",
		"etcd", "{}",
		"etcd.yaml.bak", "metadata: {labels: {a: b}}",
		"values.yml", "{}",
		"kube-apisever.yaml", "{}",
		"ETCD.yaml", "{}",
		"kustomization.yaml", "{}",
		"+merge.yaml", "{}",
		"README.md", "",
	))
	if err != nil {
		t.Fatal(err)
	}
	const (
		targets = "| etcd, kube-apiserver, kube-controller-manager, kube-scheduler | kubeletconfiguration | corednsdeployment | kubeproxydaemonset"
		ending  = `| ".yaml" or ".json"`
	)
	var got []string
	for _, f := range set.Ignored {
		got = append(got, f.Error())
	}
	fact.List(t, got,
		"+merge.yaml: "+targets,
		"ETCD.yaml: "+targets+` | "etcd"?`,
		"etcd: "+ending,
		"etcd.yaml.bak: "+ending,
		"etcd.yml: "+ending,
		"kube-apisever.yaml: "+targets+` | "kube-apiserver"?`,
		"kustomization.yaml: "+targets,
		"values.yml: "+ending,
	)
	same, err := set.Apply("etcd", []byte(patchedPod), &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	sameText(t, []byte(patchedPod), same)
}

// TestParsePatchesFaults: all faults are found at once, each with its file and, usually, its line.
func TestParsePatchesFaults(t *testing.T) {
	files := patchFiles(
		"etcd+jsn.yaml", "{}",
		"etcd+.yaml", "{}",
		"etcd+merge+json.yaml", "{}",
		"etcd-empty.yaml", "",
		"etcd-comment.yaml", "# nothing\n---\n",
		"etcd-list.yaml", "\n- a\n",
		"etcd-map+json.yaml", "{}\n",
		"etcd-op+json.yaml", "- {op: ad, path: /a, value: 1}\n",
		"etcd-op2+json.yaml", "- {op: add, value: 1}\n",
		"etcd-op3+json.yaml", "- {op: move, path: /a}\n",
		"etcd-op4+json.yaml", "- {op: add, path: a.b, value: 1}\n",
		"etcd-op5+json.yaml", "- text\n",
		"etcd-syntax.yaml", "a: b\nc: [\n",
		"etcd-twice.yaml", "a: b\na: c\n",
		"etcd-large.yaml", strings.Repeat("#", MaxSize+1),
		"etcd-two.yaml", "a: b\n---\n5\n",
	)
	_, err := ParsePatches(files)
	if err == nil {
		t.Fatal("no error")
	}
	const kinds = "| strategic | merge | json"
	want := []string{
		"etcd+.yaml: " + kinds,
		"etcd+jsn.yaml: " + kinds + ` | "json"?`,
		"etcd+merge+json.yaml: " + kinds,
		"etcd-comment.yaml: | no patch",
		"etcd-empty.yaml: | no patch",
		"etcd-large.yaml: | 1 MiB",
		"etcd-list.yaml:2: | strategic | mapping",
		`etcd-map+json.yaml:1: | json | list | {op: add, path: /metadata/labels/a, value: b} | RFC 6902`,
		`etcd-op+json.yaml:1: operation 1: op | remove, replace | test | "add"?`,
		"etcd-op2+json.yaml:1: operation 1: path | missing",
		"etcd-op3+json.yaml:1: operation 1: from | missing",
		"etcd-op4+json.yaml:1: operation 1: path | slash | /spec/containers/0/image",
		"etcd-op5+json.yaml:1: | mapping | op, path | RFC 6902",
		"etcd-syntax.yaml:2: | YAML",
		"etcd-twice.yaml:2: a: | line 1",
		"etcd-two.yaml:3: | strategic | mapping",
	}
	fact.List(t, strings.Split(strings.ReplaceAll(err.Error(), ": \n", ":\n"), "\n"), want...)
}

func FuzzParsePatches(f *testing.F) {
	for _, seed := range []string{"metadata: {labels: {a: b}}", "- {op: add, path: /metadata/labels/a, value: b}", "spec: {containers: [{name: etcd, $patch: delete}]}", "a: &a [*a]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		for _, name := range []string{"etcd.yaml", "etcd+merge.yaml", "etcd+json.yaml"} {
			set, err := ParsePatches(patchFiles(name, data))
			if err != nil {
				continue
			}
			got, err := set.Apply("etcd", []byte(patchedPod), &corev1.Pod{})
			if err != nil {
				continue
			}
			// The result is complete: it can be patched again.
			if _, err := set.Apply("etcd", got, &corev1.Pod{}); err != nil && name == "etcd+merge.yaml" {
				t.Errorf("%s: %q: %v", name, data, err)
			}
		}
	})
}
