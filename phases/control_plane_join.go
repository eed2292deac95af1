// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// controlPlaneJoin says in the API what this node has become.
func controlPlaneJoin() Phase {
	mark := markControlPlane()
	mark.Flags = []string{"config", "control-plane", "dry-run", "node-name"}
	return Phase{
		Name:     "control-plane-join",
		Summary:  "Tell the cluster that this node is a control plane",
		Flags:    append([]string{"apiserver-advertise-address", "patches"}, mark.Flags...),
		Children: []Phase{mark},
		Skip:     unlessControlPlane,
	}
}

// waitJoined is wait-control-plane of a node that has joined.
func waitJoined() Phase {
	p := waitControlPlane()
	p.Skip = unlessControlPlane
	return p
}
