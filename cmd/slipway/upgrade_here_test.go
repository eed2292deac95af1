// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

const (
	upgradeHereEnv = "SLIPWAY_UPGRADE_STAGE"
	manifestsHere  = "/etc/kubernetes/manifests/"
)

// TestUpgradeHere runs `upgrade plan` and `upgrade diff` on the control plane n1 of plannedCluster.
func TestUpgradeHere(t *testing.T) {
	if os.Getenv(upgradeHereEnv) == "" {
		if os.Geteuid() != 0 {
			t.Skip("only root may make namespaces")
		}
		reexec(t, []string{upgradeHereEnv + "=1"}, unix.CLONE_NEWNS|unix.CLONE_NEWNET) // the node's files are this stage's own
		return
	}
	ownDirectories(t)
	ownNetwork(t)
	api, kubeconfig := plannedCluster(t)
	serveEmptyRuntime(t)
	if code, said := runHere(t, "upgrade", "diff", "v1.37.2", "--kubeconfig", kubeconfig); code == 0 || !strings.Contains(said, "control plane") {
		t.Errorf("diff on a worker: %d, %s", code, said)
	}
	put(t, "/tmp/init.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 192.0.2.11}\n"+
		"nodeRegistration: {name: n1, criSocket: unix://"+emptySocket+"}\n---\n"+
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\nencryptionAlgorithm: ECDSA-P256\n"+
		"apiServer: {extraArgs: [{name: concurrent-service-syncs, value: \"1\"}]}\n", 0o600)
	for _, phase := range []string{"certs all", "kubeconfig all", "control-plane all", "etcd local"} {
		if code, said := runHere(t, append(strings.Fields("init phase "+phase), "--config=/tmp/init.yaml")...); code != 0 {
			t.Fatalf("init phase %s: %s", phase, said)
		}
	}
	put(t, "/var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", 0o600)
	t.Run("diff", func(t *testing.T) { diffsHere(t, kubeconfig) })
	t.Run("plan", func(t *testing.T) { plansHere(t, api, kubeconfig) })
	t.Run("unmarked", func(t *testing.T) { plansUnmarked(t, api, kubeconfig) })
}

const emptySocket = "/run/containerd/containerd.sock"

// emptyRuntime is a container runtime without containers.
type emptyRuntime struct {
	cri.UnimplementedRuntimeServiceServer
}

func (emptyRuntime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{}, nil
}

func (emptyRuntime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{}, nil
}

func serveEmptyRuntime(t *testing.T) {
	t.Helper()
	must(t, os.Symlink("/run", "/var/run"))
	must(t, os.MkdirAll(filepath.Dir(emptySocket), 0o755))
	l, err := net.Listen("unix", emptySocket)
	must(t, err)
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, emptyRuntime{})
	go func() { _ = s.Serve(l) }() // ends with s.Stop
	t.Cleanup(s.Stop)
}

// runHere runs a command and returns its output and messages.
func runHere(t *testing.T, args ...string) (code int, text string) {
	var out, said bytes.Buffer
	code = execute(t.Context(), "slipway", cli.Streams{Out: &out, Err: &said}, args)
	return code, out.String() + said.String()
}

