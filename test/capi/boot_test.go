// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// nothingFailed ends the test if cloud-init has failed on a machine: nobody would try again.
func (s *scenario) nothingFailed() {
	s.Helper()
	machines, err := s.machines()
	if err != nil {
		return // a wait asks again
	}
	for _, m := range machines {
		node, err := s.lab.Node(m.Spec.InfrastructureRef.Name)
		if err != nil || !node.Running() || !m.DeletionTimestamp.IsZero() || s.succeeded[m.Name] {
			continue
		}
		ended, faults := bootResult(node)
		if len(faults) > 0 {
			out, _ := node.Combined(s.Context(), "cloud-init", "status", "--long")
			s.Fatalf("the bootstrap of %s failed: %q\n%s", m.Name, faults, out)
		}
		s.succeeded[m.Name] = ended
	}
}

// bootResult reads cloud-init's result, which is there once it has ended. A boot that the provider interrupts to add the
// user-data had another source.
func bootResult(node *nodes.Node) (ended bool, faults []string) {
	data, err := node.ReadFile("/run/cloud-init/result.json")
	if err != nil {
		return false, nil
	}
	var result struct {
		V1 struct {
			DataSource string   `json:"datasource"`
			Errors     []string `json:"errors"`
		} `json:"v1"`
	}
	if err := json.Unmarshal(data, &result); err != nil || !strings.HasPrefix(result.V1.DataSource, "DataSourceNoCloud") {
		return false, nil
	}
	return true, result.V1.Errors
}

// bootstrapped checks that a machine's only boot ran Slipway by kubeadm's name, and did all that Cluster API asked for.
func (s *scenario) bootstrapped(node *nodes.Node) {
	s.Helper()
	for _, args := range [][]string{
		{"cmp", "/usr/local/bin/kubeadm", "/usr/local/bin/slipway"}, {"test", "-s", "/run/cluster-api/bootstrap-success.complete"},
		{"test", "-e", "/var/lib/kubelet/config.yaml"},
	} {
		// The machine may be Ready before the command has ended.
		s.eventually(fmt.Sprintf("%s: %q", node.Name(), args), machineLimit, func() error {
			out, err := node.Combined(s.Context(), args...)
			return errors.WithMessage(err, out)
		})
	}
}
