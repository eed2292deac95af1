// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// PeerName is what kubeadm users' scripts call this program. They parse its output, so it then matches kubeadm's to the letter.
const PeerName = "kubeadm"

// AsPeer reports whether the output is for kubeadm users' scripts.
func (g *Globals) AsPeer() bool {
	return g.Program == PeerName && (g.Report == nil || g.Report.Form == "text")
}

// Lines public playbooks look for on standard output, which only kubeadm's users need; see docs/differences-from-kubeadm.md.
const (
	storingCerts   = `[upload-certs] Storing the certificates in Secret "kubeadm-certs" in the "kube-system" Namespace`
	usingKey       = "[upload-certs] Using certificate key:"
	initialized    = "Your Kubernetes control-plane has initialized successfully!"
	planesJoinWith = "You can now join any number of control-plane nodes running the following command on each as root:"
	nodesJoinWith  = "Then you can join any number of worker nodes by running the following on each as root:"
	nodeJoined     = "This node has joined the cluster"
	planeJoined    = nodeJoined + " and a new control plane instance was created"
	pulled         = "[config/images] Pulled "
	planeUpgraded  = "[upgrade/control-plane] The control plane instance for this node was successfully upgraded!"
	kubeletChanged = "[upgrade/kubelet-config] The kubelet configuration for this node was successfully upgraded!"
	upgraded       = `[upgrade] SUCCESS! A control plane node of your cluster was upgraded to "%s".`
)

// peerUI adds these lines to the results of `init`.
type peerUI struct {
	ui.UI
	phase string
}

func (u peerUI) Start(phase string) (ui.UI, func(error)) {
	in, end := u.UI.Start(phase)
	return peerUI{in, phase}, end
}

func (u peerUI) Outcome(o ui.Outcome) {
	if u.phase == "show-join-command" {
		u.UI.Result("\n" + initialized + "\n")
	}
	u.UI.Outcome(o)
}

func (u peerUI) Result(text string) {
	switch {
	case u.phase == "upload-certs":
		text = strings.Join([]string{storingCerts, usingKey, text}, "\n")
	case u.phase != "show-join-command":
	case strings.Contains(text, "--certificate-key "):
		text = planesJoinWith + "\n\n  " + text + "\n"
	default:
		text = nodesJoinWith + "\n\n" + text
	}
	u.UI.Result(text)
}

func JoinedLines(n *config.Node) []string {
	if n.ControlPlane {
		return []string{"\n" + planeJoined + ":", "* The kubelet has reported to the cluster.", "* This node's API server is healthy."}
	}
	return []string{"\n" + nodeJoined + ":", "* The kubelet has reported to the cluster."}
}

func UpgradedLines(n *config.Node) []string {
	var lines []string
	if n.ControlPlane && !slices.Contains(n.SkipPhases, "control-plane") {
		lines = append(lines, planeUpgraded)
	}
	if !slices.Contains(n.SkipPhases, "kubelet-config") {
		lines = append(lines, kubeletChanged)
	}
	if n.Upgrade.First {
		lines = append(lines, "\n"+strings.ReplaceAll(upgraded, "%s", n.Cluster.KubernetesVersion))
	}
	return lines
}

func PulledLines(n *config.Node) []string {
	var lines []string
	for _, image := range n.Images() {
		lines = append(lines, pulled+image)
	}
	return lines
}
