// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/apart"
)

// fill adds tables: some as iptables-nft leaves them, and some that do something.
func (r rules) fill() {
	v4 := func(name string) *nftables.Table {
		return r.conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: name})
	}
	v4("bare")
	left := v4("filter")
	r.chain(left, "INPUT", nftables.ChainHookInput)
	r.chain(left, "FORWARD", nftables.ChainHookForward)
	r.chain(r.conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv6, Name: "nat"}), "MINE", nil)

	ruled := v4("ruled")
	input := r.chain(ruled, "INPUT", nftables.ChainHookInput)
	r.chain(ruled, "OUTPUT", nftables.ChainHookOutput)
	r.conn.AddRule(&nftables.Rule{Table: ruled, Chain: input, Exprs: []expr.Any{&expr.Counter{}}})
	drop := nftables.ChainPolicyDrop
	closed := v4("closed")
	r.conn.AddChain(&nftables.Chain{
		Name: "INPUT", Table: closed, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter, Policy: &drop,
	})
	if err := r.conn.AddSet(&nftables.Set{Table: v4("addresses"), Name: "a", KeyType: nftables.TypeIPAddr}, nil); err != nil {
		r.Fatal(err)
	}
	r.conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "foreign"}) // of a family that iptables doesn't use
	if err := r.conn.Flush(); err != nil {
		r.Skipf("this kernel has no nftables: %v", err)
	}
}

func (r rules) tables() []string {
	r.Helper()
	list, err := r.conn.ListTables()
	if err != nil {
		r.Fatal(err)
	}
	var all []string
	for _, table := range list {
		all = append(all, table.Name)
	}
	return all
}

// TestEmptyTables: tables that do nothing are found and removed. A table that does something again by then stays.
func TestEmptyTables(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	r := rules{t, conn}
	if found, err := stack.EmptyTables(); err != nil || len(found) > 0 {
		t.Fatalf("a new network has %v, error %v", found, err)
	}
	r.fill()
	want := []host.Leftover{{Kind: host.EmptyTable, Name: "ip bare"}, {Kind: host.EmptyTable, Name: "ip filter"}, {Kind: host.EmptyTable, Name: "ip6 nat"}}
	found, err := stack.EmptyTables()
	if diff := cmp.Diff(want, found); err != nil || diff != "" {
		t.Fatalf("error %v, found (-want +got):\n%s", err, diff)
	}
	for _, l := range append(found, host.Leftover{Kind: host.EmptyTable, Name: "ip ruled"}, host.Leftover{Kind: host.EmptyTable, Name: "ip closed"}, host.Leftover{Kind: host.EmptyTable, Name: "ip addresses"}, host.Leftover{Kind: host.EmptyTable, Name: "ip none"}) {
		for range 2 { // as after an interrupted run
			if err := stack.RemoveLeftover(t.Context(), l); err != nil {
				t.Error(err)
			}
		}
	}
	if diff := cmp.Diff([]string{"ruled", "closed", "addresses", "foreign"}, r.tables()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if found, err = stack.EmptyTables(); err != nil || len(found) > 0 {
		t.Errorf("found again %v, error %v", found, err)
	}
}
