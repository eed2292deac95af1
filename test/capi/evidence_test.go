// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"context"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/capi/management"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const showLimit = 2 * time.Minute // for a command on a machine that's in trouble

// explain prints the evidence of a failure, the controllers' view first.
func (s *scenario) explain() {
	if !s.Failed() {
		return
	}
	s.showManagement()
	all, err := s.lab.Nodes()
	if err != nil {
		s.Log(err)
	}
	shown := false
	for _, node := range all {
		if node.Name() == managementName {
			continue
		}
		if !node.Running() {
			s.Logf("%s is off", node.Name())
			continue
		}
		show := s.shower(node)
		show("cloud-init", "status", "--long")
		show("tail", "--lines=200", "/var/log/cloud-init-output.log")
		show("slipway", "diagnose")
		show("journalctl", "--no-pager", "-o", "cat", "-u", "kubelet", "-n", "400")
		if _, err := node.ReadFile(adminPath); err == nil && !shown {
			shown = true // one control plane speaks for its cluster
			show("kubectl", "--kubeconfig="+adminPath, "get", "nodes,pods", "-A", "-o", "wide")
		}
	}
}

// showManagement prints Cluster API's objects, and its controllers' logs.
func (s *scenario) showManagement() {
	if s.management == nil {
		return
	}
	show := s.shower(s.management)
	show("kubectl", "--kubeconfig="+adminPath, "get", "cluster-api", "-A", "-o", "wide")
	show("kubectl", "--kubeconfig="+adminPath, "get", "kubeadmcontrolplane,machinedeployment,machines,labmachines", "-A", "-o", "yaml")
	for _, c := range management.Controllers {
		show("journalctl", "--no-pager", "-o", "cat", "-u", unit(c), "-n", "400")
	}
	show("journalctl", "--no-pager", "-o", "cat", "-u", "kubelet", "-n", "400")
}

// shower returns a function that prints a command's output on a node.
func (s *scenario) shower(node *nodes.Node) func(args ...string) {
	return func(args ...string) {
		ctx, cancel := context.WithTimeout(context.Background(), showLimit)
		defer cancel()
		out, err := node.Combined(ctx, args...)
		s.Logf("%s$ %s\n%s", node.Name(), strings.Join(args, " "), out)
		if err != nil {
			s.Log(err)
		}
	}
}
