// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
)

// PreviousConfiguration annotates ConfigMap kubeadm-config with the ClusterConfiguration before Slipway's last change of it. Other
// control planes' files are made from that until they follow, so an operator's edits of them can be told from the change.
const PreviousConfiguration = "slipway/previous-configuration"

// previous is the annotation.
type previous struct {
	Since                time.Time `json:"since,omitzero"`
	Until                time.Time `json:"until"`
	ClusterConfiguration string    `json:"clusterConfiguration"`
}

// PreviousNote is the annotation for a text that was stored from since on, or always if that's zero, until a change.
func PreviousNote(text string, since, until time.Time) string {
	data, _ := json.Marshal(previous{since.UTC(), until.UTC(), text}) // it has nothing that can't be encoded
	return string(data)
}

// earlier returns this node as the annotation has it; nil if there's none, or none that can be read.
func earlier(note string, stored documents, self *config.JoinConfiguration, opts config.Options) *config.Earlier {
	var p previous
	if note == "" || json.Unmarshal([]byte(note), &p) != nil {
		return nil
	}
	then := maps.Clone(stored)
	then[config.ClusterSource] = []byte(p.ClusterConfiguration)
	n, _, err := load(then, self, opts)
	if err != nil {
		return nil
	}
	return &config.Earlier{Node: n, Since: p.Since, Until: p.Until}
}
