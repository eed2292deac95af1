// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/golden"
)

// TestUpgradePlanWithAHostileWorker: whatever the kubelet of a worker writes (its Node's status, mirror Pods, its answers), the
// user's credentials reach no other host, the worker doesn't count as a control plane, and nothing acts on the terminal or looks
// like a line of the plan.
func TestUpgradePlanWithAHostileWorker(t *testing.T) {
	api, kubeconfig := plannedCluster(t)
	_, honest, _ := strings.Cut(planOutput(t, "v1.37.2", "--kubeconfig", kubeconfig), "\nSteps, ")
	type object = map[string]any
	evil := fakeapi.New(nil)
	t.Cleanup(evil.Close)
	var mu sync.Mutex
	var reached []string
	evil.SpoilFirst(func(r *http.Request) fakeapi.Fault {
		mu.Lock()
		defer mu.Unlock()
		reached = append(reached, r.URL.Path+" "+r.Header.Get("Authorization"))
		return nil
	})
	address := strings.TrimPrefix(evil.URL, "https://")
	for name, annotation := range map[string]string{
		"kube-apiserver": "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint", "etcd": "kubeadm.kubernetes.io/etcd.advertise-client-urls"} {
		api.Put("/api/v1/namespaces/kube-system/pods/"+name+"-n2", object{
			"metadata": object{"name": name + "-n2", "namespace": "kube-system", "labels": object{"component": name, "tier": "control-plane"},
				"annotations": object{annotation: address, "kubernetes.io/config.mirror": "x"}},
			"spec": object{"nodeName": "n2", "containers": []any{object{"name": name, "image": "evil:unknown\x1b[2J"}}}})
	}
	node := api.Objects()["/api/v1/nodes/n2"]
	node["status"].(object)["nodeInfo"] = object{"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2\x1b]0;owned\x07\u009b2J\nn9\tcontrol-plane"}
	node["status"].(object)["addresses"] = []any{object{"type": "InternalIP", "address": strings.Split(address, ":")[0]}}
	api.Put("/api/v1/nodes/n2", node)
	api.SpoilFirst(func(r *http.Request) fakeapi.Fault {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/nodes/n2/proxy/") {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
			http.Redirect(w, r, evil.URL, http.StatusFound)
		}
	})

	out, said, code := tryPlan(t, "v1.37.2", "--kubeconfig", kubeconfig)
	if code != 0 || len(reached) > 0 {
		t.Errorf("exit code %d, and another host was asked %q: %s", code, reached, said)
	}
	if i := strings.IndexFunc(out+said, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("a control character in %q", (out + said)[i:])
	}
	found, steps, _ := strings.Cut(out, "\nSteps, ")
	if steps != honest {
		t.Errorf("the steps are\n%s\nand were\n%s", steps, honest)
	}
	for line := range strings.Lines(found) {
		if first, _, _ := strings.Cut(line, " "); first == "n9" || first == "n2" && !strings.Contains(line, " worker ") {
			t.Errorf("a line is %q", line)
		}
	}
	_, label, _ := strings.Cut(found, "\n  ControlPlaneLabel: ")
	fact.In(t, label, "n2", "etcd-n2", "kube-apiserver-n2", "node-role.kubernetes.io/control-plane")
}

