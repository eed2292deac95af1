// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package node changes the parts of a control plane's node that several workflows share. An upgrade calls, in this order,
// AcquireLease, ReplaceStaticPods, RollBack if the new components don't come up, and Lease.Release. A renewal calls RestartStale
// instead of ReplaceStaticPods.
//
// Each concept has a file:
//
//   - lease.go: the Lease, which one control plane at a time holds, and its holder's Purpose
//   - held_lease.go: Lease, the right to restart this control plane's components; acquires, renews and releases it
//   - static_pods.go, replacement.go: static Pods as Slipway writes them, and Replacement, a static Pod with its next manifest
//   - replacements.go: which components an upgrade or a reconfiguration replaces, and their next manifests
//   - stop_pods.go: stops components while the node stays in service, by rules that keep etcd's quorum
//   - restart.go: restarts components whose certificates have changed
//   - replace_static_pods.go: makes components run with other manifests
//   - roll_back.go: makes them run with their previous manifests again
//   - await.go, await_kubelet.go: wait for components and for the kubelet
//   - stable.go: whether this node works after a change, as its clients see it, and whether that can be seen
//   - etcd_quorum.go, etcd_data.go: whether this node's member of etcd may stop, and whose data is on this host
//   - etcd_data_replacement.go, etcd_others.go: other data for this host's etcd, and the members that must not run meanwhile
//   - etcd_journal.go, etcd_proof.go: how far such a replacement has come, and the proof that etcd runs with the new data
//   - endpoint.go: takes this node's API server out of the Service kubernetes
//   - kubelet_unit.go: restarts the kubelet, or keeps it down
//   - nodes_ready.go, checks.go: Ready nodes, and checks that run in the middle of a workflow
//   - flag_preserved.go: command-line flags of components, and the flags that protect data and access
//   - profile_files.go: files of profiles, which the API server reads
//   - upload_config.go: the phase upload-config
package node
