// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/golden"
	"github.com/slipway-k8s/slipway/test/schema"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// TestPlanHidesVariables: a plan hides the values of variables, in a static Pod as well as in a configuration inside an object,
// but keeps their names and the addresses of proxies. --diff mentions the hidden changes.
func TestPlanHidesVariables(t *testing.T) {
	pod := func(value string) string {
		return "kind: Pod\nspec:\n  containers:\n  - env:\n    - name: HTTPS_PROXY\n      value: u:" + value + "@p:1\n    - name: A\n      value: " + value + "\n    name: a\n"
	}
	configuration := func(value string) string {
		return "apiServer:\n  extraEnvs:\n  - name: HTTP_PROXY\n    value: http://u:" + value + "@p:1\n  - name: A\n    value: " + value + "\n"
	}
	kubelet := func(value string) string { return "staticPodURLHeader:\n  Authorization:\n  - " + value + "\n" }
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "pod"), []byte(pod("hush1")), 0o600))
	check(t, os.WriteFile(filepath.Join(root, "kubelet"), []byte(kubelet("hush2")), 0o600))
	p := &Plan{Command: "init", Node: "cp-1", now: newPresent(linux.NewAt(root))}
	p.AddHost(host.Action{Verb: host.Write, Path: "/pod", Mode: 0o600, Data: []byte(pod("hush3"))})
	p.AddHost(host.Action{Verb: host.Write, Path: "/kubelet", Mode: 0o600, Data: []byte(kubelet("hush4"))})
	fields := func(value string) map[string]any {
		return map[string]any{"data": map[string]any{"ClusterConfiguration": configuration(value), "url": "https://u:" + value + "@h"}}
	}
	p.AddCluster(cluster.Action{
		Verb: cluster.VerbEnsure, Kind: "ConfigMap", Name: "c",
		Object:     &corev1.ConfigMap{Data: map[string]string{"ClusterConfiguration": configuration("hush5"), "kubelet": kubelet("hush5"), "other": "one: 1\n"}},
		Difference: &cluster.Difference{Change: cluster.Update, Before: fields("hush6"), After: fields("hush7")},
	})
	if want := strings.ReplaceAll(pod("'[redacted]'"), "u:'[redacted]'@p:1", "'[redacted]@p:1'"); p.Steps[0].Content != want {
		t.Errorf("the Pod is shown as\n%s\nwant\n%s", p.Steps[0].Content, want)
	}
	for _, form := range []string{"text", "json", "yaml"} {
		var shown bytes.Buffer
		p.Form = form
		check(t, p.Write(&shown))
		if bytes.Contains(shown.Bytes(), []byte("hush")) || form != "text" && !bytes.Contains(shown.Bytes(), []byte("[redacted]@p:1")) {
			t.Errorf("%s:\n%s", form, shown.String())
		}
	}
	for _, s := range p.Steps {
		if s.Diff != notShown {
			t.Errorf("%s%s differs by %q", s.Path, s.title, s.Diff)
		}
	}
}