// diffsHere compares the output of `upgrade diff` with kubeadm's form.
func diffsHere(t *testing.T, kubeconfig string) {
	diff := func(args ...string) string {
		t.Helper()
		code, text := runHere(t, append([]string{"upgrade", "diff", "--kubeconfig", kubeconfig}, args...)...)
		if code != 0 {
			t.Fatalf("%q: %s", args, text)
		}
		return regexp.MustCompile(`(?m)^@@ .*$`).ReplaceAllString(text, "@@")
	}
	var want strings.Builder
	for _, c := range [][3]string{{"kube-apiserver", "v1.36.3", "v1.37.2"},
		{"kube-controller-manager", "v1.36.3", "v1.37.2"}, {"kube-scheduler", "v1.36.3", "v1.37.2"}} {
		image := "    image: registry.k8s.io/" + c[0] + ":"
		want.WriteString("--- " + manifestsHere + c[0] + ".yaml\n+++ new manifest\n@@\n-" + image + c[1] + "\n+" + image + c[2] + "\n")
	}
	if d := cmp.Diff(want.String(), diff("v1.37.2", "-c", "0")); d != "" {
		t.Errorf("without context:\n%s", d)
	}
	if text := diff("v1.37.2"); !strings.HasSuffix(text, "\n     - --leader-elect=true\n-    image: registry.k8s.io/kube-scheduler:v1.36.3\n"+
		"+    image: registry.k8s.io/kube-scheduler:v1.37.2\n     imagePullPolicy: IfNotPresent\n     livenessProbe:\n       failureThreshold: 8\n") {
		t.Errorf("with context:\n%s", text)
	}
	if text := diff("v1.36.3"); text != "" {
		t.Errorf("the same version:\n%s", text)
	}
	put(t, "/tmp/patches/kube-scheduler.yaml", "spec: {priority: 7}\n", 0o600)
	scheduler := editHere(t, "kube-scheduler", "    image:", "    env:\n    - name: PASSWORD\n      value: hidden-value\n    image:")
	text := diff("v1.36.3", "-c", "0", "--patches", "/tmp/patches")
	for _, part := range []string{"-  priority: 2000001000\n+  priority: 7\n", "-    - name: PASSWORD\n", "-      value: "} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
	if strings.Contains(text, "hidden-value") {
		t.Errorf("a secret in:\n%s", text)
	}
	put(t, manifestsHere+"kube-scheduler.yaml", scheduler, 0o600)
}

// plansUnmarked: by its own cluster, a control plane whose Node lacks the label still counts as a control plane. A cluster named
// by the user may have given another host its name.
func plansUnmarked(t *testing.T, api *fakeapi.Server, kubeconfig string) {
	node := api.Objects()["/api/v1/nodes/n1"]
	node["metadata"].(map[string]any)["labels"] = map[string]any{}
	api.Put("/api/v1/nodes/n1", node)
	own, err := os.ReadFile(kubeconfig)
	must(t, err)
	put(t, "/etc/kubernetes/admin.conf", string(own), 0o600)
	const step = ". n1: control-plane v1.37.2\n"
	text := planOutput(t, "v1.37.2")
	_, label, _ := strings.Cut(text, "\n  ControlPlaneLabel: ")
	if fact.In(t, label, "n1", "node-role.kubernetes.io/control-plane"); !strings.Contains(text, step) {
		t.Errorf("by its own cluster:\n%s", text)
	}
	if text := planOutput(t, "v1.37.2", "--kubeconfig", kubeconfig); strings.Contains(text, step) {
		t.Errorf("by a cluster that the user names:\n%s", text)
	}
}

// editHere replaces text in a static Pod, and returns the old manifest.
func editHere(t *testing.T, component, old, text string) string {
	t.Helper()
	before, err := os.ReadFile(manifestsHere + component + ".yaml")
	must(t, err)
	if !strings.Contains(string(before), old) {
		t.Fatalf("%s has no %q", component, old)
	}
	put(t, manifestsHere+component+".yaml", strings.Replace(string(before), old, text, 1), 0o600)
	return string(before)
}

