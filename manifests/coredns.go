// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/config"
)

const (
	CoreDNSName = "coredns"
	CorefileMap = CoreDNSName
	CorefileKey = "Corefile"
	// dnsName is the Service's name. It's older than CoreDNS; Pods and tools rely on it.
	dnsName = "kube-dns"
)

// CoreDNS returns the DNS add-on. Patches of the target corednsdeployment apply to its Deployment.
func CoreDNS(n *config.Node, patches config.PatchSet) ([]Object, error) {
	deployment, err := patched(coreDNSDeployment(n), &appsv1.Deployment{}, patches, config.PatchCoreDNS)
	if err != nil {
		return nil, err
	}
	watch := []string{"list", "watch"}
	return []Object{
		deployment,
		configMap(metav1.NamespaceSystem, CoreDNSName, map[string]string{CorefileKey: corefile(n.Cluster.Networking.DNSDomain)}),
		dnsService(n),
		clusterRole("system:coredns",
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"endpoints", "services", "pods", "namespaces"}, Verbs: watch},
			rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: watch}),
		clusterBinding("system:coredns", "system:coredns", account(CoreDNSName)),
		serviceAccount(CoreDNSName),
	}, nil
}

// corefile configures CoreDNS: https://coredns.io/manual/toc/#configuration. Answers for the cluster's domain change with every
// Pod, so it doesn't cache them.
func corefile(domain string) string {
	return `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes ` + domain + ` in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success ` + domain + `
       disable denial ` + domain + `
    }
    loop
    reload
    loadbalance
}
`
}

func dnsService(n *config.Node) Object {
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, Protocol: protocol, TargetPort: intstr.FromInt32(number)}
	}
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      dnsName,
			Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{
				"k8s-app":                       dnsName,
				"kubernetes.io/cluster-service": "true",
				"kubernetes.io/name":            "CoreDNS",
			},
			Annotations: map[string]string{"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: n.ClusterDNSIPs()[0].String(),
			Selector:  map[string]string{"k8s-app": dnsName},
			Ports: []corev1.ServicePort{
				port("dns", 53, corev1.ProtocolUDP),
				port("dns-tcp", 53, corev1.ProtocolTCP),
				port("metrics", 9153, corev1.ProtocolTCP),
			},
		},
	}
}

func coreDNSDeployment(n *config.Node) *appsv1.Deployment {
	labels := map[string]string{"k8s-app": dnsName}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: CoreDNSName, Namespace: metav1.NamespaceSystem, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(1))},
			},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					PriorityClassName:  "system-cluster-critical",
					ServiceAccountName: CoreDNSName,
					Affinity:           spreadAffinity("k8s-app", dnsName),
					Tolerations: []corev1.Toleration{
						{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
						{Key: config.ControlPlaneTaint, Effect: corev1.TaintEffectNoSchedule},
					},
					NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
					Containers:   []corev1.Container{coreDNSContainer(n)},
					DNSPolicy:    corev1.DNSDefault,
					Volumes:      []corev1.Volume{configVolume("config-volume", CoreDNSName, corev1.KeyToPath{Key: CorefileKey, Path: CorefileKey})},
				},
			},
		},
	}
}

// spreadAffinity asks the scheduler to spread Pods with the same label over nodes.
func spreadAffinity(label, value string) *corev1.Affinity {
	same := []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchExpressions: same},
				TopologyKey:   corev1.LabelHostname,
			},
		}},
	}}
}

func coreDNSContainer(n *config.Node) corev1.Container {
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol}
	}
	get := func(path, port string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTP}}
	}
	return corev1.Container{
		Name:            CoreDNSName,
		Image:           n.Image(CoreDNSName),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")},
			Requests: requests("100m", "70Mi"),
		},
		Args:         []string{"-conf", "/etc/coredns/Corefile"},
		VolumeMounts: []corev1.VolumeMount{{Name: "config-volume", MountPath: "/etc/coredns", ReadOnly: true}},
		Ports: []corev1.ContainerPort{
			port("dns", 53, corev1.ProtocolUDP),
			port("dns-tcp", 53, corev1.ProtocolTCP),
			port("metrics", 9153, corev1.ProtocolTCP),
			port("liveness-probe", 8080, corev1.ProtocolTCP),
			port("readiness-probe", 8181, corev1.ProtocolTCP),
		},
		LivenessProbe: &corev1.Probe{ProbeHandler: get("/health", "liveness-probe"),
			InitialDelaySeconds: 60, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 5},
		ReadinessProbe: &corev1.Probe{ProbeHandler: get("/ready", "readiness-probe")},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities: &corev1.Capabilities{
				Add:  []corev1.Capability{"NET_BIND_SERVICE"},
				Drop: []corev1.Capability{"ALL"},
			},
			ReadOnlyRootFilesystem: ptr.To(true),
		},
	}
}
