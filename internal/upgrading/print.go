// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// PrintStored shows the cluster's stored configuration, the starting point of an upgrade.
func PrintStored(w io.Writer, stored []byte) error {
	_, err := fmt.Fprintf(w, "Configuration of the cluster:\n%s\n", indented("\t", redact.Document(string(stored))))
	return err
}

func (p *Plan) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Cluster version: %s\n\n", p.ClusterVersion)
	var nodes, configs [][]string
	for _, n := range p.Nodes {
		role := "worker"
		if n.ControlPlane {
			role = "control-plane"
		}
		nodes = append(nodes, []string{n.Name, role, n.APIServer, n.Kubelet, n.Runtime})
	}
	_ = ui.Table(&b, "NODE\tROLE\tAPI SERVER\tKUBELET\tRUNTIME", nodes) // b is a string
	if len(p.Upgrades) == 0 {
		b.WriteString("\nThere is nothing to upgrade.\n")
	}
	for _, u := range p.Upgrades {
		printUpgrade(&b, u)
	}
	b.WriteString("\nConfigurations of components:\n\n")
	for _, c := range p.Configs {
		manual := "no"
		if c.Manual {
			manual = "yes"
		}
		configs = append(configs, []string{c.Group, c.Current, c.Preferred, manual})
	}
	_ = ui.Table(&b, "API GROUP\tCURRENT VERSION\tPREFERRED VERSION\tMANUAL UPGRADE REQUIRED", configs)
	_, err := io.WriteString(w, b.String())
	return err
}

func printUpgrade(b *strings.Builder, u Upgrade) {
	fmt.Fprintf(b, "\nUpgrade to %s (%s):\n\n", u.Version, u.Description)
	var rows [][]string
	for _, c := range u.Components {
		if c.Name != RowProgram {
			rows = append(rows, []string{c.Name, c.Node, c.Current, c.New})
		}
	}
	_ = ui.Table(b, "COMPONENT\tNODE\tCURRENT\tTARGET", rows)
	printFindings(b, u.Findings)
	printPatches(b, "Patches that keep this host's edits; put them into a directory for --patches", u.Patches)
	printPatches(b, "Patches that keep this host's differences from the ClusterConfiguration or ConfigMap kubelet-config, which changed after its files were written; "+
		"use only the patches for edits made on this host", u.DoubtfulPatches)
	if len(u.Steps) > 0 {
		b.WriteString("\nSteps, one after the other:\n")
	}
	for i, s := range u.Steps {
		fmt.Fprintf(b, "\n%d. %s: %s %s\n%s", i+1, s.Node, s.Component, s.Version, indented("     ", strings.Join(s.Commands, "\n")))
	}
	if u.Changes != nil {
		b.WriteString("\nChanges on this host and in the cluster:\n")
	}
	for _, c := range u.Changes {
		b.WriteString("\n" + c.Name + "\n" + c.Diff)
	}
}

func printPatches(b *strings.Builder, heading string, files []PatchFile) {
	if len(files) > 0 {
		b.WriteString("\n" + heading + ":\n")
	}
	for _, f := range files {
		b.WriteString("\n  " + f.Name + "\n" + indented("    ", f.Content))
		if f.Hides() {
			b.WriteString("\n  Before you use " + f.Name + ", replace each [redacted] by the secret in this host's own file.\n")
		}
	}
}

// maxPerCheck is how many findings of one check people see; programs get all.
const maxPerCheck = 10

// printFindings writes each level's findings under a heading, errors first.
func printFindings(b *strings.Builder, found []fault.Finding) {
	for _, part := range []struct {
		level   fault.Severity
		heading string
	}{
		{fault.Error, "Fix these problems first"}, {fault.Warning, "Warnings"}, {fault.Unasked, "Not checked"},
	} {
		shown := map[string]int{}
		for _, f := range found {
			if f.Severity != part.level {
				continue
			}
			if len(shown) == 0 {
				b.WriteString("\n" + part.heading + ":\n\n")
			}
			if shown[f.Name]++; shown[f.Name] <= maxPerCheck {
				fmt.Fprintf(b, "  %s: %s\n", f.Name, strings.ReplaceAll(f.Message, "\n", "\n    "))
				if f.Remedy != "" {
					b.WriteString(indented("    ", f.Remedy))
				}
			}
		}
		for _, check := range slices.Sorted(maps.Keys(shown)) {
			if left := shown[check] - maxPerCheck; left > 0 {
				fmt.Fprintf(b, "  %s: and %d more; -o yaml shows them all\n", check, left)
			}
		}
	}
}

func indented(prefix, text string) string {
	return prefix + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+prefix) + "\n"
}
