// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"path"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// containerdUnit is the path of containerd's unit in containerd's own guide and in bundles.
const containerdUnit = "/usr/local/lib/systemd/system/containerd.service"

// operatorsRuntimeSurvives prepares a bare machine without a bundle, installs containerd by its own guide, and runs a container.
// The next preparation, with a bundle, uses this containerd and changes nothing of it. Host reset refuses at first, and then
// leaves the runtime with its container and images.
func (m machine) operatorsRuntimeSurvives() {
	m.Helper()
	ignore := "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors
	m.must("slipway", "host", "prepare", ignore)
	for _, part := range readBundleList(m.T, "").Parts {
		name := part["name"].(string)
		if !slices.Contains([]string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"}, name) {
			continue
		}
		if err := m.node.CopyIn(part["file"].(string), path.Join("/usr/local/bin", name)); err != nil {
			m.Fatal(err)
		}
		m.must("chmod", "0755", path.Join("/usr/local/bin", name))
	}
	m.must("mkdir", "-p", path.Dir(containerdUnit), "/etc/containerd")
	m.write(containerdUnit, "[Service]\nType=notify\nExecStart=/usr/local/bin/containerd\nDelegate=yes\nKillMode=process\n[Install]\nWantedBy=multi-user.target\n")
	m.write("/etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n")
	m.must("systemctl", "daemon-reload")
	m.must("systemctl", "enable", "--now", "containerd")
	m.must("ctr", "images", "import", "/root/probe.tar")
	m.must("ctr", "run", "--detach", "--net-host", nodes.ProbeImage, "mine", "/probe", "serve", ":18080")

	files := func() string {
		return m.must("find", "/etc/containerd", "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/local/bin", "/var/lib/containerd",
			"-maxdepth", "1", "-name", "*containerd*", "-printf", `%p %m %U\n`) + m.must("systemctl", "show", "containerd", "-p", "MainPID")
	}
	before := files()
	m.must(append(slices.Clone(prepareArgs), "--skip-phases=images")...)
	if after := files(); after != before {
		m.Errorf("host prepare changed the operator's runtime:\n%s\nwas\n%s", after, before)
	}
	if out, err := m.try("slipway", "host", "reset"); err == nil || !strings.Contains(out, "[ERROR NoContainers]") || !strings.Contains(out, "default/mine") {
		m.Errorf("host reset beside a container that runs: %v\n%s", err, out)
	}
	m.must("slipway", "host", "reset", "--ignore-preflight-errors=NoContainers")
	if after := files(); after != before {
		m.Errorf("host reset changed the operator's runtime:\n%s\nwas\n%s", after, before)
	}
	if tasks := m.must("ctr", "tasks", "ls"); !strings.Contains(tasks, "mine") || !strings.Contains(tasks, "RUNNING") {
		m.Errorf("the container does not run any more:\n%s", tasks)
	}
	m.must("ctr", "tasks", "exec", "--exec-id", "x", "mine", "/probe", "get", "http://127.0.0.1:18080/")
	if images := m.must("ctr", "images", "ls", "--quiet"); !strings.Contains(images, nodes.ProbeImage) {
		m.Errorf("its image is gone:\n%s", images)
	}
	if out, err := m.try("test", "-e", "/usr/local/bin/kubelet"); err == nil {
		m.Errorf("the bundle's kubelet is still there\n%s", out)
	}
	if forwards := m.must("cat", "/proc/sys/net/ipv4/ip_forward"); forwards != "1\n" {
		m.Errorf("net.ipv4.ip_forward is %q, and a container runtime may need it", forwards)
	}
}
