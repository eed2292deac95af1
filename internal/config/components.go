// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

// The components of a node, by the names of their static Pods, containers and images.
const (
	EtcdComponent              = "etcd"
	APIServerComponent         = "kube-apiserver"
	ControllerManagerComponent = "kube-controller-manager"
	SchedulerComponent         = "kube-scheduler"
	KubeletComponent           = "kubelet"
)
