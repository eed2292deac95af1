// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestDrainFlags: a node is drained only on request.
func TestDrainFlags(t *testing.T) {
	for args, c := range map[string]struct {
		want *Drain
		err  string
	}{
		"":                                 {},
		"--drain":                          {want: &Drain{Timeout: 5 * time.Minute}},
		"--drain --drain-force":            {want: &Drain{Timeout: 5 * time.Minute, Force: true}},
		"--drain --drain-timeout=30s":      {want: &Drain{Timeout: 30 * time.Second}},
		"--drain --drain-timeout=0s":       {err: "--drain-timeout: | 0s | positive"},
		"--drain-force":                    {err: "--drain-force: | --drain"},
		"--drain-timeout=1m --drain=false": {err: "--drain-timeout: | --drain"},
	} {
		t.Run(args, func(t *testing.T) {
			var f Flags
			fs := pflag.NewFlagSet("node", pflag.ContinueOnError)
			f.Bind(fs, upgradeNode)
			if err := fs.Parse(strings.Fields(args)); err != nil {
				t.Fatal(err)
			}
			fs.Visit(func(flag *pflag.Flag) { f.Given = append(f.Given, flag.Name) })
			self, _, err := LoadUpgrade(t.Context(), nil, f, upgradeNode, "", Options{})
			if c.err != "" {
				fact.Error(t, err, fact.Of(c.err)...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, self.Drain); diff != "" {
				t.Error(diff)
			}
		})
	}
}
