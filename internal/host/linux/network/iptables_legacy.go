// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/program"
)

// iptablesTime bounds a run of an iptables program. They wait for each other's lock.
const iptablesTime = 20 * time.Second

// legacyFamilies are the two IP families of legacy iptables: the file in which the kernel lists the tables in use, and the
// programs for them. Without the file there are no tables, and running the program would create them.
var legacyFamilies = []struct{ names, program string }{
	{"/proc/net/ip_tables_names", "iptables-legacy"},
	{"/proc/net/ip6_tables_names", "ip6tables-legacy"},
}

// legacyLeftovers returns leftovers named "PROGRAM TABLE".
func legacyLeftovers(ctx context.Context) ([]host.Leftover, error) {
	var found []host.Leftover
	for _, family := range legacyFamilies {
		names, err := os.ReadFile(family.names)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(names)) == 0 {
			continue
		}
		if err != nil {
			return found, errors.Wrap(err, "look for rules of iptables")
		}
		for _, table := range strings.Fields(string(names)) {
			saved, err := legacySave(ctx, family.program, table)
			if err != nil {
				return found, err
			}
			if script := legacyRemoval(saved); script != "" {
				found = append(found, host.Leftover{Kind: host.LegacyChains, Name: family.program + " " + table})
			}
		}
	}
	return found, nil
}

func removeLegacyChains(ctx context.Context, name string) error {
	program, table, _ := strings.Cut(name, " ")
	saved, err := legacySave(ctx, program, table)
	if err != nil {
		return err
	}
	script := legacyRemoval(saved)
	if script == "" {
		return nil
	}
	_, err = runIPTables(ctx, script, program+"-restore", "--noflush", "--table", table)
	return err
}

func legacySave(ctx context.Context, program, table string) (string, error) {
	return runIPTables(ctx, "", program+"-save", "--table", table)
}

// legacyRemoval turns iptables-save's output for a table into iptables-restore's input that removes the chains of Kubernetes in
// one transaction; empty if there are none. A chain that a user's own chain refers to is emptied and stays.
func legacyRemoval(saved string) string {
	var table, jumps, flushes, deletions strings.Builder
	builtIn, used := map[string]bool{}, map[string]bool{}
	var kube []string
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table.WriteString(line + "\n")
		case strings.HasPrefix(line, ":") && isKubeChain(line[1:]):
			kube = append(kube, fields[0][1:])
		case strings.HasPrefix(line, ":"):
			builtIn[fields[0][1:]] = fields[1] != "-" // only built-in chains have a policy
		case len(fields) > 2 && fields[0] == "-A" && !isKubeChain(fields[1]):
			target := legacyTarget(line)
			switch {
			case !isKubeChain(target):
			case builtIn[fields[1]]:
				jumps.WriteString("-D" + strings.TrimPrefix(line, "-A") + "\n")
			default:
				used[target] = true
			}
		}
	}
	if len(kube) == 0 {
		return ""
	}
	for _, chain := range kube {
		fmt.Fprintf(&flushes, "-F %s\n", chain)
		if !used[chain] {
			fmt.Fprintf(&deletions, "-X %s\n", chain)
		}
	}
	return table.String() + jumps.String() + flushes.String() + deletions.String() + "COMMIT\n"
}

// legacyTarget is a saved rule's target chain: the word after the first -j or -g. Text in quotes, such as a comment, can be
// anything.
func legacyTarget(rule string) string {
	words := ruleWords(rule)
	for i, word := range words[:max(len(words)-1, 0)] {
		if word == "-j" || word == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// ruleWords splits a saved rule into words. A quoted word keeps its quotes.
func ruleWords(rule string) []string {
	var words []string
	var word strings.Builder
	quoted, escaped := false, false
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, c := range rule {
		switch {
		case c == ' ' && !quoted:
			end()
			continue
		case c == '"' && !escaped:
			quoted = !quoted
		}
		escaped = c == '\\' && !escaped
		word.WriteRune(c)
	}
	end()
	return words
}

func runIPTables(ctx context.Context, script, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, iptablesTime)
	defer cancel()
	out, err := program.Run(ctx, script, name, args...)
	if errors.Is(err, exec.ErrNotFound) {
		err = errors.Errorf("%s is not installed, but the kernel has tables that only it can change: install iptables, then run the same command again", name)
	}
	return out, err
}
