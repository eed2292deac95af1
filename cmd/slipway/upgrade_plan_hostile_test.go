// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
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
