// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// SameStaticPod reports whether two static Pods mean the same to the kubelet: defaults left out in one of them, and the order of
// flags, variables and volumes, don't count. An unreadable Pod isn't the same as any other.
func SameStaticPod(a, b []byte) bool {
	x, err := normalPod(a)
	if err != nil {
		return false
	}
	y, err := normalPod(b)
	return err == nil && equality.Semantic.DeepEqual(x, y)
}

// normalPod decodes a Pod, sets its defaults and sorts lists whose order doesn't matter.
func normalPod(data []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		return nil, errors.WithStack(err)
	}
	pod.Status = corev1.PodStatus{}
	defaultPod(&pod.Spec)
	slices.SortFunc(pod.Spec.Volumes, func(a, b corev1.Volume) int { return cmp.Compare(a.Name, b.Name) })
	for i := range pod.Spec.Containers {
		normalizeContainer(&pod.Spec.Containers[i], pod.Spec.HostNetwork)
	}
	for i := range pod.Spec.InitContainers {
		normalizeContainer(&pod.Spec.InitContainers[i], pod.Spec.HostNetwork)
	}
	return pod, nil
}

// defaultPod sets the API's defaults: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
func defaultPod(s *corev1.PodSpec) {
	setDefault(&s.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&s.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&s.SchedulerName, corev1.DefaultSchedulerName)
	defaultPointer(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	defaultPointer(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	defaultPointer(&s.SecurityContext, corev1.PodSecurityContext{})
	for i := range s.Volumes {
		if h := s.Volumes[i].HostPath; h != nil {
			defaultPointer(&h.Type, corev1.HostPathUnset)
		}
	}
}

func normalizeContainer(c *corev1.Container, hostNetwork bool) {
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	policy := corev1.PullIfNotPresent
	if _, tag, tagged := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":"); !tagged || tag == "latest" {
		policy = corev1.PullAlways
	}
	setDefault(&c.ImagePullPolicy, policy)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			setDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	sortFlags(c.Command)
	sortFlags(c.Args)
	slices.SortStableFunc(c.Env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return cmp.Compare(a.MountPath, b.MountPath) })
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	setDefault(&p.TimeoutSeconds, 1)
	setDefault(&p.PeriodSeconds, 10)
	setDefault(&p.SuccessThreshold, 1)
	setDefault(&p.FailureThreshold, 3)
	if p.HTTPGet != nil {
		setDefault(&p.HTTPGet.Path, "/")
		setDefault(&p.HTTPGet.Scheme, corev1.URISchemeHTTP)
	}
}

// sortFlags sorts --NAME=VALUE words after the program by name; repeated flags keep their order, as the last wins. With other
// words, the order can matter, so the line stays as it is.
func sortFlags(words []string) {
	if len(words) > 0 && !strings.HasPrefix(words[0], "--") {
		words = words[1:]
	}
	if slices.ContainsFunc(words, func(w string) bool { return !strings.HasPrefix(w, "--") || !strings.Contains(w, "=") }) {
		return
	}
	name := func(w string) string { n, _, _ := strings.Cut(w, "="); return n }
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(name(a), name(b)) })
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func defaultPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
