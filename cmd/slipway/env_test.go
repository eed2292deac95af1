// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
)

// TestPlanPartsOnlyRecord: no part of a plan can act, nobody is asked for confirmation, and the plan takes the place of
// the result.
func TestPlanPartsOnlyRecord(t *testing.T) {
	var out bytes.Buffer
	m := planning{g: &globals{program: "slipway", streams: streams{out: &out, err: io.Discard}}}
	node := config.APINode("/none", nil)
	api, err := m.apiParts(node, userKubeconfig{"/none"}, "text", "token delete")
	must(t, err)
	for name, p := range map[string]*parts{"workflow": m.parts(node, host.NewAt(t.TempDir())), "API": api} {
		t.Run(name, func(t *testing.T) {
			defer p.close()
			out.Reset()
			if _, real := p.env.Host.(*host.Real); real {
				t.Error("it acts on the host")
			}
			if _, plans := p.env.Cluster.(*cluster.Plan); !plans {
				t.Errorf("its cluster is a %T", p.env.Cluster)
			}
			if _, plans := p.env.Etcd.(*etcd.Plan); !plans {
				t.Errorf("its etcd is a %T", p.env.Etcd)
			}
			never := func() error { return errors.New("called") }
			if err := errors.WithMessage(p.confirm(never), "confirm"); err != nil {
				t.Error(err)
			}
			if err := p.show(never); err != nil || !strings.HasPrefix(out.String(), "Plan: 0 steps. ") {
				t.Errorf("shows %q, %v", out.String(), err)
			}
		})
	}
}

// TestAPIPartsAct: they ask for confirmation and show the result, and have no etcd to change.
func TestAPIPartsAct(t *testing.T) {
	p := newAPIParts(&globals{program: "slipway"}, config.APINode("/none", nil), userKubeconfig{"/none"})
	defer p.close()
	called := errors.New("called")
	fail := func() error { return called }
	if !errors.Is(p.confirm(fail), called) || !errors.Is(p.show(fail), called) {
		t.Error("it does not ask, or does not show the result")
	}
	if _, acts := p.env.Cluster.(*cluster.Real); !acts || p.env.Etcd != nil {
		t.Errorf("its cluster is a %T, its etcd a %T", p.env.Cluster, p.env.Etcd)
	}
}
