// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Init makes this host the first node of a new cluster.
//
// The phases are listed, shown and planned in this order. A run starts each as soon as what it needs is there: the
// kubelet starts while most of the keys are generated, etcd elects its leader and the API server starts while the
// last ones are, and the other components start while the API server writes its default roles. The last phases write to
// the API side by side.
func Init() []Phase { return initThen("join") }

// initThen is Init for a cluster that other hosts join with the given command and its flags.
func initThen(command string) []Phase {
	return []Phase{
		preflightInit(),
		certificates(),
		kubeconfigs().Needing("preflight", "certs/ca"),
		kubeletStart().Needing("kubeconfig/kubelet"),
		localEtcd().Needing("kubelet-start", "certs/etcd-server", "certs/etcd-peer"),
		controlPlane().Needing("etcd"),
		waitControlPlane().Needing("control-plane/apiserver", "kubeconfig"),
		uploadConfig().Needing("wait-control-plane"),
		uploadCerts().Needing("wait-control-plane"),
		markControlPlane().Needing("wait-control-plane"),
		bootstrapToken().Needing("wait-control-plane"),
		kubeletFinalize().Needing("wait-control-plane"),
		addon().Needing("wait-control-plane"),
		showJoinCommand(command).Needing("upload-config", "upload-certs", "mark-control-plane", "bootstrap-token", "kubelet-finalize", "addon"),
	}
}

// ChoosesRuntime reports whether a phase by itself has to know which of several container runtimes the node is to use. Phases
// after these find it in the kubelet's files, and those before them need none.
func ChoosesRuntime(p Phase) bool { return p.Name == "preflight" || p.Name == "kubelet-start" }
