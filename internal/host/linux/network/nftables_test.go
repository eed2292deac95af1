// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/slipway-k8s/slipway/test/apart"
)

func (r rules) tables() []string {
	r.Helper()
	list, err := r.conn.ListTables()
	if err != nil {
		r.Fatal(err)
	}
	var all []string
	for _, table := range list {
		all = append(all, nftName(table))
	}
	slices.Sort(all)
	return all
}

// TestIdleTables: a table of iptables goes with Kubernetes' chains, unless somebody has put something else into it.
func TestIdleTables(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	r := rules{t, conn}
	used := func(family nftables.TableFamily, name string) (*nftables.Table, *nftables.Chain) {
		table := conn.AddTable(&nftables.Table{Family: family, Name: name})
		r.chain(table, "KUBE-A", nil)
		r.chain(table, "OUTPUT", nftables.ChainHookOutput)
		input := r.chain(table, "INPUT", nftables.ChainHookInput)
		r.jump(input, "KUBE-A")
		return table, input
	}
	used(nftables.TableFamilyIPv4, "filter")
	used(nftables.TableFamilyIPv6, "filter")
	used(nftables.TableFamilyIPv4, "mine")
	table, _ := used(nftables.TableFamilyIPv4, "nat")
	r.chain(table, "MINE", nil)
	ruled, input := used(nftables.TableFamilyIPv4, "raw")
	conn.AddRule(&nftables.Rule{Table: ruled, Chain: input, Exprs: []expr.Any{&expr.Counter{}}})
	closed, _ := used(nftables.TableFamilyIPv4, "mangle")
	drop := nftables.ChainPolicyDrop
	conn.AddChain(&nftables.Chain{
		Name: "FORWARD", Table: closed, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter, Policy: &drop,
	})
	sets, _ := used(nftables.TableFamilyIPv4, "security")
	if err := conn.AddSet(&nftables.Set{Table: sets, Name: "a", KeyType: nftables.TypeIPAddr}, nil); err != nil {
		t.Fatal(err)
	}
	conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv6, Name: "nat"}) // nothing of Kubernetes
	if err := conn.Flush(); err != nil {
		t.Skipf("this kernel has no nftables: %v", err)
	}

	found, err := nftLeftovers()
	if err != nil || len(found) != 7 {
		t.Fatalf("found %v, error %v", found, err)
	}
	for _, l := range found {
		for range 2 { // as after an interrupted run
			if err := stack.RemoveLeftover(t.Context(), l); err != nil {
				t.Error(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"ip mangle", "ip mine", "ip nat", "ip raw", "ip security", "ip6 nat"}, r.tables()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if found, err = nftLeftovers(); err != nil || len(found) > 0 {
		t.Errorf("found again %v, error %v", found, err)
	}
}
