// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/stage"
)

// TestNoTokenWithoutCommand: a token whose join command can't be printed isn't created.
func TestNoTokenWithoutCommand(t *testing.T) {
	p := &env.Parts{Env: &step.Env{Host: stage.New(t), Cluster: cluster.NewPlan(func(cluster.Action) {}, nil), UI: ui.NewLines(io.Discard, io.Discard)}}
	info := manifests.ClusterInfo([]byte("broken"))
	if err := p.Env.Cluster.Ensure(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	list := []config.Token{{ID: "abcdef", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"authentication"}}}
	for _, printed := range []bool{true, false} {
		o := &createOptions{}
		o.PrintJoinCommand = printed
		made, err := o.create(t.Context(), p, list, config.Secret{}, env.UserKubeconfig{})
		if printed {
			fact.Error(t, err, "cluster-info")
		} else if err != nil || len(made) != 1 {
			t.Errorf("%d tokens, %v", len(made), err)
		}
		found, err := store(p).List(t.Context())
		if err != nil || (len(found) > 0) == printed {
			t.Errorf("print its command: %t; the cluster has %d tokens, %v", printed, len(found), err)
		}
	}
}
