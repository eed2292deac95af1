// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import "fmt"

// The kubelet's unit and drop-in on a host that Slipway prepares.
const (
	// DropInPath takes precedence over a package's 10-kubeadm.conf.
	DropInPath = "/etc/systemd/system/kubelet.service.d/20-slipway.conf"
	// UnitMode is the mode of both: items 4.1.1 and 4.1.2 of the CIS benchmark.
	UnitMode = 0o600
)

// Unit is the kubelet's unit. Until init or join writes its settings, the kubelet keeps exiting and systemd keeps restarting it.
func Unit(program string) []byte {
	return fmt.Appendf(nil, `[Unit]
Description=kubelet: the Kubernetes node agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=%s
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
`, program)
}

// DropIn makes the kubelet at a path use the settings of init and join. At boot, the kubelet starts after the container runtime,
// whichever this host has: without a runtime, it would end, and start again ten seconds later.
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/kubelet-integration/
func DropIn(program string) []byte {
	return fmt.Appendf(nil, `[Unit]
After=containerd.service crio.service cri-docker.service

[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
EnvironmentFile=-/etc/sysconfig/kubelet
ExecStart=
ExecStart=%s $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`, program)
}
