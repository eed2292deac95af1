// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/golden"
)

func command(program string, args ...string) []Command {
	c := Command{Where: "here", Program: program}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		c.Args = append(c.Args, config.Arg{Name: name, Value: value})
	}
	return []Command{c}
}

func running(commands []Command) []Command {
	commands[0].Running = true
	return commands
}

// etcdFlags lists flags of etcd, including one that 3.7 doesn't have. stacked returns the members' version by Slipway's choice.
var (
	etcdFlags = command(releases.Etcd, "experimental-initial-corrupt-check=true", "data-dir=/x", "initial-cluster-state=new")
	stacked   = new(config.ClusterConfiguration).EtcdVersion
)

func pinned(tag string) func(string) string {
	c := config.ClusterConfiguration{}
	c.Etcd.Local = &config.LocalEtcd{}
	c.Etcd.Local.ImageTag = tag
	return c.EtcdVersion
}
func member(version string) []EtcdMember { return []EtcdMember{{Where: "m", Version: version}} }
func staticPodOn(node string) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "x"}}
}
func kubelet(doc string) []Kubelet { return []Kubelet{{Where: "here", Config: []byte(doc)}} }
func file(program, text string) []File {
	return []File{{Where: "here", Program: program, Data: []byte(text)}}
}
func podWith(v corev1.VolumeSource) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: v}}}}
}
func claim(level string) corev1.Pod {
	p := podWith(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
	return p
}
func recursive(p corev1.Pod) corev1.Pod {
	p.Spec.SecurityContext.SELinuxChangePolicy = new(corev1.SELinuxChangePolicyRecursive)
	return p
}
func role(verbs ...string) []rbacv1.Role {
	return []rbacv1.Role{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach"}, Verbs: verbs}}}}
}
func webhook(policy string, exempt ...string) []Webhook {
	w := Webhook{Where: "webhook w", FailurePolicy: policy, Rules: []WebhookRule{{Operations: []string{"CREATE"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
	if len(exempt) > 0 {
		w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: exempt}}}
	}
	return []Webhook{w}
}

const webhookAdmission = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1alpha1
    kind: WebhookAdmission
    kubeConfigFile: /etc/kubernetes/webhooks.conf
`

func metricsText(removed string) []File {
	return file("", `# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="networking.k8s.io",removed_release="`+removed+`",resource="ipaddresses",subresource="",version="v1beta1"} 1
`)
}

// row is something a rule finds ("id release fatal|warning: subject"), or something similar that's fine.
type row struct {
	name, from, to string
	in             Inputs
	want           []string
}

func rows() []row {
	return []row{
		// Command lines, by the tables.
		{"flag of the controller manager", "1.36", "1.37", Inputs{Commands: command(releases.ControllerManager, "concurrent-service-syncs=2", "v=2", "leader-elect=true")},
			[]string{"flag-removed 1.37 fatal: --concurrent-service-syncs"}},
		{"that flag, only on another node", "1.36", "1.37", Inputs{Commands: running(command(releases.ControllerManager, "concurrent-service-syncs=2"))},
			[]string{"flag-removed 1.37 warning: --concurrent-service-syncs"}},
		{"that flag in the release before", "1.35", "1.36", Inputs{Commands: command(releases.ControllerManager, "concurrent-service-syncs=2")}, nil},
		{"the same patch level", "v1.37.0", "v1.37.2", Inputs{Commands: command(releases.ControllerManager, "concurrent-service-syncs=2")}, nil},
		{"a flag written with _", "1.36", "1.37", Inputs{Commands: command(releases.Scheduler, "leader_elect=true")}, nil},
		{"cAdvisor flags of the kubelet", "1.36", "1.37", Inputs{Kubelets: []Kubelet{{Where: "here", Args: command("", "storage-driver-host=x", "containerd=/x")[0].Args}}},
			[]string{"flag-removed 1.37 fatal: --storage-driver-host", "flag-removed 1.37 fatal: --containerd"}},
		{"pod-infra-container-image", "1.34", "1.35", Inputs{Kubelets: []Kubelet{{Where: "here", Args: command("", "pod-infra-container-image=pause:3.10")[0].Args}}},
			[]string{"flag-removed 1.35 fatal: --pod-infra-container-image"}},
		{"a flag that the kubelet never had", "1.36", "1.37", Inputs{Kubelets: []Kubelet{{Where: "here", Args: command("", "network-plugin=cni", "cpunodebind=0")[0].Args}}},
			[]string{"flag-removed 1.37 warning: --network-plugin", "flag-removed 1.37 warning: --cpunodebind"}},
		{"a flag that no controller manager had", "1.36", "1.37", Inputs{Commands: command(releases.ControllerManager, "made-up=2")},
			[]string{"flag-removed 1.37 fatal: --made-up"}},
		{"removed gates", "v1.36.4", "v1.37.2", Inputs{Commands: command(releases.APIServer, "feature-gates=SidecarContainers=true,kube:AnyVolumeDataSource=true")},
			[]string{"gate-removed 1.37 fatal: AnyVolumeDataSource", "gate-removed 1.37 fatal: SidecarContainers"}},
		{"gates removed in 1.36", "1.35", "1.37", Inputs{Commands: command(releases.Scheduler, "feature-gates=MemoryManager=true,TopologyAwareHints=true")},
			[]string{"gate-removed 1.36 fatal: MemoryManager", "gate-removed 1.36 fatal: TopologyAwareHints"}},
		{"a gate of another component", "1.36", "1.37", Inputs{Commands: command(releases.APIServer, "feature-gates=wardle:SidecarContainers=true")}, nil},
		{"a locked gate", "1.36", "1.37", Inputs{Commands: command(releases.Scheduler, "feature-gates=HostnameOverride=false")},
			[]string{"gate-locked 1.37 fatal: HostnameOverride"}},
		{"a locked gate with its value", "1.36", "1.37", Inputs{Commands: command(releases.Scheduler, "feature-gates=HostnameOverride=true")}, nil},
		{"a gate locked in 1.36 is found once", "1.35", "1.37", Inputs{Kubelets: kubelet("featureGates: {UserNamespacesSupport: false}")},
			[]string{"gate-locked 1.36 fatal: UserNamespacesSupport"}},
		{"a gate without what it needs", "1.36", "1.37", Inputs{Commands: command(releases.APIServer, "feature-gates=ClusterTrustBundle=false")},
			[]string{"gate-dependency 1.37 fatal: ClusterTrustBundleProjection needs ClusterTrustBundle"}},
		{"the same with both off", "1.36", "1.37", Inputs{Commands: command(releases.APIServer, "feature-gates=ClusterTrustBundle=false,ClusterTrustBundleProjection=false")}, nil},
		{"a gate of kube-proxy", "1.36", "1.37", Inputs{Proxies: file(releases.Proxy, "mode: nftables\nfeatureGates: {SidecarContainers: true}")},
			[]string{"gate-removed 1.37 fatal: SidecarContainers"}},
		{"a flag of kube-proxy", "1.36", "1.37", Inputs{Commands: command(releases.Proxy, "config=/x", "machine-id-file=/x", "v=2", "feature-gates=SidecarContainers=true")},
			[]string{"flag-removed 1.37 fatal: --machine-id-file"}},
		{"a flag of a new kube-proxy", "1.36", "1.37", Inputs{ProxyFrom: "v1.37.2", Commands: command(releases.Proxy, "machine-id-file=/x")}, nil},
		{"a flag of an old kube-proxy", "v1.37.1", "v1.37.2", Inputs{ProxyFrom: "v1.36.4", Commands: command(releases.Proxy, "machine-id-file=/x")},
			[]string{"flag-removed 1.37 fatal: --machine-id-file"}},
		{"a gate in kube-proxy's flags", "1.36", "1.37", Inputs{Commands: command(releases.Proxy, "feature-gates=SidecarContainers=true")},
			[]string{"gate-removed 1.37 fatal: SidecarContainers"}},
		{"API versions", "1.36", "1.37", Inputs{Commands: command(releases.APIServer,
			"runtime-config=api/all=true,scheduling.k8s.io/v1alpha2=true,storage.k8s.io/v1beta1/volumeattributesclasses=true,apps/v1=true")},
			[]string{"runtime-config 1.37 fatal: scheduling.k8s.io/v1alpha2", "runtime-config 1.37 warning: storage.k8s.io/v1beta1/volumeattributesclasses"}},
		{"an older API version", "1.35", "1.36", Inputs{Commands: command(releases.APIServer, "runtime-config=scheduling.k8s.io/v1alpha1=true")},
			[]string{"runtime-config 1.36 fatal: scheduling.k8s.io/v1alpha1"}},
		{"an API version that goes in two steps", "1.34", "1.36", Inputs{Commands: command(releases.APIServer, "runtime-config=autoscaling/v2beta1=true")},
			[]string{"runtime-config 1.36 fatal: autoscaling/v2beta1"}},
		{"the same on another node", "1.34", "1.36", Inputs{Commands: running(command(releases.APIServer, "runtime-config=autoscaling/v2beta1=true"))},
			[]string{"runtime-config 1.35 warning: autoscaling/v2beta1"}},
		{"admission plugins", "1.36", "1.37", Inputs{Commands: command(releases.APIServer, "enable-admission-plugins=NodeRestriction,PodGroupWorkloadExists", "disable-admission-plugins=JobValidation")},
			[]string{"admission-plugin-removed 1.37 fatal: PodGroupWorkloadExists", "admission-plugin-removed 1.37 fatal: JobValidation"}},
		// Command lines, by rules.
		{"flex volumes", "1.35", "1.36", Inputs{Commands: command(releases.ControllerManager, "flex-volume-plugin-dir=/flex")},
			[]string{"flex-volume-mount 1.36 warning: --flex-volume-plugin-dir"}},
		{"flex volumes that are mounted", "1.35", "1.36", Inputs{Commands: []Command{{Where: "here", Program: releases.ControllerManager,
			Args: []config.Arg{{Name: "flex-volume-plugin-dir", Value: "/flex"}}, Mounts: []string{"/flex"}}}}, nil},

		// Configuration files.
		{"an unknown field", "1.36", "1.37", Inputs{Kubelets: kubelet("kind: KubeletConfiguration\nauthentication: {anonymous: {enabled: true, gone: 1}}\nevictionHard: {memory.available: 1Gi}\nfoo: 1")},
			[]string{"field-removed 1.37 warning: authentication.anonymous.gone", "field-removed 1.37 warning: foo"}},
		{"throttling without its gate", "1.36", "1.37", Inputs{Kubelets: kubelet("memoryThrottlingFactor: 0.8\nfeatureGates: {MemoryQoS: false}")},
			[]string{"memory-throttling 1.37 fatal: memoryThrottlingFactor"}},
		{"throttling, the old default", "1.36", "1.37", Inputs{Kubelets: kubelet("memoryThrottlingFactor: 0.9\nfeatureGates: {MemoryQoS: false}")}, nil},
		{"throttling that takes effect", "1.36", "1.37", Inputs{Kubelets: kubelet("memoryThrottlingFactor: 0.8")},
			[]string{"memory-throttling 1.37 warning: memoryThrottlingFactor"}},
		{"no limit of events", "1.36", "1.37", Inputs{Kubelets: kubelet("eventRecordQPS: 0")}, []string{"event-qps 1.37 warning: eventRecordQPS"}},
		{"a limit of events", "1.36", "1.37", Inputs{Kubelets: kubelet("eventRecordQPS: 50")}, nil},
		{"cgroup v1", "1.34", "1.35", Inputs{Kubelets: []Kubelet{{Where: "here", CgroupV1: true}}}, []string{"cgroup-v1 1.35 fatal: failCgroupV1"}},
		{"cgroup v1, accepted", "1.34", "1.35", Inputs{Kubelets: []Kubelet{{Where: "here", CgroupV1: true, Config: []byte("failCgroupV1: false")}}}, nil},
		{"an old container runtime", "1.36", "1.37", Inputs{Kubelets: []Kubelet{{Where: "here", OldRuntime: true}}}, []string{"runtime-config-call 1.37 warning: RuntimeConfig"}},
		{"a kubelet behind its control plane", "1.36", "1.37", Inputs{Kubelets: []Kubelet{{Where: "here", From: "v1.35.8", Config: []byte("featureGates: {MemoryManager: true}")}}},
			[]string{"gate-removed 1.36 fatal: MemoryManager"}},
		{"a file that is not YAML", "1.36", "1.37", Inputs{Kubelets: kubelet("a: [")}, []string{"not-checked 1.37 warning: YAML"}},
		{"kube-proxy without a mode", "1.36", "1.37", Inputs{Proxies: file(releases.Proxy, "mode: \"\"")}, []string{"proxy-mode-empty 1.37 warning: mode"}},
		{"kube-proxy in mode ipvs", "1.36", "1.37", Inputs{Proxies: file(releases.Proxy, "mode: ipvs")}, []string{"proxy-mode-ipvs 1.37 warning: mode"}},
		{"kube-proxy in mode iptables", "1.36", "1.37", Inputs{Proxies: file(releases.Proxy, "mode: iptables")}, nil},
		{"webhooks' admission configuration", "1.35", "1.37", Inputs{Files: file(releases.APIServer, webhookAdmission)},
			[]string{"config-file-version 1.36 fatal: apiserver.config.k8s.io/v1alpha1 WebhookAdmission"}},
		{"static Pod with a ConfigMap", "1.36", "1.37", Inputs{StaticPods: []StaticPod{{Where: "here",
			Pod: podWith(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}})}}}, []string{"static-pod-api-reference 1.37 fatal: ConfigMap"}},
		{"static Pod with a Secret", "1.36", "1.37", Inputs{StaticPods: []StaticPod{{Where: "here", Pod: corev1.Pod{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}}}}}}}}, []string{"static-pod-api-reference 1.37 fatal: Secret"}},
		{"static Pod with an iSCSI disk", "1.36", "1.37", Inputs{StaticPods: []StaticPod{{Where: "here",
			Pod: podWith(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: &corev1.LocalObjectReference{Name: "chap"}}})}}},
			[]string{"static-pod-api-reference 1.37 fatal: Secret"}},
		{"static Pod with an iSCSI disk without a Secret", "1.36", "1.37", Inputs{StaticPods: []StaticPod{{Where: "here",
			Pod: podWith(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}})}}}, nil},
		{"static Pod with a ServiceAccount", "1.36", "1.37", Inputs{StaticPods: []StaticPod{{Where: "here", Pod: corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: "x"}}}}},
			[]string{"static-pod-api-reference 1.37 fatal: ServiceAccount"}},
		{"static Pod with files of the node", "1.36", "1.37", Inputs{StaticPods: []StaticPod{{Where: "here",
			Pod: podWith(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}})}}}, nil},

		// Etcd.
		{"etcd before 3.6.11", "1.35", "1.36", Inputs{Etcd: member("3.6.8"), EtcdVersion: stacked}, []string{"etcd-patch 1.36 warning: 3.6.11"}},
		{"the same over two minors", "1.35", "1.37", Inputs{Etcd: member("3.6.8"), EtcdVersion: stacked}, []string{"etcd-patch 1.36 warning: 3.6.11"}},
		{"the same within a minor", "v1.36.3", "v1.36.4", Inputs{Etcd: member("3.6.8"), EtcdVersion: stacked}, []string{"etcd-patch 1.36 warning: 3.6.11"}},
		{"before etcd changes", "1.34", "1.35", Inputs{Etcd: member("3.6.8"), EtcdVersion: stacked, Commands: etcdFlags}, nil},
		{"etcd 3.6.11", "1.36", "1.37", Inputs{Etcd: member("3.6.11"), EtcdVersion: stacked}, nil},
		{"etcd that has its version", "1.36", "1.37", Inputs{Etcd: member("3.7.0"), EtcdVersion: stacked, Commands: etcdFlags}, nil},
		{"etcd that is left alone", "1.36", "1.37", Inputs{Etcd: member("3.6.8"), Commands: etcdFlags}, nil},
		{"flags of etcd", "1.35", "1.36", Inputs{Etcd: member("3.6.12"), EtcdVersion: stacked, Commands: etcdFlags},
			[]string{"flag-removed 1.36 fatal: --experimental-initial-corrupt-check"}},
		{"the same over three minors", "1.34", "1.37", Inputs{Etcd: member("3.6.12"), EtcdVersion: stacked, Commands: etcdFlags},
			[]string{"flag-removed 1.36 fatal: --experimental-initial-corrupt-check"}},
		{"the same within a minor", "v1.36.3", "v1.36.4", Inputs{Etcd: member("3.6.12"), EtcdVersion: stacked, Commands: etcdFlags},
			[]string{"flag-removed 1.36 fatal: --experimental-initial-corrupt-check"}},
		{"flags of a member that still has to follow", "1.36", "1.37", Inputs{Etcd: append(member("3.7.0"), member("3.6.12")...), EtcdVersion: stacked, Commands: etcdFlags},
			[]string{"flag-removed 1.37 fatal: --experimental-initial-corrupt-check"}},
		{"etcd with a tag of the user's", "1.36", "1.37", Inputs{Etcd: member("3.6.8"), EtcdVersion: pinned("3.6.12"), Commands: etcdFlags}, nil},
		{"a tag of a new minor release", "1.34", "1.36", Inputs{Etcd: member("3.6.12"), EtcdVersion: pinned("3.7.1"), Commands: etcdFlags},
			[]string{"flag-removed 1.35 fatal: --experimental-initial-corrupt-check"}},
		{"a tag of a release without a table", "1.36", "1.37", Inputs{Etcd: member("3.7.0"), EtcdVersion: pinned("3.8.0"), Commands: etcdFlags},
			[]string{"no-table 1.37 warning: etcd 3.8"}},
		{"a tag that is not a version", "1.36", "1.37", Inputs{Etcd: member("3.6.8"), EtcdVersion: pinned("latest"), Commands: etcdFlags},
			[]string{"not-checked 1.37 warning: imageTag"}},
		{"external etcd 3.5", "1.36", "1.37", Inputs{Etcd: []EtcdMember{{"m", "3.5.21", true}}}, []string{"external-etcd-patch 1.37 warning: 3.5.32"}},
		{"external etcd 3.5.32", "1.36", "1.37", Inputs{Etcd: []EtcdMember{{"m", "3.5.32", true}}}, nil},
		{"etcd of no version", "1.36", "1.37", Inputs{Etcd: member("x"), EtcdVersion: stacked}, []string{"not-checked 1.37 warning: version"}},

		// Nodes that lag behind their control plane: problems the control plane has already passed aren't found again.
		{"an old kubelet", "1.36", "1.37", Inputs{Kubelets: []Kubelet{{Where: "here", From: "v1.34.9"}}, Cluster: Objects{Roles: role("get")},
			Commands: command(releases.Scheduler, "feature-gates=MemoryManager=true"), Files: file(releases.APIServer, webhookAdmission),
			APIUse: []APIUse{{"Workload default/w", "scheduling.k8s.io/v1alpha1", "Workload", ""}}},
			[]string{"gate-removed 1.37 fatal: MemoryManager", "config-file-version 1.37 fatal: apiserver.config.k8s.io/v1alpha1 WebhookAdmission"}},
		{"an old kubelet, within a minor", "v1.36.3", "v1.36.4", Inputs{Kubelets: []Kubelet{{Where: "here", From: "v1.34.9", CgroupV1: true}},
			Commands: command(releases.Scheduler, "feature-gates=MemoryManager=true"), Cluster: Objects{Roles: role("get"), Webhooks: webhook("Fail")}},
			[]string{"cgroup-v1 1.35 fatal: failCgroupV1", "webhook-blocks-system 1.36 warning: namespaceSelector"}},
		{"Pods on old and new kubelets", "v1.37.1", "v1.37.2", Inputs{
			Kubelets:   []Kubelet{{Where: "kubelet on old", Node: "old", From: "v1.36.4"}, {Where: "kubelet on new", Node: "new", From: "v1.37.1"}},
			StaticPods: []StaticPod{{Where: "here", Pod: staticPodOn("new")}, {Where: "here too", Pod: staticPodOn("old")}}},
			[]string{"static-pod-api-reference 1.37 fatal: ServiceAccount"}},
		{"a static Pod that a worker reports", "1.36", "1.37", Inputs{StaticPods: []StaticPod{{Where: "there", Pod: staticPodOn("w-1"), Reported: true}}},
			[]string{"static-pod-api-reference 1.37 warning: ServiceAccount"}},
		{"an old kube-proxy", "v1.37.1", "v1.37.2", Inputs{ProxyFrom: "v1.36.4", Proxies: file(releases.Proxy, "mode: ipvs")}, []string{"proxy-mode-ipvs 1.37 warning: mode"}},
		{"a new kube-proxy", "1.36", "1.37", Inputs{ProxyFrom: "v1.37.2", Proxies: file(releases.Proxy, "mode: ipvs")}, nil},
		{"a control plane that is newer than the tables", "1.38", "v1.38.1", Inputs{Commands: command(releases.Scheduler, "feature-gates=MemoryManager=true")},
			[]string{"no-table 1.38 warning: "}},

		// The API.
		{"beta objects of the network", "1.36", "1.37", Inputs{APIUse: []APIUse{{"ServiceCIDR x", "networking.k8s.io/v1beta1", "ServiceCIDR", "helm"},
			{"ServiceCIDR x", "networking.k8s.io/v1beta1", "ServiceCIDR", ""}, {"ServiceCIDR x", "networking.k8s.io/v1", "ServiceCIDR", "kubectl"}}},
			[]string{"api-managed-fields 1.37 warning: networking.k8s.io/v1beta1 ServiceCIDR helm"}},
		{"workloads of the scheduler", "1.36", "1.37", Inputs{APIUse: []APIUse{{"Workload default/w", "scheduling.k8s.io/v1alpha2", "Workload", ""}}},
			[]string{"api-stored 1.37 fatal: scheduling.k8s.io/v1alpha2 Workload"}},
		{"an old trace of a client", "1.36", "1.37", Inputs{APIUse: []APIUse{{"Deployment x", "apps/v1beta1", "Deployment", "kubectl"}}}, nil},
		{"a custom resource", "1.36", "1.37", Inputs{APIUse: []APIUse{{"Foo x", "example.com/v1alpha1", "Foo", ""}}}, nil},
		{"requests for a removed version", "1.36", "1.37", Inputs{Metrics: metricsText("1.37")},
			[]string{"api-requested 1.37 warning: networking.k8s.io/v1beta1/ipaddresses"}},
		{"requests for a version that stays", "1.36", "1.37", Inputs{Metrics: metricsText("1.38")}, nil},
		{"metrics that cannot be read", "1.36", "1.37", Inputs{Metrics: file("", "{")}, []string{"not-checked 1.37 warning: metrics"}},
		{"a stored version that is not defined", "1.36", "1.37", Inputs{Cluster: Objects{CustomResources: []CustomResource{{"foos.example.com", []string{"v1"}, []string{"v1beta1", "v1"}}}}},
			[]string{"crd-stored-version 1.37 warning: v1beta1"}},

		// Objects.
		{"gitRepo", "1.35", "1.37", Inputs{Cluster: Objects{Pods: []corev1.Pod{podWith(corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}})}}},
			[]string{"gitrepo-volume 1.36 warning: gitRepo"}},
		{"get on exec", "1.34", "1.35", Inputs{Cluster: Objects{Roles: role("get")}}, []string{"exec-needs-create 1.35 warning: pods/exec pods/attach"}},
		{"get and create on exec", "1.34", "1.35", Inputs{Cluster: Objects{Roles: role("get", "create")}}, nil},
		{"a webhook for all namespaces", "1.36", "1.37", Inputs{Cluster: Objects{Webhooks: webhook("Fail")}}, []string{"webhook-blocks-system 1.37 warning: namespaceSelector"}},
		{"a webhook that may fail", "1.36", "1.37", Inputs{Cluster: Objects{Webhooks: webhook("Ignore")}}, nil},
		{"a webhook without kube-system", "1.36", "1.37", Inputs{Cluster: Objects{Webhooks: webhook("Fail", "kube-system")}}, nil},
		{"a budget that allows nothing", "1.36", "1.37", Inputs{Cluster: Objects{Budgets: []policyv1.PodDisruptionBudget{{Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, CurrentHealthy: 2, DesiredHealthy: 2}}}}},
			[]string{"budget-allows-nothing 1.37 warning: disruptionsAllowed"}},
		{"a budget of no Pods", "1.36", "1.37", Inputs{Cluster: Objects{Budgets: []policyv1.PodDisruptionBudget{{}}}}, nil},
		{"SELinux and a shared volume", "1.36", "1.37", Inputs{Cluster: Objects{SELinux: true, Pods: []corev1.Pod{claim("s0:c1"), claim("s0:c2")}}},
			[]string{"selinux-mount 1.37 warning: seLinuxChangePolicy"}},
		{"the same label", "1.36", "1.37", Inputs{Cluster: Objects{SELinux: true, Pods: []corev1.Pod{claim("s0:c1"), claim("s0:c1")}}}, nil},
		{"labels that are changed file by file", "1.36", "1.37", Inputs{Cluster: Objects{SELinux: true, Pods: []corev1.Pod{claim("s0:c1"), recursive(claim("s0:c2"))}}}, nil},

		{"a release that is not known", "1.37", "1.38", Inputs{Cluster: Objects{}}, []string{"no-table 1.38 warning: "}},
	}
}

func TestRows(t *testing.T) {
	for _, tt := range rows() {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.From, tt.in.To = tt.from, tt.to
			var got []string
			for _, f := range Check(tt.in) {
				kind := "warning"
				if f.Severity == fault.Error {
					kind = "fatal"
				}
				got = append(got, fmt.Sprintf("%s %s %s: %s", f.Name, minor(f), kind, f.Field))
				if f.Subject == "" || f.Message == "" || f.Remedy == "" || !strings.Contains(f.Message, strings.Split(f.Subject, " ")[0]) {
					t.Errorf("incomplete: %+v", f)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func minor(f fault.Finding) string {
	return strings.TrimPrefix(strings.Join(f.Evidence, " "), "Kubernetes ")
}

// TestGolden: the file has each rule's first finding.
func TestGolden(t *testing.T) {
	var text strings.Builder
	shown := map[string]bool{}
	for _, r := range rows() {
		r.in.From, r.in.To = r.from, r.to
		for _, f := range Check(r.in) {
			if !shown[f.Name] {
				shown[f.Name] = true
				fmt.Fprintf(&text, "[%s] %s, fatal %t: %s\n", f.Name, minor(f), f.Severity == fault.Error, f.Plain())
			}
		}
	}
	golden.Check(t, "testdata/findings.txt", text.String())
}

// TestEtcdTables: each etcd that Slipway installs has a table.
func TestEtcdTables(t *testing.T) {
	minors := 0
	for minor := range 100 {
		if config.NewestPatch(minor) == "" {
			continue
		}
		minors++
		of := fmt.Sprintf("1.%d", minor)
		if _, known := releases.OfEtcd(releases.MinorOf(stacked(of))); !known {
			t.Errorf("no table of etcd %s, which Kubernetes %s gets: add it to test/releases", stacked(of), of)
		}
		if _, known := releases.Of(of); !known {
			t.Errorf("no table of Kubernetes %s: add it to test/releases", of)
		}
	}
	if minors < 3 {
		t.Error("too few releases: they were not found")
	}
}

// TestEtcdPatchRemedy: a user of a stacked etcd can follow the remedy.
func TestEtcdPatchRemedy(t *testing.T) {
	found := Check(Inputs{From: "v1.36.3", To: "v1.37.2", Etcd: member("3.6.8"), EtcdVersion: stacked})
	if len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	fact.In(t, found[0].Remedy, "etcd.local.imageTag: 3.6.11-0", "`slipway upgrade apply`", "version")
}
