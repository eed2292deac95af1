// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// scene is a cluster behind an API server: a control plane, cp-1, which runs the collector, and a worker, w-1.
type scene struct {
	t        *testing.T
	api      *fakeapi.Server
	root     string
	from, to string
	etcd     []etcd.Health
	deaf     bool            // etcd doesn't answer
	remote   bool            // the collector runs elsewhere
	own      *fakeapi.Server // cp-1's API server, if it can be asked apart
	// wanted maps components to the flags in the static Pods that the upgrade writes; by default, the running Pods' flags.
	wanted map[string][]string
}

type object = map[string]any

const (
	inSystem     = "/api/v1/namespaces/kube-system/" // the path of objects in kube-system
	proxyDaemons = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"
)

func newScene(t *testing.T, from, to string) *scene {
	s := &scene{t: t, api: fakeapi.New(nil), root: t.TempDir(), from: from, to: to, wanted: map[string][]string{}}
	t.Cleanup(s.api.Close)
	s.stored("")
	s.configMap("kubelet-config", "kubelet", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\n")
	s.configMap("kube-proxy", "config.conf", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n")
	s.put(proxyDaemons, "apps/v1", "DaemonSet", object{})
	s.node("cp-1", "containerd://2.2.0", true)
	s.node("w-1", "containerd://2.2.0", false)
	s.configz(`{"maxPods": 110, "memoryThrottlingFactor": 0.9, "eventRecordQPS": 50, "failCgroupV1": false}`)
	s.metricsOf("w-1", "kubelet_cgroup_version 2")
	for component, args := range map[string][]string{
		"kube-apiserver": {"--profiling=false"}, "kube-controller-manager": {"--leader-elect=true"}, "kube-scheduler": nil, "etcd": {"--name=cp-1"},
	} {
		s.component(component, args...)
	}
	s.api.Answer("/metrics", "apiserver_request_total 7\n")
	fixture.Put(t, s.root, "/sys/fs/cgroup/cgroup.controllers", "cpu\n")
	fixture.Put(t, s.root, "/var/lib/kubelet/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\n")
	fixture.Put(t, s.root, "/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.10"`)
	fixture.Put(t, s.root, "/etc/kubernetes/manifests/kube-scheduler.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: kube-scheduler}\n")
	s.etcd = []etcd.Health{{Member: etcd.Member{ID: 1, Name: "cp-1"}, Answers: true, Status: etcd.Status{Version: "3.6.12"}}}
	return s
}

// stored sets the cluster's configuration, with more lines.
func (s *scene) stored(more string) {
	s.configMap("kubeadm-config", "ClusterConfiguration",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: "+s.from+"\nnetworking: {dnsDomain: cluster.local, serviceSubnet: 10.96.0.0/12}\n"+more)
}

func (s *scene) configMap(name, key, text string) {
	s.put(inSystem+"configmaps/"+name, "v1", "ConfigMap", object{"data": object{key: text}})
}

// put stores an object by its path, which ends with its name.
func (s *scene) put(at, apiVersion, kind string, fields object) {
	s.t.Helper()
	parts := strings.Split(at, "/")
	meta, _ := fields["metadata"].(object)
	if meta == nil {
		meta = object{}
	}
	meta["name"] = parts[len(parts)-1]
	if i := slices.Index(parts, "namespaces"); i >= 0 && i+2 < len(parts) {
		meta["namespace"] = parts[i+1]
	}
	fields["metadata"], fields["apiVersion"], fields["kind"] = meta, apiVersion, kind
	s.api.Put(at, fields)
}

func (s *scene) node(name, runtime string, controlPlane bool) {
	labels := object{}
	if controlPlane {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}
	s.put("/api/v1/nodes/"+name, "v1", "Node", object{"metadata": object{"labels": labels},
		"status": object{"nodeInfo": object{"kubeletVersion": s.from, "containerRuntimeVersion": runtime, "osImage": "Debian GNU/Linux 13"}}})
}

// sharedClaim adds Pods that share a claim, each with an SELinux label of its own.
func (s *scene) sharedClaim() {
	for _, level := range []string{"s0:c1", "s0:c2"} {
		s.put("/api/v1/namespaces/default/pods/pod-"+level[4:], "v1", "Pod", object{"spec": object{"securityContext": object{"seLinuxOptions": object{"level": level}},
			"volumes": []any{object{"name": "v", "persistentVolumeClaim": object{"claimName": "data"}}}}})
	}
}

func (s *scene) component(name string, args ...string) { s.componentOn("cp-1", name, args...) }

// componentOn adds a static Pod running on a control plane. On this host, the upgrade writes it with the same flags.
func (s *scene) componentOn(node, name string, args ...string) {
	if node == "cp-1" {
		s.wanted[name] = args
	} else {
		s.node(node, "containerd://2.2.0", true)
		s.api.Answer("/api/v1/nodes/"+node+"/proxy/configz", `{"kubeletconfig": {"maxPods": 110}}`)
	}
	s.pod(node, name, args...)
}

// pod adds a node's mirror Pod of a component.
func (s *scene) pod(node, name string, args ...string) {
	tag := s.from
	if name == "etcd" {
		tag = "3.6.12-0"
	}
	pod := staticPod(name, tag, args)
	pod["spec"].(object)["nodeName"] = node
	s.put(inSystem+"pods/"+name+"-"+node, "v1", "Pod", pod)
}

func staticPod(name, tag string, args []string) object {
	return object{
		"metadata": object{"labels": object{"component": name, "tier": "control-plane"}, "annotations": object{"kubernetes.io/config.mirror": "x"}},
		"spec": object{"containers": []any{object{"name": name, "image": "registry.k8s.io/" + name + ":" + tag,
			"command": append([]string{name}, args...), "volumeMounts": []any{object{"name": "etc", "mountPath": "/etc/in-container"}}}},
			"volumes": []any{object{"name": "etc", "hostPath": object{"path": "/etc/on-host"}}}},
	}
}

// configz sets the running configuration of w-1's kubelet.
func (s *scene) configz(doc string) {
	s.api.Answer("/api/v1/nodes/w-1/proxy/configz", `{"kubeletconfig": `+doc+`}`)
}

func (s *scene) metricsOf(node, text string) {
	s.api.Answer("/api/v1/nodes/"+node+"/proxy/metrics", text+"\n")
}

// serve makes discovery name a kind in some versions, the first preferred, stored in one of them.
func (s *scene) serve(group, kind, resource, stored string, versions ...string) {
	var list []any
	for _, v := range versions {
		list = append(list, object{"groupVersion": group + "/" + v, "version": v})
		s.api.Answer("/apis/"+group+"/"+v, asJSON(object{"resources": []any{
			object{"name": resource, "kind": kind, "storageVersionHash": stored}, object{"name": resource + "/status", "kind": kind}}}))
	}
	s.api.Answer("/apis/"+group, asJSON(object{"versions": list}))
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// members answers for etcd.
type members struct {
	etcd.Etcd
	scene *scene
}

func (m members) Health(context.Context) ([]etcd.Health, error) {
	if m.scene.deaf {
		return nil, errors.New("no member answers")
	}
	return m.scene.etcd, nil
}

func clientOf(api *fakeapi.Server) cluster.Cluster {
	return cluster.New(cluster.Options{Kubeconfig: "kubeconfig", Timeout: 20 * time.Second, ReadFile: func(string) ([]byte, error) {
		return []byte(asJSON(object{
			"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"contexts": []any{object{"name": "c", "context": object{"cluster": "k", "user": "u"}}},
			"clusters": []any{object{"name": "k", "cluster": object{"server": api.URL, "insecure-skip-tls-verify": true}}},
			"users":    []any{object{"name": "u", "user": object{"token": "t"}}},
		})), nil
	}})
}

// found returns the findings' names.
func (s *scene) found() []string {
	s.t.Helper()
	var list []string
	for _, f := range s.findings() {
		list = append(list, named(f))
		if f.Remedy == "" || f.Subject == "" {
			s.t.Errorf("incomplete: %+v", f)
		}
	}
	return list
}

// named returns a finding without its words: its name, the release that breaks it, its subject, and the field there.
func named(f fault.Finding) string {
	return strings.Join(strings.Fields(f.Name+" "+strings.TrimPrefix(strings.Join(f.Evidence, " "), "Kubernetes ")+" "+f.Subject+": "+f.Field), " ")
}

// checkFound compares one finding with its name and, each after "; ", facts of its message.
func checkFound(t *testing.T, found []fault.Finding, want string) {
	t.Helper()
	for _, f := range found {
		if f.Remedy == "" || f.Subject == "" {
			t.Errorf("incomplete: %+v", f)
		}
	}
	name, facts, _ := strings.Cut(want, "; ")
	i := slices.IndexFunc(found, func(f fault.Finding) bool { return named(f) == name })
	switch {
	case i < 0:
		t.Errorf("%q was not found: %+v", name, found)
	case slices.ContainsFunc(found[i+1:], func(f fault.Finding) bool { return named(f) == name }):
		t.Errorf("%q was found twice: %+v", name, found)
	case facts != "":
		fact.In(t, found[i].Message, strings.Split(facts, "; ")...)
	}
}

func (s *scene) findings() []fault.Finding {
	s.t.Helper()
	api := clientOf(s.api)
	state, err := upgrading.Look(s.t.Context(), api)
	if err != nil {
		s.t.Fatal(err)
	}
	sources := Sources{API: api, State: state}
	if !s.remote {
		n := &config.Node{Name: "cp-1"}
		n.Paths.Kubelet, n.Paths.Manifests, n.CRISocket = "/var/lib/kubelet", "/etc/kubernetes/manifests", "unix:///no/socket"
		h := linux.NewAt(s.root)
		defer h.Close()
		if s.own != nil {
			sources.Own = clientOf(s.own)
		}
		sources.Here, sources.Etcd = &Here{Host: h, Node: n, Wanted: map[string][]byte{}}, members{scene: s}
		for component, args := range s.wanted {
			sources.Here.Wanted[component] = []byte(asJSON(staticPod(component, s.to, args)))
		}
	}
	there, err := Collect(s.t.Context(), sources)
	if err != nil {
		s.t.Fatal(err)
	}
	return there.Check(state.Oldest(), s.to, new(config.ClusterConfiguration).EtcdVersion)
}

// always is the gap in every check of this cluster.
const always = "not-checked kubelets: flags"

// TestNothingFound: a cluster without problems has no findings, over one minor release and over three.
func TestNothingFound(t *testing.T) {
	for _, versions := range [][2]string{{"v1.36.4", "v1.37.2"}, {"v1.34.9", "v1.37.2"}, {"v1.37.1", "v1.37.2"}} {
		s := newScene(t, versions[0], versions[1])
		if got := s.found(); !slices.Equal(got, []string{always}) {
			t.Errorf("%v: found %q", versions, got)
		}
		checkFound(t, s.findings(), always+"; w-1")
	}
}

// TestBreakagesAreFound: each row makes a cluster with something an upgrade breaks, as users have it, and names the finding.
func TestBreakagesAreFound(t *testing.T) {
	const to35, to36, to37 = "v1.34.9 v1.35.8", "v1.35.8 v1.36.4", "v1.36.4 v1.37.2"
	pods := "/api/v1/namespaces/default/pods/"
	for name, row := range map[string]struct {
		versions string
		make     func(*scene)
		want     string
	}{
		"gates removed in 1.37": {to37, func(s *scene) {
			s.stored("apiServer: {extraArgs: [{name: feature-gates, value: SidecarContainers=true}]}\n")
			s.component("kube-apiserver", "--feature-gates=SidecarContainers=true")
		}, "gate-removed 1.37 extraArgs of kube-apiserver in ConfigMap kube-system/kubeadm-config: SidecarContainers"},
		"by hand": {to37, func(s *scene) { s.component("kube-scheduler", "--feature-gates=SidecarContainers=true") },
			"gate-removed 1.37 kube-scheduler on cp-1: SidecarContainers"},
		"a value apart from its flag": {to37, func(s *scene) { s.component("kube-scheduler", "--feature-gates", "SidecarContainers=true") },
			"gate-removed 1.37 kube-scheduler on cp-1: SidecarContainers"},
		"a flag with an underscore": {to37, func(s *scene) { s.component("kube-scheduler", "--feature_gates=SidecarContainers=true") },
			"gate-removed 1.37 kube-scheduler on cp-1: SidecarContainers"},
		"a configured flag with an underscore": {to37, func(s *scene) {
			s.stored("scheduler: {extraArgs: [{name: feature_gates, value: SidecarContainers=true}]}\n")
		}, "gate-removed 1.37 extraArgs of kube-scheduler in ConfigMap kube-system/kubeadm-config: SidecarContainers"},
		"a flag of the kubelet with an underscore": {to37, func(s *scene) {
			fixture.Put(s.t, s.root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--feature_gates=SidecarContainers=true\n")
		}, "gate-removed 1.37 kubelet on cp-1: SidecarContainers"},
		"a flag of the kubelet apart from its value": {to37, func(s *scene) {
			fixture.Put(s.t, s.root, "/var/lib/kubelet/kubeadm-flags.env", `KUBELET_KUBEADM_ARGS="--feature-gates SidecarContainers=true"`)
		}, "gate-removed 1.37 kubelet on cp-1: SidecarContainers"},
		"gates removed in 1.36": {"v1.34.9 v1.36.4", func(s *scene) {
			s.configMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\nfeatureGates: {MemoryManager: true}\n")
			s.configz(`{"featureGates": {"MemoryManager": true}}`)
		}, "gate-removed 1.36 ConfigMap kube-system/kubelet-config: MemoryManager"},
		"gates locked in 1.36": {to36, func(s *scene) { s.configz(`{"featureGates": {"UserNamespacesSupport": false}}`) },
			"gate-locked 1.36 kubelet on w-1: UserNamespacesSupport"},
		"gates locked in 1.37": {to37, func(s *scene) {
			fixture.Put(s.t, s.root, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nfeatureGates: {HostnameOverride: false}\n")
		}, "gate-locked 1.37 kubelet on cp-1: HostnameOverride"},
		"AllAlpha": {to35, func(s *scene) { s.component("kube-apiserver", "--feature-gates=AllAlpha=true,AllBeta=false") }, "gate-dependency 1.35 kube-apiserver on cp-1: StorageVersionAPI needs APIServerIdentity"},
		"a flag of the controller manager": {to37, func(s *scene) { s.component("kube-controller-manager", "--concurrent-service-syncs=2") },
			"flag-removed 1.37 kube-controller-manager on cp-1: --concurrent-service-syncs"},
		"cAdvisor's flags of the kubelet": {to37, func(s *scene) {
			fixture.Put(s.t, s.root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--boot-id-file=/x\n")
		}, "flag-removed 1.37 kubelet on cp-1: --boot-id-file; /etc/default/kubelet"},
		"the sandbox image": {to35, func(s *scene) {
			fixture.Put(s.t, s.root, "/etc/systemd/system/kubelet.service.d/20.conf", "[Service]\nEnvironment=\"X=--pod-infra-container-image=pause\"\n")
		}, "flag-removed 1.35 kubelet on cp-1: --pod-infra-container-image; /etc/systemd/system/kubelet.service.d/20.conf"},
		"cgroup v1 of another node": {to35, func(s *scene) { s.metricsOf("w-1", "# HELP\nkubelet_cgroup_version 1") },
			"cgroup-v1 1.35 kubelet on w-1: failCgroupV1"},
		"cgroup v1 here": {to35, func(s *scene) { s.remove("/sys/fs/cgroup/cgroup.controllers") }, "cgroup-v1 1.35 kubelet on cp-1: failCgroupV1"},
		"an old runtime": {to37, func(s *scene) { s.node("w-1", "containerd://1.7.27", false) },
			"runtime-config-call 1.37 kubelet on w-1: RuntimeConfig"},
		"memoryThrottlingFactor": {to37, func(s *scene) {
			s.configz(`{"memoryThrottlingFactor": 0.8, "featureGates": {"MemoryQoS": false}}`)
		},
			"memory-throttling 1.37 kubelet on w-1: memoryThrottlingFactor"},
		"eventRecordQPS": {to37, func(s *scene) {
			s.configMap("kubelet-config", "kubelet", "kind: KubeletConfiguration\neventRecordQPS: 0\n")
		}, "event-qps 1.37 ConfigMap kube-system/kubelet-config: eventRecordQPS"},
		"an API version that is switched on": {to37, func(s *scene) {
			s.stored("apiServer: {extraArgs: [{name: runtime-config, value: scheduling.k8s.io/v1alpha2=true}]}\n")
		}, "runtime-config 1.37 extraArgs of kube-apiserver in ConfigMap kube-system/kubeadm-config: scheduling.k8s.io/v1alpha2"},
		"objects stored in a version that goes away": {to37, func(s *scene) {
			s.serve("scheduling.k8s.io", "Workload", "workloads", storageHash(schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1alpha2", Kind: "Workload"}), "v1alpha2")
			s.put("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads/train", "scheduling.k8s.io/v1alpha2", "Workload", object{})
		}, "api-stored 1.37 Workload default/train: scheduling.k8s.io/v1alpha2 Workload"},
		"clients of beta versions": {to37, func(s *scene) {
			s.serve("networking.k8s.io", "ServiceCIDR", "servicecidrs", "gNLvruQhW2g=", "v1", "v1beta1")
			for _, cidr := range []string{"kubernetes", "extra", "more"} {
				s.put("/apis/networking.k8s.io/v1/servicecidrs/"+cidr, "networking.k8s.io/v1", "ServiceCIDR", object{"metadata": object{"managedFields": []any{
					object{"manager": "kube-apiserver", "apiVersion": "networking.k8s.io/v1beta1"}, object{"manager": "helm", "apiVersion": "networking.k8s.io/v1beta1"}}}})
			}
		}, "api-managed-fields 1.37 ServiceCIDR extra and 2 more: networking.k8s.io/v1beta1 ServiceCIDR helm"},
		"requests for beta versions": {to37, func(s *scene) {
			s.api.Answer("/metrics", "# TYPE apiserver_requested_deprecated_apis gauge\n"+
				`apiserver_requested_deprecated_apis{group="networking.k8s.io",removed_release="1.37",resource="ipaddresses",subresource="",version="v1beta1"} 1`+"\n")
		}, "api-requested 1.37 kube-apiserver on cp-1: networking.k8s.io/v1beta1/ipaddresses"},
		"a file that a flag names": {to36, func(s *scene) {
			s.component("kube-apiserver", "--admission-control-config-file=/etc/in-container/admission.yaml")
			fixture.Put(s.t, s.root, "/etc/on-host/admission.yaml",
				"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: ValidatingAdmissionWebhook, path: webhook.yaml}]\n")
			fixture.Put(s.t, s.root, "/etc/on-host/webhook.yaml", "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: WebhookAdmission\n")
		}, "config-file-version 1.36 /etc/on-host/webhook.yaml: apiserver.config.k8s.io/v1alpha1 WebhookAdmission"},
		"an admission plugin": {to37, func(s *scene) {
			s.component("kube-apiserver", "--enable-admission-plugins=NodeRestriction,PodGroupWorkloadExists")
		}, "admission-plugin-removed 1.37 kube-apiserver on cp-1: PodGroupWorkloadExists"},
		"exec": {to35, func(s *scene) {
			s.put("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/debug", "rbac.authorization.k8s.io/v1", "Role",
				object{"rules": []any{object{"apiGroups": []any{""}, "resources": []any{"pods/exec"}, "verbs": []any{"get"}}}})
		}, "exec-needs-create 1.35 Role default/debug: pods/exec; get"},
		"gitRepo volumes": {to36, func(s *scene) {
			s.put(pods+"clone", "v1", "Pod", object{"spec": object{"volumes": []any{object{"name": "v", "gitRepo": object{"repository": "r"}}}}})
		}, "gitrepo-volume 1.36 Pod default/clone: gitRepo"},
		"flex volumes": {to36, func(s *scene) {
			s.stored("controllerManager: {extraArgs: [{name: flex-volume-plugin-dir, value: /opt/flex}]}\n")
		}, "flex-volume-mount 1.36 extraArgs of kube-controller-manager in ConfigMap kube-system/kubeadm-config: --flex-volume-plugin-dir; /opt/flex"},
		"SELinux": {to37, func(s *scene) {
			fixture.Put(s.t, s.root, "/sys/fs/selinux/enforce", "1")
			s.sharedClaim()
		}, "selinux-mount 1.37 PersistentVolumeClaim default/data: seLinuxChangePolicy"},
		"SELinux on another node": {to37, func(s *scene) {
			s.put("/api/v1/nodes/w-1", "v1", "Node", object{"status": object{"nodeInfo": object{
				"kubeletVersion": s.from, "containerRuntimeVersion": "cri-o://1.36.0", "osImage": "openSUSE Tumbleweed"}}})
			s.sharedClaim()
		}, "selinux-mount 1.37 PersistentVolumeClaim default/data: seLinuxChangePolicy"},
		"a static Pod here that needs the API": {to37, func(s *scene) {
			fixture.Put(s.t, s.root, "/etc/kubernetes/manifests/dns.yaml", "apiVersion: v1\nkind: Pod\nspec: {volumes: [{name: v, configMap: {name: c}}]}\n")
		}, "static-pod-api-reference 1.37 /etc/kubernetes/manifests/dns.yaml: ConfigMap"},
		"a static Pod elsewhere that needs the API": {to37, func(s *scene) {
			s.put(pods+"dns-w-1", "v1", "Pod", object{"metadata": object{"annotations": object{"kubernetes.io/config.mirror": "x"}},
				"spec": object{"nodeName": "w-1", "volumes": []any{object{"name": "v", "secret": object{"secretName": "c"}}}}})
		}, "static-pod-api-reference 1.37 static Pod default/dns-w-1 on w-1: Secret"},
		"kube-proxy without a mode": {to37, func(s *scene) { s.configMap("kube-proxy", "config.conf", "kind: KubeProxyConfiguration\n") },
			"proxy-mode-empty 1.37 ConfigMap kube-system/kube-proxy: mode"},
		"kube-proxy with ipvs": {to37, func(s *scene) { s.configMap("kube-proxy", "config.conf", "kind: KubeProxyConfiguration\nmode: ipvs\n") },
			"proxy-mode-ipvs 1.37 ConfigMap kube-system/kube-proxy: mode"},
		"a flag of kube-proxy": {to37, func(s *scene) {
			s.put(proxyDaemons, "apps/v1", "DaemonSet",
				object{"spec": object{"template": object{"spec": object{"containers": []any{object{"name": "sidecar"}, object{"name": "kube-proxy",
					"image": "registry.k8s.io/kube-proxy:v1.36.4", "command": []any{"kube-proxy", "--config=/x"}, "args": []any{"--machine-id-file", "/x"}}}}}}})
		}, "flag-removed 1.37 DaemonSet kube-system/kube-proxy: --machine-id-file"},
		"etcd's patch release": {to37, func(s *scene) { s.etcd[0].Status.Version = "3.6.8" }, "etcd-patch 1.37 etcd member cp-1: 3.6.11; etcd 3.6.8"},
		"etcd's patch release, by its image": {to37, func(s *scene) {
			s.remote = true
			s.put(inSystem+"pods/etcd-cp-1", "v1", "Pod", object{"metadata": object{"labels": object{"component": "etcd", "tier": "control-plane"}},
				"spec": object{"nodeName": "cp-1", "containers": []any{object{"name": "etcd", "image": "registry.k8s.io/etcd:3.6.8-0"}}}})
		}, "etcd-patch 1.37 etcd on cp-1: 3.6.11; etcd 3.6.8"},
		"a flag of etcd": {to37, func(s *scene) {
			s.stored("etcd: {local: {dataDir: /var/lib/etcd, extraArgs: [{name: experimental-compaction-batch-limit, value: \"9\"}]}}\n")
		}, "flag-removed 1.37 extraArgs of etcd in ConfigMap kube-system/kubeadm-config: --experimental-compaction-batch-limit; etcd 3.7"},
		"a flag of etcd, on the way to 1.36": {to36, func(s *scene) {
			s.stored("etcd: {local: {dataDir: /var/lib/etcd, extraArgs: [{name: experimental-compaction-batch-limit, value: \"9\"}]}}\n")
		}, "flag-removed 1.36 extraArgs of etcd in ConfigMap kube-system/kubeadm-config: --experimental-compaction-batch-limit; etcd 3.7"},
		"a flag of etcd, before a patch release": {"v1.36.3 v1.36.4", func(s *scene) {
			s.component("etcd", "--name=cp-1", "-experimental-compaction-batch-limit", "9")
		}, "flag-removed 1.36 etcd on cp-1: --experimental-compaction-batch-limit; etcd 3.7"},
		"etcd's patch release, before a patch release": {"v1.36.3 v1.36.4", func(s *scene) { s.etcd[0].Status.Version = "3.6.8" },
			"etcd-patch 1.36 etcd member cp-1: 3.6.11; etcd 3.6.8"},
		"a flag that today's patches add": {to37, func(s *scene) { s.wanted["kube-controller-manager"] = []string{"--concurrent-service-syncs=2"} },
			"flag-removed 1.37 kube-controller-manager on cp-1: --concurrent-service-syncs"},
		"an external etcd": {to37, func(s *scene) {
			s.stored("etcd: {external: {endpoints: [\"https://192.0.2.9:2379\"], caFile: /a, certFile: /b, keyFile: /c}}\n")
			s.etcd[0].Status.Version = "3.5.21"
		}, "external-etcd-patch 1.37 etcd member cp-1: 3.5.32; etcd 3.5.21"},
		"a stored version of a custom resource": {to37, func(s *scene) {
			s.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com", "apiextensions.k8s.io/v1", "CustomResourceDefinition",
				object{"spec": object{"versions": []any{object{"name": "v1"}}}, "status": object{"storedVersions": []any{"v1beta1", "v1"}}})
		}, "crd-stored-version 1.37 CustomResourceDefinition foos.example.com: v1beta1"},
		"a webhook, before a patch release": {"v1.37.1 v1.37.2", func(s *scene) {
			s.put("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/all", "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration",
				object{"webhooks": []any{object{"name": "a.example.com", "failurePolicy": "Fail",
					"rules": []any{object{"operations": []any{"*"}, "apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "resources": []any{"*"}}}}}})
		}, "webhook-blocks-system 1.37 webhook a.example.com of MutatingWebhookConfiguration all: namespaceSelector; failurePolicy Fail"},
		"a budget": {to37, func(s *scene) {
			s.put("/apis/policy/v1/namespaces/default/poddisruptionbudgets/none", "policy/v1", "PodDisruptionBudget",
				object{"status": object{"expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 2}})
		}, "budget-allows-nothing 1.37 PodDisruptionBudget default/none: disruptionsAllowed; 2 of 2 Pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to, _ := strings.Cut(row.versions, " ")
			s := newScene(t, from, to)
			row.make(s)
			checkFound(t, s.findings(), row.want)
		})
	}
}

func (s *scene) remove(path string) {
	if err := os.Remove(filepath.Join(s.root, path)); err != nil {
		s.t.Fatal(err)
	}
}

// TestStorageHash: the hashes are from Kubernetes 1.36.
func TestStorageHash(t *testing.T) {
	for kind, want := range map[string]string{"ServiceCIDR": "gNLvruQhW2g=", "IPAddress": "3f/plJFChNE=", "Ingress": "39NQlfNR+bo="} {
		if got := storageHash(schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: kind}); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// TestDeletedKubeProxy: nothing reads the ConfigMap that's left of it.
func TestDeletedKubeProxy(t *testing.T) {
	s := newScene(t, "v1.36.4", "v1.37.2")
	s.configMap("kube-proxy", "config.conf", "kind: KubeProxyConfiguration\nmode: ipvs\nfeatureGates: {SupportIPVSProxyMode: true}\n")
	s.api.Remove(proxyDaemons)
	if got := s.found(); !slices.Equal(got, []string{always}) {
		t.Errorf("found %q", got)
	}
}

// TestRegeneratedFlagsAreNotFound: the upgrade writes these static Pods and kubeadm-flags.env without them.
func TestRegeneratedFlagsAreNotFound(t *testing.T) {
	s := newScene(t, "v1.34.9", "v1.37.2")
	s.component("etcd", "--experimental-initial-corrupt-check=true", "--experimental-watch-progress-notify-interval=5s")
	if got := s.found(); !slices.Equal(got, []string{always}) {
		t.Errorf("found %q", got)
	}
}

// TestWhatCannotBeReadIsFound: nothing passes unseen.
func TestWhatCannotBeReadIsFound(t *testing.T) {
	for name, row := range map[string]struct {
		make func(*scene)
		want string
	}{
		"a list":              {func(s *scene) { s.refuse("/api/v1/pods") }, "Pods: /api/v1/pods"},
		"discovery":           {func(s *scene) { s.refuse("/apis/networking.k8s.io") }, "API group networking.k8s.io: networking.k8s.io"},
		"a kubelet":           {func(s *scene) { s.refuse("/api/v1/nodes/w-1/proxy/configz") }, "kubelet on w-1: configz"},
		"metrics":             {func(s *scene) { s.refuse("/metrics") }, "kube-apiserver on cp-1: metrics"},
		"etcd":                {func(s *scene) { s.deaf = true }, "etcd: health; no member"},
		"etcd from elsewhere": {func(s *scene) { s.remote = true }, "etcd: health; certificate"},
		"a file": {func(s *scene) {
			s.component("kube-apiserver", "--authentication-config=/etc/in-container/missing.yaml")
		}, "kube-apiserver on cp-1: /etc/on-host/missing.yaml"},
		"a file from elsewhere": {func(s *scene) {
			s.remote = true
			s.component("kube-apiserver", "--authentication-config=/etc/in-container/a.yaml")
		}, "kube-apiserver on cp-1: /etc/in-container/a.yaml"},
		"a configuration": {func(s *scene) { s.configMap("kubelet-config", "kubelet", "{") }, "ConfigMap kube-system/kubelet-config: kubelet"},
		"the rest of a list": {func(s *scene) {
			for i := range maxObjects + 5 {
				s.put(fmt.Sprintf("/api/v1/namespaces/default/pods/p%04d", i), "v1", "Pod", object{})
			}
		}, "Pods: /api/v1/pods; 2000; 9"},
		"many kubelets": {func(s *scene) {
			for i := range maxNodes {
				s.node(fmt.Sprintf("w-%03d", i), "containerd://2.2.0", false)
			}
		}, "kubelets: nodes; 50; 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "v1.36.4", "v1.37.2")
			row.make(s)
			checkFound(t, s.findings(), "not-checked "+row.want)
		})
	}
}

func (s *scene) refuse(path string) { s.api.Answer(path, "not JSON, but "+strings.Repeat("x", 1<<17)) }

// TestFlagsThatTheUpgradeDrops: this host's static Pods are checked as the upgrade writes them. A flag running only on another
// node is a warning, a flag in the cluster's configuration is fatal.
func TestFlagsThatTheUpgradeDrops(t *testing.T) {
	const flag, removed = "--concurrent-service-syncs=2", "--concurrent-service-syncs"
	for name, row := range map[string]struct {
		make func(*scene)
		want []string
	}{
		"removed from the configuration, still running here": {func(s *scene) {
			s.component("kube-controller-manager", flag)
			s.wanted["kube-controller-manager"] = nil
		}, nil},
		"a file that is no longer named here": {func(s *scene) {
			s.component("kube-apiserver", "--authentication-config=/etc/in-container/missing.yaml")
			s.wanted["kube-apiserver"] = nil
		}, nil},
		"only on another node": {func(s *scene) { s.componentOn("cp-2", "kube-controller-manager", flag) },
			[]string{"warning flag-removed 1.37 kube-controller-manager on cp-2: " + removed}},
		"in the configuration": {func(s *scene) {
			s.stored("controllerManager: {extraArgs: [{name: concurrent-service-syncs, value: \"2\"}]}\n")
			s.component("kube-controller-manager", flag)
			s.componentOn("cp-2", "kube-controller-manager", flag)
		}, []string{"fatal flag-removed 1.37 extraArgs of kube-controller-manager in ConfigMap kube-system/kubeadm-config: " + removed}},
		"in the configuration, written in another way": {func(s *scene) {
			s.stored("controllerManager: {extraArgs: [{name: concurrent_service_syncs, value: \"2\"}]}\n")
			s.component("kube-controller-manager", "--concurrent_service_syncs=2")
			s.componentOn("cp-2", "kube-controller-manager", flag)
		}, []string{"fatal flag-removed 1.37 extraArgs of kube-controller-manager in ConfigMap kube-system/kubeadm-config: " + removed}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "v1.36.4", "v1.37.2")
			row.make(s)
			var got []string
			for _, f := range s.findings() {
				level := map[bool]string{true: "fatal", false: "warning"}[f.Severity == fault.Error]
				if named(f) != always {
					got = append(got, level+" "+named(f))
				}
				if (f.Severity == fault.Error) == strings.Contains(f.Remedy, "drops it") && f.Name == "flag-removed" {
					t.Errorf("remedy %q", f.Remedy)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("found %q, want %q", got, row.want)
			}
		})
	}
}

// TestOldKubelet: a lagging worker is checked from its release on, without finding the control plane's past problems again.
func TestOldKubelet(t *testing.T) {
	s := newScene(t, "v1.36.4", "v1.37.2")
	s.put("/api/v1/nodes/w-1", "v1", "Node", object{"status": object{"nodeInfo": object{
		"kubeletVersion": "v1.34.9", "containerRuntimeVersion": "containerd://2.2.0", "osImage": "Debian GNU/Linux 13"}}})
	s.metricsOf("w-1", "kubelet_cgroup_version 1")
	s.configz(`{"maxPods": 110}`)
	s.put("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/debug", "rbac.authorization.k8s.io/v1", "Role",
		object{"rules": []any{object{"apiGroups": []any{""}, "resources": []any{"pods/exec"}, "verbs": []any{"get"}}}})
	s.put("/api/v1/namespaces/default/pods/clone", "v1", "Pod", object{"spec": object{"nodeName": "w-1",
		"volumes": []any{object{"name": "v", "gitRepo": object{"repository": "r"}}}}})
	s.put("/api/v1/namespaces/default/pods/here", "v1", "Pod", object{"spec": object{"nodeName": "cp-1",
		"volumes": []any{object{"name": "v", "gitRepo": object{"repository": "r"}}}}})
	s.serve("scheduling.k8s.io", "Workload", "workloads", storageHash(schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1alpha1", Kind: "Workload"}), "v1alpha2")
	s.put("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads/train", "scheduling.k8s.io/v1alpha2", "Workload", object{})
	want := []string{"cgroup-v1 1.35 kubelet on w-1: failCgroupV1", "gitrepo-volume 1.36 Pod default/clone: gitRepo", always}
	if got := s.found(); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
