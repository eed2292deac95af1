// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Names of the static Pods, their containers and their files.
const (
	EtcdName              = config.EtcdComponent
	APIServerName         = config.APIServerComponent
	ControllerManagerName = config.ControllerManagerComponent
	SchedulerName         = config.SchedulerComponent
)

// Components returns the static Pods of control plane node n, in restart order.
func Components(n *config.Node) []string {
	list := []string{EtcdName, APIServerName, ControllerManagerName, SchedulerName}
	if n.Cluster.Etcd.External != nil {
		return list[1:]
	}
	return list
}

const (
	probePort = "probe-port"
	// probePeriod is how often the kubelet probes a starting component.
	probePeriod = 10 * time.Second
	// criticalPriority is system-node-critical's. A static Pod sets it itself, as there may be no API server to look it up.
	criticalPriority int32 = 2000001000
)

// staticPod holds the differences between the control plane's Pods.
type staticPod struct {
	name        string
	annotations map[string]string
	image       string
	args        []string
	env         []corev1.EnvVar
	requests    corev1.ResourceList
	mounts      []mount
	port        int32
	probes      probes
	user        *Account
	groups      []int64
	bindsPort   bool // needs a port below 1024 without being root
}

// pod returns the Pod. The caller chooses the order of mounts; volumes are sorted by name.
func (s staticPod) pod() *corev1.Pod {
	security := &corev1.PodSecurityContext{
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if s.user != nil {
		security.RunAsUser = ptr.To(s.user.UID)
		security.RunAsGroup = ptr.To(s.user.GID)
		security.SupplementalGroups = s.groups
	}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.name,
			Namespace:   metav1.NamespaceSystem,
			Labels:      map[string]string{"component": s.name, "tier": "control-plane"},
			Annotations: s.annotations,
		},
		Spec: corev1.PodSpec{
			Containers:        []corev1.Container{s.container()},
			HostNetwork:       true,
			PriorityClassName: "system-node-critical",
			Priority:          ptr.To(criticalPriority),
			SecurityContext:   security,
			Volumes:           volumes(s.mounts),
		},
	}
}

func (s staticPod) container() corev1.Container {
	c := corev1.Container{
		Name:            s.name,
		Image:           s.image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         append([]string{s.name}, s.args...),
		Env:             s.env,
		Ports:           []corev1.ContainerPort{{Name: probePort, ContainerPort: s.port, Protocol: corev1.ProtocolTCP}},
		Resources:       corev1.ResourceRequirements{Requests: s.requests},
		LivenessProbe:   s.probes.liveness,
		ReadinessProbe:  s.probes.readiness,
		StartupProbe:    s.probes.startup,
	}
	for _, m := range s.mounts {
		c.VolumeMounts = append(c.VolumeMounts, m.volumeMount())
	}
	if s.user != nil {
		c.SecurityContext = unprivileged(s.bindsPort)
	}
	return c
}

// commandLine returns flags: the defaults missing from extra, sorted by name, then extra as it is, which may repeat names.
func commandLine(defaults, extra []config.Arg) []string {
	slices.SortStableFunc(defaults, func(a, b config.Arg) int { return cmp.Compare(a.Name, b.Name) })
	var out []string
	for _, a := range defaults {
		if _, given := config.LastArg(extra, a.Name); !given {
			out = append(out, flag(a))
		}
	}
	for _, a := range extra {
		out = append(out, flag(a))
	}
	return out
}

func flag(a config.Arg) string { return "--" + a.Name + "=" + a.Value }

// environment merges the host's proxies with the user's variables, sorted by name; the last one of a name wins.
func environment(proxies []corev1.EnvVar, extra []config.EnvVar) []corev1.EnvVar {
	byName := map[string]corev1.EnvVar{}
	for _, e := range proxies {
		byName[e.Name] = e
	}
	for _, e := range extra {
		v := *e.DeepCopy()
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.APIVersion == "" {
			v.ValueFrom.FieldRef.APIVersion = "v1"
		}
		byName[v.Name] = v
	}
	var out []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

func requests(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

// probes are the kubelet's probes of a container.
type probes struct{ liveness, readiness, startup *corev1.Probe }

// endpoint is a component's health endpoint. An empty host means the Pod's address.
type endpoint struct {
	host   string
	scheme corev1.URIScheme
}

// livenessProbe restarts a component that doesn't answer for 80 s.
func (e endpoint) livenessProbe(path string) *corev1.Probe { return e.probe(path, 8, 10, 10) }

func (e endpoint) readinessProbe(path string) *corev1.Probe { return e.probe(path, 3, 0, 1) }

// startupProbe gives a component as long to start as init waits for it, in whole periods.
func (e endpoint) startupProbe(path string, timeout time.Duration) *corev1.Probe {
	periods := (timeout + probePeriod - 1) / probePeriod
	return e.probe(path, int32(periods), 10, int32(probePeriod/time.Second))
}

func (e endpoint) probe(path string, failures, delay, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host:   e.host,
			Path:   path,
			Port:   intstr.FromString(probePort),
			Scheme: e.scheme,
		}},
		InitialDelaySeconds: delay,
		TimeoutSeconds:      15,
		PeriodSeconds:       period,
		FailureThreshold:    failures,
	}
}