// plannedCluster is the reference's cluster: a control plane n1 and a worker n2 of v1.36.3. It returns its kubeconfig's path.
func plannedCluster(t *testing.T) (*fakeapi.Server, string) {
	t.Helper()
	api := fakeapi.New(nil)
	t.Cleanup(api.Close)
	type object = map[string]any
	system := "/api/v1/namespaces/kube-system/"
	config := func(name, key, text string) {
		api.Put(system+"configmaps/"+name, object{"metadata": object{"name": name, "namespace": "kube-system"}, "data": object{key: text}})
	}
	config("kubeadm-config", "ClusterConfiguration", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"+
		"networking: {dnsDomain: cluster.local, serviceSubnet: 10.96.0.0/12}\napiServer: {extraArgs: [{name: concurrent-service-syncs, value: \"1\"}]}\n")
	config("kubelet-config", "kubelet", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
	config("kube-proxy", "config.conf", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\n")
	for name, labels := range map[string]object{"n1": {"node-role.kubernetes.io/control-plane": ""}, "n2": {}} {
		api.Put("/api/v1/nodes/"+name, object{"metadata": object{"name": name, "labels": labels},
			"status": object{"nodeInfo": object{"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.2.0"},
				"conditions": []any{object{"type": "Ready", "status": "True"}}}})
		api.Answer("/api/v1/nodes/"+name+"/proxy/configz", `{"kubeletconfig": {}}`)
	}
	image := func(name, tag string, args ...string) object {
		return object{"nodeName": "n1", "containers": []any{object{"name": name, "image": "registry.k8s.io/" + name + ":" + tag, "command": args}}}
	}
	for name, tag := range map[string]string{"kube-apiserver": "v1.36.3", "kube-controller-manager": "v1.36.3", "kube-scheduler": "v1.36.3", "etcd": "3.6.8-0"} {
		api.Put(system+"pods/"+name+"-n1", object{"metadata": object{"name": name + "-n1", "namespace": "kube-system",
			"labels": object{"component": name, "tier": "control-plane"}}, "spec": image(name, tag, name, "--concurrent-service-syncs=1")})
	}
	api.Put("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy", object{"metadata": object{"name": "kube-proxy", "namespace": "kube-system"},
		"spec": object{"template": object{"spec": image("kube-proxy", "v1.36.3")}}})
	api.Put("/apis/apps/v1/namespaces/kube-system/deployments/coredns", object{"metadata": object{"name": "coredns", "namespace": "kube-system"},
		"spec": object{"template": object{"spec": image("coredns", "v1.14.2")}}})
	api.Answer("/metrics", "up 1\n")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	data, err := json.Marshal(object{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{object{"name": "c", "context": object{"cluster": "k", "user": "u"}}},
		"clusters": []any{object{"name": "k", "cluster": object{"server": api.URL, "insecure-skip-tls-verify": true}}},
		"users":    []any{object{"name": "u", "user": object{"token": "t"}}}})
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
	return api, path
}

// planOutput runs `upgrade plan` on a host that isn't a node.
func planOutput(t *testing.T, args ...string) string {
	t.Helper()
	out, said, code := tryPlan(t, args...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	return out
}

func tryPlan(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, said bytes.Buffer
	code = execute(t.Context(), "slipway", cli.Streams{Out: &out, Err: &said}, append([]string{"upgrade", "plan"}, args...))
	return out.String(), said.String(), code
}

// TestUpgradePlanIsKubeadms: without Slipway's additions, the plan is the reference's.
func TestUpgradePlanIsKubeadms(t *testing.T) {
	reference, err := os.ReadFile("../../testdata/golden/upgrade/plan.yaml")
	must(t, err)
	var want, got map[string]any
	must(t, yaml.Unmarshal(reference, &want))
	for _, form := range []string{"yaml", "json"} {
		api, kubeconfig := plannedCluster(t)
		must(t, yaml.Unmarshal([]byte(planOutput(t, "v1.37.2", "-o", form, "--kubeconfig", kubeconfig)), &got))
		for _, field := range []string{"clusterVersion", "nodes"} {
			if got[field] == nil {
				t.Errorf("no %s", field)
			}
			delete(got, field)
		}
		for _, u := range got["availableUpgrades"].([]any) {
			for _, field := range []string{"version", "findings", "steps"} {
				if u.(map[string]any)[field] == nil {
					t.Errorf("no %s", field)
				}
				delete(u.(map[string]any), field)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-o %s, -kubeadm +slipway:\n%s", form, diff)
		}
		if writes := api.Writes(); len(writes) > 0 {
			t.Errorf("wrote %q", writes)
		}
	}
}

// TestUpgradePlanFindings covers breakages, facts invisible from here, and ignoring an error by its name.
func TestUpgradePlanFindings(t *testing.T) {
	_, kubeconfig := plannedCluster(t)
	levels := func(args ...string) []string {
		var plan struct {
			Upgrades []struct {
				Findings []struct{ Check, Level, Message, Remedy string }
			} `json:"availableUpgrades"`
		}
		must(t, json.Unmarshal([]byte(planOutput(t, append([]string{"v1.37.2", "-o", "json", "--kubeconfig", kubeconfig}, args...)...)), &plan))
		var list []string
		for _, f := range plan.Upgrades[0].Findings {
			if f.Message == "" || f.Remedy == "" {
				t.Errorf("incomplete: %+v", f)
			}
			if text := f.Level + " " + f.Check; !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
		return list
	}
	if diff := cmp.Diff([]string{"error flag-removed", "warning flag-removed", "warning etcd-patch", "unchecked not-checked"}, levels()); diff != "" {
		t.Errorf("findings:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"warning flag-removed", "warning etcd-patch", "unchecked not-checked"}, levels("--ignore-preflight-errors=Flag-Removed")); diff != "" {
		t.Errorf("ignored:\n%s", diff)
	}
}

// TestUpgradePlanOverMinors: each step is listed, and problems the steps solve aren't reported. A newer kubelet is.
func TestUpgradePlanOverMinors(t *testing.T) {
	api, kubeconfig := plannedCluster(t)
	config := api.Objects()["/api/v1/namespaces/kube-system/configmaps/kubeadm-config"]
	data := config["data"].(map[string]any)
	data["ClusterConfiguration"] = strings.ReplaceAll(data["ClusterConfiguration"].(string), "v1.36.3", "v1.35.1")
	api.Put("/api/v1/namespaces/kube-system/configmaps/kubeadm-config", config)
	server := api.Objects()["/api/v1/namespaces/kube-system/pods/kube-apiserver-n1"]
	server["spec"] = map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "kube-apiserver", "image": "registry.k8s.io/kube-apiserver:v1.35.1"}}}
	api.Put("/api/v1/namespaces/kube-system/pods/kube-apiserver-n1", server)
	text := planOutput(t, "v1.37.2", "--kubeconfig", kubeconfig)
	for _, want := range []string{"1. n1: control-plane v1.36.4\n", "2. n1: control-plane v1.37.2\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "KubernetesVersion: ") {
		t.Error(text)
	}
	if text := planOutput(t, "v1.35.8", "--kubeconfig", kubeconfig); !strings.Contains(text, "\n  KubernetesVersion: ") {
		t.Error(text)
	} else {
		fact.In(t, text, "n1, n2", "v1.36.3", "newer", "v1.35.8")
	}
}

// TestUpgradePlanGolden compares a plan's whole text with a golden file.
func TestUpgradePlanGolden(t *testing.T) {
	_, kubeconfig := plannedCluster(t)
	golden.Check(t, "../../testdata/golden/upgrade/plan.txt", planOutput(t, "--kubeconfig", kubeconfig))
}

// TestUpgradePlanText: each part is under its heading, in order.
func TestUpgradePlanText(t *testing.T) {
	_, kubeconfig := plannedCluster(t)
	text := planOutput(t, "--kubeconfig", kubeconfig)
	for _, part := range []string{
		"Cluster version: v1.36.3\n", "n1     control-plane   v1.36.3      v1.36.3   containerd://2.2.0\n", " v1.36.4 (", "v1.36 series",
		" v1.37.2 (", "stable", "kube-scheduler            n1     v1.36.3   v1.37.2\n",
		"\n  flag-removed: ", "kube-apiserver in ConfigMap kube-system/kubeadm-config", "kube-apiserver 1.37", "--concurrent-service-syncs\n    ", "\nWarnings:\n", "\nNot checked:\n",
		"\n\n1. n1: control-plane v1.37.2\n     slipway upgrade apply v1.37.2\n", "\n3. n2: kubelet v1.37.2\n     slipway upgrade node\n",
		"kubelet.config.k8s.io     v1beta1           v1beta1             no\n",
	} {
		_, rest, found := strings.Cut(text, part)
		if !found {
			t.Fatalf("%q is missing, or not in this place:\n%s", part, text)
		}
		text = rest
	}
}

// TestUpgradePlanOfAnyVersion: any version can be planned, and the plan shows the obstacles.
func TestUpgradePlanOfAnyVersion(t *testing.T) {
	const newer, table, nothing = "newer than Kubernetes 1.37", "no-table: ", "nothing"
	for version, row := range map[string]struct{ has, hasNot []string }{
		"v1.38.0": {[]string{" v1.38.0 (", "KubernetesVersion: v1.38.0 ", newer, "slipway for Kubernetes 1.38", table, "Kubernetes 1.38",
			"etcd-patch: ", "slipway upgrade apply v1.37.2\n"}, []string{"release candidate"}},
		"v1.38.0-rc.1": {[]string{"KubernetesVersion: v1.38.0-rc.1 ", newer, "release candidate", table}, nil},
		"v1.37.99":     {[]string{" v1.37.99 (", "slipway upgrade apply v1.37.99\n"}, []string{"KubernetesVersion: ", "no-table"}},
		"1.36.99":      {[]string{" v1.36.99 (", "etcd-patch: ", "n1", "etcd 3.6.8", "3.6.11"}, []string{"KubernetesVersion: ", "no-table", "flag-removed: extraArgs"}},
		"v1.36.2":      {[]string{nothing, "v1.36.2", "older", "v1.36.3", "n1"}, nil},
		"v1.30.0":      {[]string{nothing, "older minor"}, nil},
		"v1.36.3":      {[]string{nothing}, []string{"older"}},
	} {
		t.Run(version, func(t *testing.T) {
			_, kubeconfig := plannedCluster(t)
			out, said, code := tryPlan(t, version, "--kubeconfig", kubeconfig)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, said)
			}
			for _, want := range row.has {
				if !strings.Contains(out+said, want) {
					t.Errorf("no %q in:\n%s%s", want, out, said)
				}
			}
			for _, unwanted := range row.hasNot {
				if strings.Contains(out+said, unwanted) {
					t.Errorf("%q in:\n%s%s", unwanted, out, said)
				}
			}
		})
	}
	for _, text := range []string{"v1.37", "1.37.2.1", "newest", "../v1.37.2"} {
		if _, said, code := tryPlan(t, text); code == 0 || !strings.Contains(said, strconv.Quote(text)) {
			t.Errorf("%s: exit code %d: %s", text, code, said)
		}
	}
}

// TestUpgradePlanCorefile: the plan finds a Corefile in the cluster that can't be migrated, and doesn't report one that can.
func TestUpgradePlanCorefile(t *testing.T) {
	api, kubeconfig := plannedCluster(t)
	const finding = "CoreDNSUnsupportedPlugins: "
	for corefile, want := range map[string]bool{".:53 {\n    errors\n    forward . 192.0.2.53\n}\n": false, ".:53 {\n    errors\n    ads example.com\n}\n": true} {
		const path = "/api/v1/namespaces/kube-system/configmaps/coredns"
		api.Put(path, map[string]any{"metadata": map[string]any{"name": "coredns", "namespace": "kube-system"}, "data": map[string]any{"Corefile": corefile}})
		if text := planOutput(t, "v1.37.2", "--kubeconfig", kubeconfig); strings.Contains(text, finding) != want {
			t.Errorf("with the Corefile\n%s\nfound %t, want %t:\n%s", corefile, !want, want, text)
		}
	}
}

// TestUpgradePlanOfNothing: the cluster has the version already.
func TestUpgradePlanOfNothing(t *testing.T) {
	_, kubeconfig := plannedCluster(t)
	if text := planOutput(t, "v1.36.3", "--kubeconfig", kubeconfig); !strings.Contains(text, "nothing") || strings.Contains(text, "\n1. ") {
		t.Error(text)
	}
}
