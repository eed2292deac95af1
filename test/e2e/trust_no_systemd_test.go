// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import "strings"

// worksWithoutSystemd hides the node's systemd from slipway, as in a container in which an image is built.
func worksWithoutSystemd(m machine) {
	const missing = "init system"
	m.write("/root/slipway.yaml", document("", podSubnet))

	// A systemd that runs but does not answer stays an error.
	if out, err := m.hidden("mkdir -p /run/systemd/system && ", "init", "phase", "kubelet-start", "--config=/root/slipway.yaml"); err == nil ||
		!strings.Contains(out, "D-Bus") || strings.Contains(out, missing) {
		m.Errorf("with a broken D-Bus: %v\n%s", err, out)
	}
	for range 2 {
		out, err := m.hidden("", "init", "phase", "kubelet-start", "--config=/root/slipway.yaml")
		if err != nil || strings.Count(out, missing) != 1 {
			m.Errorf("kubelet-start: %v\n%s", err, out)
		}
	}
	m.must("test", "-s", "/var/lib/kubelet/config.yaml", "-a", "-s", "/var/lib/kubelet/kubeadm-flags.env", "-a", "-s", "/var/lib/kubelet/instance-config.yaml")
	if out, _ := m.hidden("", "preflight", "--config=/root/slipway.yaml"); !strings.Contains(out, "warning  Service-kubelet") || !strings.Contains(out, missing) {
		m.Errorf("preflight:\n%s", out)
	}
	if out, err := m.hidden("", "reset", "--force"); err != nil || !strings.Contains(out, missing) {
		m.Errorf("reset: %v\n%s", err, out)
	}
	if out, err := m.try("test", "-e", "/var/lib/kubelet/config.yaml"); err == nil {
		m.Errorf("reset left config.yaml %s", out)
	}
}

// hidden runs slipway in a mount namespace whose /run has only what prepare puts there.
func (m machine) hidden(prepare string, args ...string) (string, error) {
	return m.try("unshare", "--mount", "--propagation=private", "sh", "-c",
		"mount -t tmpfs tmpfs /run && "+prepare+"exec slipway "+strings.Join(args, " "))
}
