// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// SameStaticPod reports whether two static Pods mean the same to the kubelet: defaults left out in one of them, the order of
// flags, variables and volumes, and the component's place among sidecars don't count. An unreadable Pod isn't the same as any other.
func SameStaticPod(a, b []byte) bool {
	x, err := normalPod(a)
	if err != nil {
		return false
	}
	y, err := normalPod(b)
	return err == nil && equality.Semantic.DeepEqual(x, y)
}

// SameButStartupTime is SameStaticPod for Pods that may allow their first containers different times to start.
func SameButStartupTime(a, b []byte) bool {
	x, err := normalPod(a)
	if err != nil {
		return false
	}
	y, err := normalPod(b)
	if err != nil || len(x.Spec.Containers) == 0 || len(y.Spec.Containers) == 0 {
		return false
	}
	if p, q := x.Spec.Containers[0].StartupProbe, y.Spec.Containers[0].StartupProbe; p != nil && q != nil {
		p.FailureThreshold = q.FailureThreshold
	}
	return equality.Semantic.DeepEqual(x, y)
}

// normalPod decodes a Pod, sets its defaults and sorts lists whose order doesn't matter.
func normalPod(data []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		return nil, errors.WithStack(err)
	}
	pod.Status = corev1.PodStatus{}
	componentFirst(pod)
	defaultPod(&pod.Spec)
	// sort.SliceStable needs no code for each type, which slices.SortStableFunc does: 45 KB for the structs of Pods.
	volumes := pod.Spec.Volumes
	sort.SliceStable(volumes, func(i, j int) bool { return volumes[i].Name < volumes[j].Name })
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
	if tag := TagOf(c.Image); tag == "latest" || tag == "" && !strings.Contains(c.Image, "@") {
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
	sort.SliceStable(c.Env, func(i, j int) bool { return c.Env[i].Name < c.Env[j].Name })
	sort.SliceStable(c.VolumeMounts, func(i, j int) bool { return c.VolumeMounts[i].MountPath < c.VolumeMounts[j].MountPath })
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
	sort.SliceStable(words, func(i, j int) bool { return name(words[i]) < name(words[j]) })
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

// FlexVolume is the volume where older controller managers find flex volume plugins.
const FlexVolume = "flexvolume-dir"

// AsOlder returns made, a static Pod from this program, as older releases of kubeadm wrote it, as far as have, the existing Pod,
// which has a container, was written that way:
//   - until 1.35, with a volume for flex volume plugins in the controller manager (kubernetes/kubernetes#136423);
//   - with the experimental names of two flags of etcd, which mean the same (etcd-io/etcd#19959).
func AsOlder(made, have *corev1.Pod) *corev1.Pod {
	older := made.DeepCopy()
	switch made.Name {
	case ControllerManagerName:
		withFlexVolumes(older, have)
	case EtcdName:
		withExperimentalFlags(older, have)
	}
	return older
}

func withFlexVolumes(made, have *corev1.Pod) {
	mine, c := &have.Spec.Containers[0], &made.Spec.Containers[0]
	v, err := TagVersion(TagOf(mine.Image))
	if err != nil || v.AtLeast(version.MajorMinor(1, 36)) {
		return
	}
	dir := cmp.Or(FlagOf(made, "flex-volume-plugin-dir"), "/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
	m := mount{FlexVolume, dir, dir, false, corev1.HostPathDirectoryOrCreate}
	if m.isIn(mine) && !m.isIn(c) {
		c.VolumeMounts = append(c.VolumeMounts, m.volumeMount())
		made.Spec.Volumes = append(made.Spec.Volumes, m.volume())
	}
}

// olderFlags maps words of etcd's command line to the words that older releases wrote.
func olderFlags() map[string]string {
	return map[string]string{
		"--feature-gates=InitialCorruptCheck=true": "--experimental-initial-corrupt-check=true",
		"--watch-progress-notify-interval=5s":      "--experimental-watch-progress-notify-interval=5s",
	}
}

// OnlyOlder reports whether only older releases wrote a flag (without dashes) into a component's static Pod. An upgrade drops it.
func OnlyOlder(component, flag string) bool {
	if component != EtcdName {
		return false
	}
	for _, before := range olderFlags() {
		if strings.HasPrefix(before, "--"+flag+"=") {
			return true
		}
	}
	return false
}

func withExperimentalFlags(made, have *corev1.Pod) {
	command := made.Spec.Containers[0].Command
	for now, before := range olderFlags() {
		if i := slices.Index(command, now); i >= 0 && slices.Contains(have.Spec.Containers[0].Command, before) {
			command[i] = before
		}
	}
}
