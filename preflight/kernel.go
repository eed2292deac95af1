// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// bootParameters finds files that set kernel parameters to other values at each boot, after the file own has set the wanted
// values, by path below /proc/sys. systemd reads the files of all directories in the order of their names: sysctl.d(5).
func bootParameters(own string, wanted map[string]string) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding {
		var found []fault.Finding
		for _, file := range sysctlFiles(h) {
			if filepath.Base(file) <= filepath.Base(own) {
				continue
			}
			text, err := h.ReadFile(file)
			if err != nil {
				found = append(found, note("cannot read %s, so it is not known whether it changes kernel parameters again: %v", file, err)...)
				continue
			}
			for line := range strings.Lines(string(text)) {
				name, value := sysctlSetting(line)
				if want := wanted[name]; want != "" && value != want {
					found = append(found, warn("%s sets %s to %s at each boot, after %s has set it to %s", file, strings.ReplaceAll(name, "/", "."), value, own, want).
						remedy("change it there, unless it is meant to win")...)
				}
			}
		}
		return found
	}
}

// BootParameter returns the file that decides on a kernel parameter's value at boot, if the file except is left out; empty if
// there's none. name is the parameter's path below /proc/sys.
func BootParameter(h host.FileReader, except, name string) (file, value string, err error) {
	for _, path := range append(sysctlFiles(h), sysctlConf) {
		if path == except {
			continue
		}
		text, err := h.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		for line := range strings.Lines(string(text)) {
			pattern, set := sysctlSetting(line)
			if matches, err := filepath.Match(pattern, name); matches && err == nil { // an invalid pattern sets nothing
				file, value = path, set
			}
		}
	}
	return file, value, nil
}

// sysctlConf isn't read by systemd, but by `sysctl --system`, after all others.
const sysctlConf = "/etc/sysctl.conf"

// sysctlFiles lists the files that set parameters at boot, in systemd's order. A file in /etc hides others of its name.
func sysctlFiles(h host.FileReader) []string {
	files := map[string]string{}
	for _, dir := range []string{"/usr/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d"} {
		entries, err := h.ReadDir(dir)
		if err != nil {
			continue // most of them are not there
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".conf") {
				files[e.Name()] = filepath.Join(dir, e.Name())
			}
		}
	}
	var list []string
	for _, path := range files {
		list = append(list, path)
	}
	slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return list
}

// sysctlSetting reads a line NAME = VALUE, with the name as a path. If its first separator is a dot, dots and slashes change
// places. Comments and lines of another form have no name.
func sysctlSetting(line string) (name, value string) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "-")
	name, value, found := strings.Cut(line, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !found || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
		return "", ""
	}
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		name = strings.NewReplacer(".", "/", "/", ".").Replace(name)
	}
	return name, value
}

// KubeletParameters are the kernel parameters that a kubelet sets when it starts, by path below /proc/sys. With
// protectKernelDefaults, it doesn't start on a host where they have other values:
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
func KubeletParameters() map[string]string {
	return map[string]string{
		"kernel/keys/root_maxbytes": "25000000", "kernel/keys/root_maxkeys": "1000000", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
	}
}

// kernelDefaults finds parameters with which a kubelet with protectKernelDefaults doesn't start.
func kernelDefaults(_ context.Context, h View, m *config.Machine) []fault.Finding {
	protect := effectiveKubelet(m, h).protectKernelDefaults
	if !protect.value {
		return nil
	}
	var found []fault.Finding
	var differ []string
	wanted := KubeletParameters()
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		name := strings.ReplaceAll(path, "/", ".")
		text, err := h.ReadFile(host.ProcSys + path)
		if err != nil {
			found = append(found, warn("cannot read %s, so it is not known whether the kubelet starts with %s: %v", name, protect.from, err).
				remedy("see that %s is %s", name, wanted[path])...)
			continue
		}
		if value := strings.TrimSpace(string(text)); value != wanted[path] {
			differ = append(differ, fmt.Sprintf("%s=%s (is %s)", name, wanted[path], value))
		}
	}
	if len(differ) == 0 {
		return found
	}
	return append(found, fail("the kubelet does not start with %s, unless the kernel has %s", protect.from, strings.Join(differ, ", ")).
		remedy("run `slipway host prepare phase kernel`, which sets them now and at boot; or set them with sysctl, and in a file in /etc/sysctl.d")...)
}
