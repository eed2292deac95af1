// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
)

// TestFileAsksOnlyInitForAPlan: a command without --dry-run does its work even if its file asks init for a plan. `config images
// pull` would pull nothing.
func TestFileAsksOnlyInitForAPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "init.yaml")
	const text = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
dryRun: true
localAPIEndpoint: {advertiseAddress: 192.0.2.11}
nodeRegistration: {criSocket: "unix:///run/x.sock"}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		plans bool
	}{
		"init":               {true},
		"config images pull": {false},
	} {
		t.Run(name, func(t *testing.T) {
			o, cmd := &InitOptions{}, &cobra.Command{}
			cmd.SetContext(t.Context())
			config.Bind(cmd.Flags(), name, &o.InitFlags)
			if err := cmd.Flags().Set("config", file); err != nil {
				t.Fatal(err)
			}
			parts, err := LoadInit(cmd, &cli.Globals{Program: "slipway", Streams: cli.Streams{Out: io.Discard, Err: io.Discard}}, o)
			if err != nil {
				t.Fatal(err)
			}
			defer parts.Close()
			_, works := parts.Env.Host.(*linux.Host)
			if works == test.plans || parts.Env.Config.DryRun != test.plans {
				t.Errorf("works on the host: %t, a plan is asked for: %t", works, parts.Env.Config.DryRun)
			}
		})
	}
}
