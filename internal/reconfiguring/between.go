// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Texts are texts of stored configurations, by their ConfigMaps' names. A missing one is generated.
type Texts map[string]string

func (t Texts) documents() documents {
	d := documents{}
	for _, r := range rows() {
		if text := t[r.configMap]; text != "" {
			d[r.source] = []byte(text)
		}
	}
	return d
}

// Between is the change from one configuration to another, both as an earlier change had them.
func (l Loader) Between(before, after Texts) (*Change, error) {
	present, _, err := l.node(before.documents())
	if err != nil {
		return nil, err
	}
	next, _, err := l.node(after.documents())
	if err != nil {
		return nil, err
	}
	all := map[string]config.Part{}
	for _, r := range rows() {
		all[r.source] = config.Part{}
	}
	c := &Change{Node: changed(present, next)}
	c.Fields, err = differences(present, next, all)
	return c, err
}

// To is the change from the cluster's stored configuration to the given texts. Where none is given, the stored text stays, and
// kube-proxy isn't configured again if it has been deleted. A fixed field, such as an encryption provider added since, is returned as
// config.Faults.
func (l Loader) To(ctx context.Context, wanted Texts) (*Change, error) {
	stored, texts, err := l.read(ctx, rows(), nil)
	if err != nil {
		return nil, err
	}
	before, after := Texts{}, Texts{}
	for _, r := range rows() {
		before[r.configMap] = string(texts[r.source])
		after[r.configMap] = before[r.configMap]
		gone := r.source == config.KubeProxySource && before[r.configMap] == ""
		if text := wanted[r.configMap]; text != "" && !gone {
			after[r.configMap] = text
		}
	}
	c, err := l.Between(before, after)
	if err != nil {
		return nil, err
	}
	c.Stored, c.Former = stored.Stored, stored.Former
	c.noteEndpoint(c.Node.Upgrade.Before, c.Node)
	c.Removed = without(stored.Removed, apiNames(c.Node)...) // nothing more: nodes may still use the change's names
	return c, refused(c.Node.Upgrade.Before, c.Node, c.Fields, nil)
}
