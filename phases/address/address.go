// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package address has the workflow Move (New, then Phases): a control plane moves to another address of its host, or a node's
// kubelet and clients get another address or endpoint. The API may be out of reach, so everything comes from files on this
// host, and the new address replaces each former one in them. A journal lets another run finish a control plane's move. Start
// at Move.Phases. docs/design/addresses.md has the reasons.
package address

import (
	"context"
	"net/netip"

	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// Move is what changes: a control plane's address, its kubelet's, or the API's for this node's clients.
type Move struct {
	// From are the control plane's former addresses: several if an interrupted move was to yet another one.
	From []netip.Addr `json:"from"`
	// To is its next one; the zero Addr if it stays.
	To netip.Addr `json:"to"`
	// NodeIP is the kubelet's next --node-ip; empty if only the former address there changes.
	NodeIP string `json:"nodeIP,omitempty"`
	// Server is the API's next host:port for this host's clients that don't use the API server here; empty if it stays.
	Server string `json:"server,omitempty"`
	// Member is the ID of this host's member of etcd, in hexadecimal digits; empty if it's unknown.
	Member string `json:"member,omitempty"`
}

// Phases returns the workflow. It's the same for a run that finishes an interrupted one.
func (m *Move) Phases() []step.Phase {
	serving := step.Phase{Name: "kubelet-serving", Summary: "Approve the kubelet's request for a serving certificate with the address", Run: kubelet.RenewServing}
	if !m.To.IsValid() {
		return []step.Phase{
			{Name: "preflight", Summary: "Check that the API responds and the host has the address", Run: m.clientPreflight},
			{Name: "files", Summary: "Write the address and the endpoint to kubeconfig files and the kubelet's settings", Run: m.files},
			{Name: "kubelet", Summary: "Restart the kubelet if it has yet to read them", Run: m.restartKubelet},
			serving,
		}
	}
	return []step.Phase{
		{Name: "preflight", Summary: "Check that this control plane can move to the address", Run: m.preflight},
		{Name: "unfinished-change", Summary: "Put back the files of a change that goes back", Run: m.finishRollback},
		{Name: "record", Summary: "Record the move, for a run that finishes it", Run: m.record},
		{Name: "control-plane", Summary: "Issue certificates for the address, restart the components there, and move etcd's member", Run: m.controlPlane},
		{Name: "kubelet", Summary: "Restart the kubelet if it has yet to read the address", Run: m.restartKubelet},
		{Name: "cluster", Summary: "Write the address to the cluster's ConfigMaps and flannel's DaemonSet", Run: m.configMaps},
		{Name: "endpoint", Summary: "Take the former address out of the Service kubernetes", Run: m.removeFormerEndpoints},
		serving,
		{Name: "finish", Summary: "End the move, and show where the former address is left", Run: m.finish},
	}
}

// finishRollback ends a change that goes back. It may not have got far: its components can't run at the former address.
func (m *Move) finishRollback(ctx context.Context, env *step.Env) error {
	unfinished, err := trial.Unfinished(env)
	if err != nil || unfinished == nil || unfinished.State != trial.Reverting {
		return err
	}
	return unfinished.FinishRollback(ctx, env, m.ReplaceAddresses)
}

// finishRemedy is for a failed restart. Nothing is put back: the former address may be gone.
const finishRemedy = "fix the problem, and run the same command again, which continues where this run stopped; to go back, name the former address"