// plansHere: the steps keep the edits the plan found, and the changes are the whole upgrade's, although n3 is behind.
func plansHere(t *testing.T, api *fakeapi.Server, kubeconfig string) {
	type object = map[string]any
	api.Put("/api/v1/nodes/n3", object{"metadata": object{"name": "n3", "labels": object{"node-role.kubernetes.io/control-plane": ""}},
		"status": object{"nodeInfo": object{"kubeletVersion": "v1.36.3"}, "conditions": []any{object{"type": "Ready", "status": "True"}}}})
	api.Put("/api/v1/namespaces/kube-system/pods/kube-apiserver-n3", object{"metadata": object{"name": "kube-apiserver-n3", "namespace": "kube-system",
		"labels": object{"component": "kube-apiserver", "tier": "control-plane"}},
		"spec": object{"nodeName": "n3", "containers": []any{object{"name": "kube-apiserver", "image": "registry.k8s.io/kube-apiserver:v1.36.3"}}}})
	editHere(t, "kube-apiserver", "    - --allow-privileged=true\n", "    - --allow-privileged=true\n    - --profiling=false\n")
	text := planOutput(t, "v1.37.2", "--diff", "--kubeconfig", kubeconfig)
	for _, part := range []string{
		"\n  StaticPodEdits: ", "kube-apiserver", "--profiling=false\n",
		"--patches", "\n\n  kube-apiserver0+json.yaml\n",
		"1. n1: control-plane v1.37.2\n     slipway upgrade apply v1.37.2 --kubeconfig " + kubeconfig + " --patches DIR\n",
		"2. n3: control-plane v1.37.2\n     slipway upgrade node --kubeconfig " + kubeconfig + "\n",
		"\n     slipway upgrade node\n     kubectl drain n2",
		"\n" + manifestsHere + "kube-apiserver.yaml\n",
		"\nDaemonSet kube-system/kube-proxy\n", "+        image: registry.k8s.io/kube-proxy:v1.37.2\n",
	} {
		_, rest, found := strings.Cut(text, part)
		if !found {
			t.Fatalf("%q is missing, or not in this place:\n%s", part, text)
		}
		text = rest
	}
	put(t, "/tmp/kept/kube-apiserver0+json.yaml", "- {op: add, path: /spec/containers/0/command/-, value: --profiling=false}\n", 0o600)
	text = planOutput(t, "v1.37.2", "--kubeconfig", kubeconfig, "--patches", "/tmp/kept")
	if strings.Contains(text, "StaticPodEdits") || !strings.Contains(text, "slipway upgrade apply v1.37.2 --kubeconfig "+kubeconfig+" --patches /tmp/kept\n") {
		t.Errorf("with the patch:\n%s", text)
	}

	// The changes are shown regardless of the upgrade's obstacles.
	api.Put("/api/v1/nodes/n3", object{"metadata": object{"name": "n3", "labels": object{"node-role.kubernetes.io/control-plane": ""}},
		"status": object{"nodeInfo": object{"kubeletVersion": "v1.36.3"}, "conditions": []any{object{"type": "Ready", "status": "False"}}}})
	api.Put("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slipway-upgrade", object{
		"metadata": object{"name": "slipway-upgrade", "namespace": "kube-system"},
		"spec":     object{"holderIdentity": "n3", "renewTime": "2026-01-02T03:04:05.000000Z"}})
	text = planOutput(t, "v1.37.2", "--diff", "--kubeconfig", kubeconfig)
	for _, part := range []string{"ControlPlaneNodesReady: ", " n3 ", "\n" + manifestsHere + "kube-apiserver.yaml\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing:\n%s", part, text)
		}
	}

	// An operator has changed the configuration since: maybe it was the configuration that had the flag.
	stored := api.Objects()["/api/v1/namespaces/kube-system/configmaps/kubeadm-config"]
	stored["metadata"].(object)["managedFields"] = []any{object{"manager": "kubectl-edit", "operation": "Update", "apiVersion": "v1",
		"fieldsType": "FieldsV1", "fieldsV1": object{"f:data": object{"f:ClusterConfiguration": object{}}},
		"time": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
	api.Put("/api/v1/namespaces/kube-system/configmaps/kubeadm-config", stored)
	text = planOutput(t, "v1.37.2", "--kubeconfig", kubeconfig)
	_, warnings, _ := strings.Cut(text, "\nWarnings:\n")
	for _, part := range []string{"\n  StaticPodEdits: ", "kube-apiserver", "ClusterConfiguration", "\n\n  kube-apiserver0-doubtful+json.yaml\n", "slipway upgrade apply v1.37.2 --kubeconfig " + kubeconfig + "\n"} {
		if !strings.Contains(warnings, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}
