// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestFinishFirst: a command ends an interrupted change of this worker, and goes on once the API answers. A plan ends nothing, so it
// can't go on.
func TestFinishFirst(t *testing.T) {
	const record = "/etc/kubernetes/tmp/slipway-reconfigure-2026-01-02-03-04-05/change.yaml"
	for name, test := range map[string]struct {
		mode  func(*cli.Globals) env.Mode
		away  bool
		facts []string // of the error
		state string
	}{
		"a run":       {mode: func(g *cli.Globals) env.Mode { return env.Acting{G: g} }, state: "state: reverted"},
		"without API": {mode: func(g *cli.Globals) env.Mode { return env.Acting{G: g} }, away: true, facts: []string{"/readyz"}, state: "state: reverted"},
		"a plan": {
			mode: func(g *cli.Globals) env.Mode { return env.Planning{G: g} }, facts: []string{"2026-01-02 03:04:05", "plan"}, state: "state: on trial",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, api := t.TempDir(), fakeapi.New(nil)
			defer api.Close()
			ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}))
			fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
				"clusters: [{name: a, cluster: {server: %s, certificate-authority-data: %s}}]\n"+
				"contexts: [{name: c, context: {cluster: a, user: u}}]\nusers: [{name: u, user: {token: t}}]\n", api.URL, ca))
			fixture.Put(t, root, record, "began: 2026-01-02T03:04:05Z\nstate: on trial\nfiles: []\n")
			if test.away {
				api.Close()
			}
			var out, errs bytes.Buffer
			g := &cli.Globals{Program: "slipway", Version: func() string { return "v0" }, Streams: cli.Streams{Out: &out, Err: &errs}}
			n := &config.Node{Machine: *config.DefaultMachine()}
			n.Timeouts.KubernetesAPICall = time.Second
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			var first *env.Parts
			err := finishFirst(cmd, g, func(*cobra.Command, *cli.Globals) (*env.Parts, error) {
				p := test.mode(g).LivingParts(n, linux.NewAt(root))
				first = cmp.Or(first, p)
				return p, nil
			}, []string{fault.EtcdQuorum})
			fact.List(t, first.Env.Config.IgnorePreflightErrors, fault.EtcdQuorum)
			fact.Error(t, err, test.facts...)
			if now := fixture.Get(t, root, record); !strings.Contains(now, test.state) {
				t.Errorf("the change became %s\n%s", now, &errs)
			}
		})
	}
}
