// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"net/netip"
	"testing"
)

// TestText: an address is a word.
func TestText(t *testing.T) {
	v4 := &Move{From: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, To: netip.MustParseAddr("10.0.0.12")}
	v6 := &Move{From: []netip.Addr{netip.MustParseAddr("fd00::1")}, To: netip.MustParseAddr("fd00::1:2")}
	for _, test := range []struct {
		m          *Move
		text, want string
	}{
		{v4, "--a=10.0.0.1", "--a=10.0.0.12"},
		{v4, "https://10.0.0.1:2380,b=https://10.0.0.1:2379", "https://10.0.0.12:2380,b=https://10.0.0.12:2379"},
		{v4, "10.0.0.1 10.0.0.1.", "10.0.0.12 10.0.0.12."},
		{v4, "10.0.0.12 110.0.0.1 10.0.0.1.example 10.0.0.10.0.0.1 ip-10.0.0.1", "10.0.0.12 110.0.0.1 10.0.0.1.example 10.0.0.10.0.0.1 ip-10.0.0.1"},
		{v6, "https://[fd00::1]:2380 fd00::1", "https://[fd00::1:2]:2380 fd00::1:2"},
		{v6, "--a=FD00:0::1 https://[fd00:0:0:0:0:0:0:1]:2380,b", "--a=fd00::1:2 https://[fd00::1:2]:2380,b"},
		{v6, "host-FD00:0::1 FD00:0::1.example a:FD00:0::1 FD00:0::12", "host-FD00:0::1 FD00:0::1.example a:FD00:0::1 FD00:0::12"},
		{v6, "[fd00::1:2] [fd00::11] [1:fd00::1]", "[fd00::1:2] [fd00::11] [1:fd00::1]"},
	} {
		if got := test.m.ReplaceAddresses(test.text); got != test.want {
			t.Errorf("%q became %q, not %q", test.text, got, test.want)
		}
	}
}
