// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"net/netip"
	"testing"
)

func TestIndexFor(t *testing.T) {
	tests := []struct {
		name  string
		taken map[int]bool
		want  int
	}{
		{"cp-1", nil, 11},
		{"cp-9", nil, 19},
		{"worker-1", nil, 21},
		{"worker-29", nil, 49},
		{"worker-30", nil, 50},
		{"cp-10", nil, 50},
		{"cp-0", nil, 50},
		{"etcd", map[int]bool{50: true, 51: true}, 52},
		{"cp-2", map[int]bool{12: true}, 50},
	}
	for _, test := range tests {
		got, err := indexFor(test.name, test.taken)
		if err != nil || got != test.want {
			t.Errorf("indexFor(%q, %v) = %d, %v; want %d", test.name, test.taken, got, err, test.want)
		}
	}
	full := map[int]bool{}
	for i := freeIndex; i <= lastIndex; i++ {
		full[i] = true
	}
	if got, err := indexFor("another", full); err == nil {
		t.Errorf("a full lab gave the index %d", got)
	}
}

func TestIndexOf(t *testing.T) {
	for address, want := range map[string]int{
		"192.168.99.11": 11, "192.168.99.99": 99, "192.168.99.30": 0, "192.168.99.10": 0, "192.168.98.11": 0, "x": 0,
	} {
		got, err := indexOf(address, map[int]bool{30: true})
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("indexOf(%q) = %d, %v; want %d", address, got, err, want)
		}
	}
}

func TestPodRange(t *testing.T) {
	tests := []struct {
		subnet string
		index  int
		want   string
	}{
		{"10.244.0.0/16", 11, "10.244.11.0/24"},
		{"10.244.0.0/16", 99, "10.244.99.0/24"},
		{"10.0.0.0/8", 11, "10.0.11.0/24"},
		{"10.50.16.0/20", 11, "10.50.17.96/27"},
		{"fd00:10:244::/56", 21, "fd00:10:244:15::/64"},
		{"fd00:10:244::/64", 1, "fd00:10:244:0:200::/71"},
	}
	for _, test := range tests {
		got, err := podRange(netip.MustParsePrefix(test.subnet), test.index)
		if err != nil || got.String() != test.want {
			t.Errorf("podRange(%s, %d) = %s, %v; want %s", test.subnet, test.index, got, err, test.want)
		}
	}
	if got, err := podRange(netip.MustParsePrefix("10.0.0.0/24"), 11); err == nil {
		t.Errorf("a subnet without room gave %s", got)
	}
}

// Every index must get its own range inside the subnet.
func TestPodRangesAreApart(t *testing.T) {
	for _, text := range []string{"10.244.0.0/16", "10.50.16.0/20", "10.9.8.0/23", "fd00:10:244::/56", "fd01::/112"} {
		subnet := netip.MustParsePrefix(text)
		var before netip.Prefix
		for index := firstIndex; index <= lastIndex; index++ {
			got, err := podRange(subnet, index)
			if err != nil {
				t.Fatal(err)
			}
			if !subnet.Contains(got.Addr()) || before.IsValid() && before.Overlaps(got) {
				t.Errorf("%s, index %d: %s is outside or overlaps %s", text, index, got, before)
			}
			before = got
		}
	}
}
