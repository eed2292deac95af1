// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

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
	args        []string
	env         []corev1.EnvVar
	cpu, memory string // requests
	mounts      []mount
	health      endpoint
	probes      probes
	bindsPort   bool // needs a port below 1024 without being root
}

// pod returns the Pod. The caller chooses the order of mounts; volumes are sorted by name.
func (s staticPod) pod(n *config.Node, v HostView) *corev1.Pod {
	c := s.container(n)
	security := &corev1.PodSecurityContext{
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if v.Users != nil {
		user := v.Users.Accounts[users[s.name]]
		security.RunAsUser, security.RunAsGroup = &user.UID, &user.GID
		if slices.Contains(keyReaders, s.name) {
			security.SupplementalGroups = []int64{v.Users.ServiceAccountKeyGID}
		}
		c.SecurityContext = unprivileged(s.bindsPort)
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
			Containers:        []corev1.Container{c},
			HostNetwork:       true,
			PriorityClassName: "system-node-critical",
			Priority:          ptr.To(criticalPriority),
			SecurityContext:   security,
			Volumes:           volumes(s.mounts),
		},
	}
}

func (s staticPod) container(n *config.Node) corev1.Container {
	limit := n.Timeouts.ControlPlaneComponentHealthCheck
	c := corev1.Container{
		Name:            s.name,
		Image:           n.Image(s.name),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         append([]string{s.name}, s.args...),
		Env:             s.env,
		Ports:           []corev1.ContainerPort{{Name: probePort, ContainerPort: s.health.port, Protocol: corev1.ProtocolTCP}},
		Resources:       corev1.ResourceRequirements{Requests: requests(s.cpu, s.memory)},
		// A component that doesn't answer for 80 s is restarted. It has as long to start as init waits for it, in whole periods.
		LivenessProbe:  s.health.probe(s.probes.liveness, 8, 10, 10),
		ReadinessProbe: s.health.probe(s.probes.readiness, 3, 0, 1),
		StartupProbe:   s.health.probe(s.probes.startup, int32((limit+probePeriod-1)/probePeriod), 10, int32(probePeriod/time.Second)),
	}
	for _, m := range s.mounts {
		c.VolumeMounts = append(c.VolumeMounts, m.volumeMount())
	}
	return c
}

// DecodePod decodes a static Pod, and fails if it has no container. A component's container comes first, even if a sidecar does in data.
func DecodePod(data []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal(data, pod); err != nil {
		return nil, errors.WithStack(err)
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, errors.New("the static Pod has no container")
	}
	pod.Status = corev1.PodStatus{}
	componentFirst(pod)
	return pod, nil
}

func componentFirst(pod *corev1.Pod) {
	if i := componentContainer(pod); i > 0 {
		c := pod.Spec.Containers[i]
		pod.Spec.Containers = slices.Insert(slices.Delete(pod.Spec.Containers, i, i+1), 0, c)
	}
}

// ContainerIndex returns the index of a component's container in its manifest, for a JSON patch of that.
func ContainerIndex(manifest []byte) int {
	pod := &corev1.Pod{}
	_ = yaml.Unmarshal(manifest, pod) // nothing there: 0
	return componentContainer(pod)
}

// componentContainer returns the index of a component's container in its static Pod, which has the component's name; 0 if none does.
func componentContainer(pod *corev1.Pod) int {
	return max(0, slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name != "" && (c.Name == pod.Name || c.Name == pod.Labels["component"])
	}))
}

// commandLine returns flags: the defaults missing from extra, sorted by name, then extra as it is, which may repeat names.
func commandLine(defaults, extra []config.Arg) []string {
	defaults = slices.DeleteFunc(defaults, func(a config.Arg) bool {
		_, given := config.LastArg(extra, a.Name)
		return given
	})
	slices.SortStableFunc(defaults, func(a, b config.Arg) int { return cmp.Compare(a.Name, b.Name) })
	return config.Words(slices.Concat(defaults, extra))
}

// environment merges the host's proxies with the user's variables, sorted by name; the last of a name wins.
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

// requests leaves out the memory if it's empty.
func requests(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

// probes are the paths of the kubelet's probes of a container; empty for none.
type probes struct{ liveness, readiness, startup string }

// endpoint is a component's health endpoint. An empty host means the Pod's address.
type endpoint struct {
	host   string
	port   int32
	scheme corev1.URIScheme
}

// probeTimeout is for a saturated or emulated host, in seconds. Kubernetes' default is one.
const probeTimeout = 15

func (e endpoint) probe(path string, failures, delay, period int32) *corev1.Probe {
	if path == "" {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host:   e.host,
			Path:   path,
			Port:   intstr.FromString(probePort),
			Scheme: e.scheme,
		}},
		InitialDelaySeconds: delay,
		TimeoutSeconds:      probeTimeout,
		PeriodSeconds:       period,
		FailureThreshold:    failures,
	}
}

// ProbeBase returns the URL of a container's liveness probe without its path, or false if it has no HTTP probe.
func ProbeBase(c *corev1.Container) (base string, found bool) {
	if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet == nil {
		return "", false
	}
	get := c.LivenessProbe.HTTPGet
	port := get.Port.String()
	for _, p := range c.Ports {
		if p.Name == port {
			port = strconv.Itoa(int(p.ContainerPort))
		}
	}
	scheme := strings.ToLower(cmp.Or(string(get.Scheme), "http"))
	return scheme + "://" + net.JoinHostPort(get.Host, port), true
}
