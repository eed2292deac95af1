// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestProfileFiles: an API server finds the files that the stored configuration's flags name, although this host lacked them. An
// operator's file stays. The plan has the same files, and writes none.
func TestProfileFiles(t *testing.T) {
	s := phasetest.RestartStage(t, bootstrap.Init())
	s.Etcd = phasetest.LoneMember{}
	s.RunsPods(nil, nil)
	flags := config.InitFlags{Given: []string{"profile"}, Profile: profile.CIS}
	hardened := fixture.NodeWith(t, fixture.InitDocument+fixture.ClusterDocument, flags)
	s.Config = s.Config.With(func(n *config.Node) { n.Cluster.APIServer, n.Upgrade = hardened.Cluster.APIServer, &config.Upgrade{} })
	path := s.Config.Paths.StaticPod(manifests.APIServerName)
	made := s.Get(t, path)
	wanted := strings.Replace(made, manifests.ImageOf([]byte(made)), "r/kube-apiserver:v2", 1)
	components := []node.Replacement{{Name: manifests.APIServerName, Before: []byte(made), Wanted: []byte(wanted)}}
	own, missing := profile.Files()[0], profile.Files()[1:]
	s.Put(t, own.Path, "mine\n")

	planned, actions := *s.Env, ""
	planned.Host = plan.NewOverlay(s.FakeHost, func(a host.Action) { actions += a.Path + "\n" })
	phasetest.Fatal(t, replaceComponents(t.Context(), &planned, node.Lease{}, components))
	for _, f := range missing {
		fact.In(t, actions, f.Path+"\n")
	}
	fact.NotIn(t, actions, own.Path)

	replaced := false
	s.FakeHost.Before = func(_ context.Context, order string) error {
		if !strings.HasPrefix(order, "write ") || !strings.HasSuffix(order, "kube-apiserver.yaml") {
			return nil
		}
		replaced = true
		for _, f := range missing {
			if s.Get(t, f.Path) != string(f.Data) {
				t.Errorf("%s is other than the profile's when the static Pod is written", f.Path)
			}
		}
		return nil
	}
	phasetest.Fatal(t, replaceComponents(t.Context(), s.Env, node.Lease{}, components))
	if !replaced || s.Get(t, own.Path) != "mine\n" {
		t.Errorf("replaced: %t; the operator's file is %q", replaced, s.Get(t, own.Path))
	}
	fact.In(t, s.Said.String(), own.Path, "mine")
}