// TestDiff shows the changes to the host and the cluster. For a secret, it shows only that it changes.
func TestDiff(t *testing.T) {
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "a"), []byte("one\ntwo\n"), 0o600))
	check(t, os.WriteFile(filepath.Join(root, "key"), []byte("-----BEGIN PRIVATE KEY-----\nhush\n"), 0o600))
	running := teststage.At(root)
	running.Has.Units["kubelet.service"] = host.UnitState{ActiveState: "active", UnitFileState: "disabled"}
	var warned string
	p := &Plan{Command: "init", Node: "cp-1", now: newPresent(running), warn: func(format string, args ...any) { warned = fmt.Sprintf(format, args...) }}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "kube-system", Name: name} }
	changed := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: named("c"), Data: map[string]string{"k": "new"}}
	p.enter("kubelet-start")
	p.AddHost(host.Action{Verb: host.Enable, Unit: "kubelet.service"})
	p.AddHost(host.Action{Verb: host.Stop, Unit: "kubelet.service"})
	p.AddHost(host.Action{Verb: host.Start, Unit: "kubelet.service"})
	p.AddHost(host.Action{Verb: host.Write, Path: "/a", Mode: 0o644, Data: []byte("one\nthree\n")})
	p.AddHost(host.Action{Verb: host.Write, Path: "/a", Mode: 0o644, Data: []byte("one\nfour\n")})
	p.AddHost(host.Action{Verb: host.Write, Path: "/key", Mode: 0o600, Secret: true})
	p.AddHost(host.Action{Verb: host.Write, Path: "/key", Mode: 0o600, Data: []byte("none\n")})
	p.enter("upload-config/kubeadm")
	for _, d := range []*cluster.Difference{
		{Change: cluster.Update, Before: map[string]any{"data": "old"}, After: map[string]any{"data": "new"}},
		{Change: cluster.None}, {Change: cluster.Create}, {Err: errors.New("down")}, nil,
	} {
		p.AddCluster(cluster.Action{Verb: cluster.VerbEnsure, Kind: "ConfigMap", Namespace: "kube-system", Name: "c", Object: changed, Difference: d})
	}
	secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: named("s"), StringData: map[string]string{"k": "<redacted>"}}
	p.AddCluster(cluster.Action{Verb: cluster.VerbEnsure, Kind: "Secret", Namespace: "kube-system", Name: "s", Object: secret, Difference: &cluster.Difference{Change: cluster.Update}})

	var text bytes.Buffer
	p.Form = "text"
	check(t, p.Write(&text))
	golden.Check(t, "../../testdata/golden/plan/diff.txt", text.String())
	fact.In(t, warned, "cluster", "down")
	var document bytes.Buffer
	s, err := schema.Plan()
	check(t, err)
	p.Form = "json"
	check(t, p.Write(&document))
	if err := s.Check(document.Bytes()); err != nil {
		t.Error(err)
	}
	if bytes.Contains(document.Bytes(), []byte("hush")) {
		t.Errorf("a secret is in the plan:\n%s", document.String())
	}
}

var someKept = []ui.Kept{
	{Path: "/etc/a", Summary: "only there: one", Remedy: "run `slipway init phase a` to write it", Now: "one\n", Ours: "two\n"},
	{Kind: "ConfigMap", Namespace: "kube-system", Name: "c", Summary: "data.k", Now: "k: old\n", Ours: "k: new\n"},
	{Kind: "Secret", Namespace: "kube-system", Name: "s", Summary: "values that are not shown"},
}

// TestPlanKept: with --diff, a kept file or object has a step with the whole difference, in place of other runs' warning.
func TestPlanKept(t *testing.T) {
	var said bytes.Buffer
	p := &Plan{Form: "text", Command: "init", Node: "cp-1", now: newPresent(linux.NewAt(t.TempDir()))}
	for _, k := range someKept {
		ui.SayKept(UI{UI: ui.NewLines(&said, io.Discard), Plan: p}, k)
	}
	var text, document bytes.Buffer
	check(t, p.Write(&text))
	golden.Check(t, "../../testdata/golden/plan/kept.txt", text.String())
	if said.Len() > 0 {
		t.Errorf("said %q", said.String())
	}
	s, err := schema.Plan()
	check(t, err)
	p.Form = "json"
	check(t, p.Write(&document))
	check(t, s.Check(document.Bytes()))
}

// TestPlanEffects: a plan says what its steps cause on each node, in both forms.
func TestPlanEffects(t *testing.T) {
	renamed := func(text string) string { return strings.ReplaceAll(text, "`slipway ", "`kubeadm ") }
	p := &Plan{Form: "text", Command: "reconfigure", Node: "cp-1", Shown: renamed}
	in, _ := UI{UI: ui.NewLines(io.Discard, io.Discard), Plan: p}.Start("preflight")
	for _, e := range []ui.Effect{
		{Text: "Changing a.b in ConfigMap c", Changes: []ui.Field{{Source: "ConfigMap c", Path: "a.b"}}},
		{Text: "The API will be away for about 10s", APIAway: 10 * time.Second},
		{Text: "Restarting etcd and kube-apiserver", Restarts: []string{"etcd", "kube-apiserver"}},
		{Text: "Restarting the kubelet", Restarts: []string{"kubelet"}},
		{Text: "Run `slipway reconfigure node` on cp-2 and w-1", Others: []ui.OtherNode{
			{Name: "cp-2", Command: "reconfigure node", Restarts: []string{"etcd"}}, {Name: "w-1", Command: "reconfigure node"},
		}},
	} {
		ui.SayEffect(in, e)
	}
	var shown bytes.Buffer
	check(t, p.Write(&shown))
	p.Form = "json"
	var document bytes.Buffer
	check(t, p.Write(&document))
	golden.Check(t, "../../testdata/golden/plan/effects.txt", shown.String()+document.String())
	s, err := schema.Plan()
	check(t, err)
	check(t, s.Check(document.Bytes()))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
