// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// controlPlaneJoin records in the API what this node has become.
func controlPlaneJoin() Phase {
	mark := markControlPlane()
	mark.Flags = []string{"config", "control-plane", "dry-run", "node-name"}
	return Phase{
		Name:     "control-plane-join",
		Summary:  "Mark this node as a control plane in the cluster",
		Flags:    append([]string{"apiserver-advertise-address", "patches"}, mark.Flags...),
		Children: []Phase{mark},
		Skip:     unlessControlPlane,
	}
}

// waitJoined is wait-control-plane for a node that has joined.
func waitJoined() Phase {
	p := waitControlPlane()
	p.Skip = unlessControlPlane
	return p
}
