// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// commands collects the control planes' command lines: the cluster's configuration, then each static Pod's extra flags. On this
// host, it takes the Pod the upgrade will write, with today's patches; elsewhere the running Pod, as patches aren't visible.
func (c *collector) commands() {
	stored := c.storedArgs()
	for _, name := range manifests.Components(c.desired) {
		if args := stored[name]; len(args) > 0 {
			c.inputs.Commands = append(c.inputs.Commands, breakages.Command{
				Where: "extraArgs of " + name + " in ConfigMap kube-system/kubeadm-config", Program: name, Args: args, Mounts: c.storedMounts(name)})
		}
	}
	for i := range c.State.Pods {
		name, node := c.State.Pods[i].Labels["component"], c.State.Pods[i].Spec.NodeName
		pod, wanted := c.nextPod(&c.State.Pods[i])
		args := slices.DeleteFunc(argsOf(pod, name), func(a config.Arg) bool {
			return slices.Contains(stored[name], a) || manifests.OnlyOlder(name, a.Name)
		})
		if len(args) > 0 {
			c.inputs.Commands = append(c.inputs.Commands, breakages.Command{
				Where: name + " on " + node, Program: name, Args: args, Mounts: append(mountsOf(pod, name), c.storedMounts(name)...), Running: !wanted})
		}
	}
}

// storedArgs maps components to their flags in the cluster's configuration.
func (c *collector) storedArgs() map[string][]config.Arg {
	cluster := &c.desired.Cluster
	args := map[string][]config.Arg{
		manifests.APIServerName:         cluster.APIServer.ExtraArgs,
		manifests.ControllerManagerName: cluster.ControllerManager.ExtraArgs,
		manifests.SchedulerName:         cluster.Scheduler.ExtraArgs,
	}
	if cluster.Etcd.Local != nil {
		args[manifests.EtcdName] = cluster.Etcd.Local.ExtraArgs
	}
	for component, list := range args {
		args[component] = argsIn(config.Words(list))
	}
	return args
}

// storedMounts returns the paths where the cluster's configuration mounts something, for the rule about flex volumes.
func (c *collector) storedMounts(component string) []string {
	if component != manifests.ControllerManagerName {
		return nil
	}
	var paths []string
	for _, v := range c.desired.Cluster.ControllerManager.ExtraVolumes {
		paths = append(paths, v.MountPath)
	}
	return paths
}

// mountsOf returns the paths where a static Pod mounts volumes from a patch: Slipway's and kubeadm's own have other names.
func mountsOf(pod *corev1.Pod, component string) []string {
	var paths []string
	for _, container := range pod.Spec.Containers {
		for _, m := range container.VolumeMounts {
			if container.Name == component && m.Name != manifests.FlexVolume {
				paths = append(paths, m.MountPath)
			}
		}
	}
	return paths
}

// nextPod returns a component's static Pod: on this host as the upgrade writes it, elsewhere as it runs.
func (c *collector) nextPod(running *corev1.Pod) (pod *corev1.Pod, wanted bool) {
	if c.Here == nil || c.Here.Node.Name != running.Spec.NodeName {
		return running, false
	}
	if pod = c.wantedPod(running.Labels["component"]); pod == nil {
		return running, false
	}
	return pod, true
}

// wantedPod returns a component's static Pod as the upgrade writes it here; nil if the upgrade leaves it alone.
func (c *collector) wantedPod(component string) *corev1.Pod {
	pod, _ := manifests.DecodePod(c.Here.Wanted[component])
	return pod
}

// wantedPods collects this control plane's command lines as the upgrade writes them, and the files in their flags.
func (c *collector) wantedPods() {
	for _, name := range slices.Sorted(maps.Keys(c.Here.Wanted)) {
		if pod := c.wantedPod(name); pod != nil {
			where := name + " on " + c.Here.Node.Name
			c.inputs.Commands = append(c.inputs.Commands, breakages.Command{Where: where, Program: name, Args: argsOf(pod, name), Mounts: mountsOf(pod, name)})
			c.namedFiles(pod, where, name)
		}
	}
}

func argsOf(pod *corev1.Pod, component string) []config.Arg {
	return containerArgs(pod.Spec, component)
}

func containerArgs(pod corev1.PodSpec, name string) []config.Arg {
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return argsIn(slices.Concat(pod.Containers[i].Command, pod.Containers[i].Args))
}

// argsIn returns the flags of a command line, with dashes for underscores, however they're written.
func argsIn(words []string) (args []config.Arg) {
	for _, f := range manifests.FlagsOf(words) {
		args = append(args, config.Arg{Name: f.Name, Value: f.Value})
	}
	return args
}

var fileFlags = map[string][]string{
	manifests.APIServerName: {"admission-control-config-file", "authentication-config", "authorization-config", "egress-selector-config-file",
		"encryption-provider-config", "tracing-config-file"},
	manifests.SchedulerName: {"config"},
}

// hostFiles collects the files named in this control plane's flags. Other hosts' files aren't visible from here.
func (c *collector) hostFiles() {
	for i := range c.State.Pods {
		name, node := c.State.Pods[i].Labels["component"], c.State.Pods[i].Spec.NodeName
		pod, _ := c.nextPod(&c.State.Pods[i])
		where := name + " on " + node
		if c.Here != nil && c.Here.Node.Name == node {
			c.namedFiles(pod, where, name)
			continue
		}
		for _, path := range namedBy(pod, name) {
			c.gap(where, path, "run `slipway upgrade plan` as root on "+node, "%s: %s was not checked, because it is a file of that node", where, path)
		}
	}
}

func (c *collector) namedFiles(pod *corev1.Pod, where, component string) {
	for _, path := range namedBy(pod, component) {
		c.hostFile(pod, where, component, path)
	}
}

// namedBy returns the paths of the configuration files named in a component's flags.
func namedBy(pod *corev1.Pod, component string) []string {
	var paths []string
	for _, arg := range argsOf(pod, component) {
		if slices.Contains(fileFlags[component], arg.Name) && arg.Value != "" && !slices.Contains(paths, arg.Value) {
			paths = append(paths, arg.Value)
		}
	}
	return paths
}

// hostFile reads a file by its path in the container, and files it names (AdmissionConfiguration does). where is for people.
func (c *collector) hostFile(pod *corev1.Pod, where, component, inContainer string) {
	path := thisnode.OnHostOr(pod, inContainer)
	if slices.ContainsFunc(c.inputs.Files, func(f breakages.File) bool { return f.Where == path && f.Program == component }) {
		return // it names itself
	}
	data, err := host.ReadHead(c.Here.Host, path, LargestFile)
	if err != nil {
		c.gap(where, path, "correct the flag that names it, or the file", "%s was not checked: %v", path, err)
		return
	}
	c.inputs.Files = append(c.inputs.Files, breakages.File{Where: path, Program: component, Data: data})
	var admission struct {
		Plugins []struct {
			Path string `json:"path"`
		} `json:"plugins"`
	}
	if yaml.Unmarshal(data, &admission) != nil {
		return // the check of the file reports it
	}
	for _, plugin := range admission.Plugins {
		if plugin.Path == "" {
			continue
		}
		if !filepath.IsAbs(plugin.Path) {
			plugin.Path = filepath.Join(filepath.Dir(inContainer), plugin.Path)
		}
		c.hostFile(pod, where, component, plugin.Path)
	}
}
