// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlagTable: a command has each flag once, and each field belongs to a document the flag's command loads.
func TestFlagTable(t *testing.T) {
	kinds := map[string][]string{
		"init": {kindInit, kindCluster}, "preflight init": {kindInit, kindCluster},
		"config images list": {kindInit, kindCluster}, "config images pull": {kindInit, kindCluster},
		"join": {kindJoin}, "preflight join": {kindJoin}, "reset": {kindReset}, "token create": {kindInit},
		"init phase": nil, "token": nil, "config": nil, "config validate": nil, "certs check-expiration": nil, "certs renew": nil,
		"certs generate-csr": nil, "kubeconfig user": nil, "diagnose": nil, "support-bundle": nil,
		upgradeApply: {kindUpgrade}, upgradeNode: {kindUpgrade}, upgradePlan: {kindUpgrade}, upgradeDiff: {kindUpgrade},
		upgradeRollback: nil, hostPrepare: nil, hostReset: nil, upCommand: nil, downCommand: nil,
	}
	seen := make(map[string]bool)
	for _, row := range flagTable() {
		var loaded []string
		for _, command := range row.commands {
			if _, known := kinds[command]; !known {
				t.Errorf("--%s: there is no command %q", row.Name, command)
			}
			if seen[command+" --"+row.Name] {
				t.Errorf("%s has --%s twice", command, row.Name)
			}
			seen[command+" --"+row.Name] = true
			loaded = append(loaded, kinds[command]...)
		}
		if len(row.commands) == 0 {
			t.Errorf("no command takes --%s", row.Name)
		}
		for _, field := range row.fields {
			if !slices.Contains(loaded, field.kind) {
				t.Errorf("--%s sets %s %s, which none of %q loads", row.Name, field.kind, field.path, row.commands)
			}
		}
	}
	for command, list := range kinds {
		if list != nil && flagOf(command, "config") == nil {
			t.Errorf("%s does not take --config", command)
		}
	}
}

// TestImagesAndPreflightReadFlagsOfInit: these commands load a configuration like init and join, with the same rows.
func TestImagesAndPreflightReadFlagsOfInit(t *testing.T) {
	for command, as := range map[string]string{
		"config images list": "init", "config images pull": "init", "preflight init": "init", "preflight join": "join",
	} {
		for _, row := range flagTable() {
			if slices.Contains(row.commands, command) && !slices.Contains(row.commands, as) {
				t.Errorf("--%s of %q would not be applied: %q does not take it", row.Name, command, as)
			}
		}
	}
}

// TestBindLeavesOutUnknownFlags: a test of the commands finds a wrong name in a phase, so that no user does.
func TestBindLeavesOutUnknownFlags(t *testing.T) {
	fs := pflag.NewFlagSet("phase", pflag.ContinueOnError)
	new(Flags).BindPhase(fs, "init", []string{"no-such-flag", "discovery-file", "node-name", "kubeconfig-dir"})
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if want := []string{"kubeconfig-dir", "node-name"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
