// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
)

// PreviousConfiguration annotates ConfigMap kubeadm-config with the ClusterConfigurations before Slipway's last changes of it. Other
// control planes' files are made from one of them until they follow, so an operator's edits of them can be told from the changes.
const PreviousConfiguration = "slipway/previous-configuration"

// The annotation has at most this many configurations, and bytes: all annotations of an object may have 256 KiB.
const (
	maxPrevious   = 8
	previousBytes = 128 << 10
)

// previous is an element of the annotation, the newest first. Earlier releases wrote only the newest, without a list.
type previous struct {
	Since                time.Time `json:"since,omitzero"`
	Until                time.Time `json:"until"`
	ClusterConfiguration string    `json:"clusterConfiguration"`
}

// PreviousNote adds to the annotation a text that was stored from since on, or always if that's zero, until a change.
func PreviousNote(note, text string, since, until time.Time) string {
	list := append([]previous{{since.UTC(), until.UTC(), text}}, previousIn(note)...)
	list = list[:min(len(list), maxPrevious)]
	for {
		data, _ := json.Marshal(list) // all of it can be encoded
		if len(data) <= previousBytes || len(list) == 1 {
			return string(data)
		}
		list = list[:len(list)-1]
	}
}

// previousIn reads the annotation. An unreadable one is none.
func previousIn(note string) (list []previous) {
	if json.Unmarshal([]byte(note), &list) == nil {
		return list
	}
	var only previous
	if json.Unmarshal([]byte(note), &only) != nil {
		return nil
	}
	return []previous{only}
}

// earlier returns this node as the annotation has it. An invalid configuration is left out.
func (l Loader) earlier(note string, stored documents) (list []config.Earlier) {
	for _, p := range previousIn(note) {
		then := maps.Clone(stored)
		then[config.ClusterSource] = []byte(p.ClusterConfiguration)
		if n, _, err := l.node(then); err == nil {
			list = append(list, config.Earlier{Node: n, Since: p.Since, Until: p.Until})
		}
	}
	return list
}
