// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	kubeletapi "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// kubeletSettings decide whether a kubelet starts and creates containers, as it will read them: the Node's KubeletConfiguration,
// overridden by the files of --config-dir, overridden by its flags. Each says where it comes from.
type kubeletSettings struct {
	failSwapOn, failCgroupV1 setting[bool]
	cgroupDriver, resolvConf setting[string]
}

type setting[T any] struct {
	value T
	from  string
}

const kubeletDefault = "the kubelet's default"

// effectiveKubelet returns the settings that will apply once this run has written its files. Flags count in the order of the
// packages' unit: this configuration's, then those in the administrator's own files.
func effectiveKubelet(n *config.Node, h View) kubeletSettings {
	s := kubeletSettings{
		failSwapOn:   setting[bool]{true, kubeletDefault},
		failCgroupV1: setting[bool]{true, kubeletDefault},
		cgroupDriver: setting[string]{"cgroupfs", kubeletDefault},
		resolvConf:   setting[string]{"/etc/resolv.conf", kubeletDefault},
	}
	s.merge(n.Kubelet, "the KubeletConfiguration")
	flags := kubeletFlags(n, h)
	for _, f := range flags {
		if f.name == "config-dir" {
			s.mergeDir(h, f.value)
		}
	}
	for _, f := range flags {
		s.flag(f)
	}
	return s
}

func (s *kubeletSettings) merge(c kubeletapi.KubeletConfiguration, from string) {
	if c.FailSwapOn != nil {
		s.failSwapOn = setting[bool]{*c.FailSwapOn, "failSwapOn in " + from}
	}
	if c.FailCgroupV1 != nil {
		s.failCgroupV1 = setting[bool]{*c.FailCgroupV1, "failCgroupV1 in " + from}
	}
	if c.CgroupDriver != "" {
		s.cgroupDriver = setting[string]{c.CgroupDriver, "cgroupDriver in " + from}
	}
	if c.ResolverConfig != nil {
		s.resolvConf = setting[string]{*c.ResolverConfig, "resolvConf in " + from}
	}
}

// mergeDir reads the *.conf files below a directory in the order of their paths, as the kubelet does:
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#kubelet-configuration-drop-in-files
func (s *kubeletSettings) mergeDir(h View, dir string) {
	entries, _ := h.ReadDir(dir) // a missing directory has no settings
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			s.mergeDir(h, path)
			continue
		}
		data, err := h.ReadFile(path)
		var c kubeletapi.KubeletConfiguration
		if err == nil && filepath.Ext(path) == ".conf" && yaml.Unmarshal(data, &c) == nil {
			s.merge(c, path)
		}
	}
}

func (s *kubeletSettings) flag(f kubeletFlag) {
	from := "--" + f.name + " in " + f.from
	on, err := strconv.ParseBool(cmp.Or(f.value, "true"))
	switch {
	case f.name == "cgroup-driver":
		s.cgroupDriver = setting[string]{f.value, from}
	case f.name == "resolv-conf":
		s.resolvConf = setting[string]{f.value, from}
	case err != nil: // the kubelet reports it
	case f.name == "fail-swap-on":
		s.failSwapOn = setting[bool]{on, from}
	case f.name == "fail-cgroupv1":
		s.failCgroupV1 = setting[bool]{on, from}
	}
}

type kubeletFlag struct{ name, value, from string }

// kubeletFlags returns the configuration's flags, then those in administrators' files: drop-ins of the unit, and the two files
// the packages' unit reads last.
func kubeletFlags(n *config.Node, h View) []kubeletFlag {
	var flags []kubeletFlag
	for _, a := range n.KubeletExtraArgs {
		flags = append(flags, kubeletFlag{a.Name, a.Value, "nodeRegistration.kubeletExtraArgs"})
	}
	for _, path := range kubeletFlagFiles(h) {
		if text, err := h.ReadFile(path); err == nil {
			flags = append(flags, flagsIn(string(text), path)...)
		}
	}
	return flags
}

// AdministratorsFlags returns the kubelet's flags in administrators' files, in the order in which the packages' unit reads them.
func AdministratorsFlags(h View) []config.Arg {
	var flags []config.Arg
	for _, f := range kubeletFlags(&config.Node{}, h) {
		flags = append(flags, config.Arg{Name: f.name, Value: f.value})
	}
	return flags
}

func kubeletFlagFiles(h View) []string {
	dirs := []string{"/usr/lib/systemd/system/kubelet.service.d", "/etc/systemd/system/kubelet.service.d"}
	var paths []string
	for _, dir := range dirs {
		entries, _ := h.ReadDir(dir)
		for _, e := range slices.DeleteFunc(entries, fs.DirEntry.IsDir) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return append(paths, "/etc/default/kubelet", "/etc/sysconfig/kubelet")
}

// flagsIn finds the flags in a unit's drop-in or an environment file, quoted or not. It needn't be exact: a unit may combine them
// in any way.
func flagsIn(text, path string) []kubeletFlag {
	var flags []kubeletFlag
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\"'", r) })
		for i, w := range words {
			at := strings.Index(w, "--")
			if at < 0 || at > 0 && w[at-1] != '=' {
				continue
			}
			name, value, given := strings.Cut(w[at+2:], "=")
			if !given && i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
				value = words[i+1]
			}
			flags = append(flags, kubeletFlag{name, value, path})
		}
	}
	return flags
}
