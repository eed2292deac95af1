// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap has the workflows of `init` (Init, in init.go) and `join` (Join, in join.go): start there. Their phases have
// the names that `init --help` lists. DetectEarlierRun decides before a run whether this host was a node before.
//
//   - preflight.go, preflight_earlier.go: checks, and differences from an earlier run
//   - certs.go, upload_certs.go, download_certs.go: certificates, and how control planes share them
//   - control_plane.go, wait_control_plane.go: static Pods, and the wait for them
//   - etcd_join.go, etcd_join_data.go: a new member of etcd, from learner to voter, and data already on its host
//   - mark_control_plane.go, control_plane_join.go, bootstrap_token.go: objects in the API
//
// Phases of several workflows are in phases/kubelet, phases/addon and phases/node.
package bootstrap

import (
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Init makes this host the first node of a new cluster.
//
// The phases are listed, shown and planned in this order. A run starts each as soon as it has everything it needs: the kubelet
// starts while most of the keys are generated, etcd elects its leader and the API server starts while the last keys are, and the
// other components start while the API server writes its default roles. The last phases write to the API side by side.
func Init() []step.Phase { return InitWithJoinCommand("join") }

// InitWithJoinCommand is Init for a cluster that other hosts join with the given command and its flags.
func InitWithJoinCommand(command string) []step.Phase {
	return []step.Phase{
		preflightInit(),
		certificates(),
		kubeconfigs().Needing("preflight", "certs/ca"),
		kubelet.Start().Needing("kubeconfig/kubelet"),
		localEtcd().Needing("kubelet-start", "certs/etcd-server", "certs/etcd-peer"),
		controlPlane().Needing("etcd"),
		waitControlPlane().Needing("control-plane/apiserver", "kubeconfig"),
		node.UploadConfig().Needing("wait-control-plane"),
		uploadCerts().Needing("wait-control-plane"),
		markControlPlane().Needing("wait-control-plane"),
		bootstrapToken().Needing("wait-control-plane"),
		kubelet.Finalize().Needing("wait-control-plane"),
		addon.Install().Needing("wait-control-plane"),
		showJoinCommand(command).Needing("upload-config", "upload-certs", "mark-control-plane", "bootstrap-token", "kubelet-finalize", "addon"),
	}
}

// ChoosesRuntime reports whether a phase run by itself has to know which of several container runtimes to use. Later phases find
// it in the kubelet's files, and earlier ones don't need it.
func ChoosesRuntime(p step.Phase) bool { return p.Name == "preflight" || p.Name == "kubelet-start" }
