// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/program"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// iptablesTimeout bounds a run of an iptables program. They wait for each other's lock.
const iptablesTimeout = time.Minute

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
			script, err := legacyScript(ctx, family.program, table)
			if err != nil {
				return found, err
			}
			if script != "" {
				found = append(found, host.Leftover{Kind: host.LegacyChains, Name: family.program + " " + table})
			}
		}
	}
	return found, nil
}

func removeLegacyChains(ctx context.Context, name string) error {
	program, table, _ := strings.Cut(name, " ")
	script, err := legacyScript(ctx, program, table)
	if err == nil && script != "" {
		_, err = runIPTables(ctx, script, program+"-restore", "--wait", "--noflush", "--table", table)
	}
	return err
}

func legacyScript(ctx context.Context, program, table string) (string, error) {
	saved, err := runIPTables(ctx, "", program+"-save", "--table", table)
	return legacyRemoval(table, saved), err
}

// The lines of iptables-save: a chain with its policy, which is "-" unless it's built-in, and a rule with its chain. A rule's
// target is the word after the first -j or -g. Text in quotes, such as a comment, can be anything.
var (
	savedChain  = lazyregexp.New(`(?m)^:(\S+) (\S+)`)
	savedRule   = lazyregexp.New(`(?m)^-A (\S+) .*`)
	savedTarget = lazyregexp.New(` -[jg] (\S+)`)
	savedText   = lazyregexp.New(`"(\\.|[^"\\])*"`)
)

// legacyRemoval turns iptables-save's output for a table into iptables-restore's input that removes the chains of Kubernetes in
// one transaction; empty if there are none. A chain that a user's own chain refers to is emptied and stays.
func legacyRemoval(table, saved string) string {
	builtIn, used := map[string]bool{}, map[string]bool{}
	chains := savedChain().FindAllStringSubmatch(saved, -1)
	for _, c := range chains {
		builtIn[c[1]] = c[2] != "-"
	}
	var jumps, flushes, deletions strings.Builder
	for _, r := range savedRule().FindAllStringSubmatch(saved, -1) {
		target := savedTarget().FindStringSubmatch(savedText().ReplaceAllString(r[0], `""`))
		switch {
		case target == nil || !isKubeChain(target[1]) || isKubeChain(r[1]):
		case builtIn[r[1]]:
			jumps.WriteString("-D" + strings.TrimPrefix(r[0], "-A") + "\n")
		default:
			used[target[1]] = true
		}
	}
	for _, c := range chains {
		if !isKubeChain(c[1]) {
			continue
		}
		flushes.WriteString("-F " + c[1] + "\n")
		if !used[c[1]] {
			deletions.WriteString("-X " + c[1] + "\n")
		}
	}
	if flushes.Len() == 0 {
		return ""
	}
	return "*" + table + "\n" + jumps.String() + flushes.String() + deletions.String() + "COMMIT\n"
}

func runIPTables(ctx context.Context, script, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, iptablesTimeout)
	defer cancel()
	out, err := program.Run(ctx, script, name, args...)
	if errors.Is(err, exec.ErrNotFound) {
		err = errors.Errorf("%s is not installed, but the kernel has tables that only it can change: install the package iptables-legacy "+
			"(on Debian and Ubuntu, iptables), then run the same command again; or restart this host, which removes their rules", name)
	}
	return out, err
}
