// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// nftBatch is how many changes fit into one message to the kernel.
const nftBatch = 200

// isKubeTable reports whether kube-proxy, in each IP family, or flannel makes this table for itself alone.
func isKubeTable(name string) bool {
	return name == "kube-proxy" || name == "flannel-ipv4" || name == "flannel-ipv6"
}

// iptablesTables are the names of iptables' tables.
var iptablesTables = []string{"filter", "mangle", "nat", "raw", "security"}

// nftFamilies are the families that kube-proxy and iptables use.
var nftFamilies = map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6"}

func nftName(t *nftables.Table) string { return nftFamilies[t.Family] + " " + t.Name }

// nftLeftovers asks the kernel itself: a host doesn't need the program nft, because kube-proxy brings its own.
func nftLeftovers() ([]host.Leftover, error) {
	conn, tables, err := nftTables()
	if err != nil {
		return nil, errors.Wrap(err, "look for rules in nftables")
	}
	var found []host.Leftover
	for _, t := range tables {
		if isKubeTable(t.Name) {
			found = append(found, host.Leftover{Kind: host.ProxyTable, Name: nftName(t)})
			continue
		}
		kube, _, err := nftChains(conn, t)
		if err != nil {
			return found, errors.Wrapf(err, "look for chains in nftables table %s", nftName(t))
		}
		if len(kube) > 0 {
			found = append(found, host.Leftover{Kind: host.Chains, Name: nftName(t)})
		}
	}
	return found, nil
}

// nftTables connects to the kernel, and lists these families' tables in a stable order. A kernel without nftables has none.
func nftTables() (*nftables.Conn, []*nftables.Table, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, nil, err
	}
	tables, err := conn.ListTables()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return conn, nil, nil
	}
	tables = slices.DeleteFunc(tables, func(t *nftables.Table) bool { return nftFamilies[t.Family] == "" })
	slices.SortFunc(tables, func(a, b *nftables.Table) int { return strings.Compare(nftName(a), nftName(b)) })
	return conn, tables, err
}

// nftChains lists a table's chains of Kubernetes, and the others.
func nftChains(conn *nftables.Conn, t *nftables.Table) (kube, others []*nftables.Chain, err error) {
	chains, err := conn.ListChainsOfTableFamily(t.Family)
	for _, c := range chains {
		switch {
		case c.Table.Name != t.Name:
		case isKubeChain(c.Name):
			kube = append(kube, c)
		default:
			others = append(others, c)
		}
	}
	return kube, others, err
}

func removeNft(l host.Leftover) error {
	conn, tables, err := nftTables()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return nftName(t) == l.Name })
	if i < 0 {
		return nil
	}
	if l.Kind == host.ProxyTable {
		conn.DelTable(tables[i])
		return conn.Flush()
	}
	return removeNftChains(conn, tables[i])
}

// removeNftChains removes a table's chains of Kubernetes, after the rules in base chains that jump to them. A chain that a user's
// own chain refers to is emptied and stays. A table of iptables goes, too, if it does nothing without them: iptables makes it again.
func removeNftChains(conn *nftables.Conn, t *nftables.Table) error {
	kube, others, err := nftChains(conn, t)
	if err != nil {
		return err
	}
	sets, err := conn.GetSets(t)
	idle := err == nil && len(sets) == 0 && slices.Contains(iptablesTables, t.Name)
	used := map[string]bool{}
	var jumps []*nftables.Rule
	for _, c := range others {
		rules, err := conn.GetRules(t, c)
		if err != nil {
			return err
		}
		idle = idle && c.Hooknum != nil && (c.Policy == nil || *c.Policy == nftables.ChainPolicyAccept)
		for _, rule := range rules {
			if target := jumpTarget(rule); c.Hooknum != nil && isKubeChain(target) {
				jumps = append(jumps, rule)
			} else {
				used[target], idle = true, false
			}
		}
	}
	if idle {
		conn.DelTable(t)
		return conn.Flush()
	}
	err = inBatches(conn, jumps, conn.DelRule)
	if err == nil {
		err = inBatches(conn, kube, func(c *nftables.Chain) error { conn.FlushChain(c); return nil })
	}
	kube = slices.DeleteFunc(kube, func(c *nftables.Chain) bool { return used[c.Name] })
	if err == nil {
		err = inBatches(conn, kube, func(c *nftables.Chain) error { conn.DelChain(c); return nil })
	}
	return err
}

// jumpTarget is the chain a rule jumps to, or empty.
func jumpTarget(rule *nftables.Rule) string {
	for _, e := range rule.Exprs {
		if v, ok := e.(*expr.Verdict); ok && (v.Kind == expr.VerdictJump || v.Kind == expr.VerdictGoto) {
			return v.Chain
		}
	}
	return ""
}

func inBatches[T any](conn *nftables.Conn, list []T, change func(T) error) error {
	for batch := range slices.Chunk(list, nftBatch) {
		for _, one := range batch {
			if err := change(one); err != nil {
				return err
			}
		}
		if err := conn.Flush(); err != nil {
			return errors.Wrap(err, "the kernel refuses")
		}
	}
	return nil
}
