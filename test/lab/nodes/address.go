// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"math/big"
	"net/netip"
	"regexp"
	"strconv"

	"github.com/pkg/errors"
)

// Every lab has the same addresses, each in its own network namespace. A node's last number is its index, which also determines
// the node's range for Pods.
const (
	gateway4 = "192.168.99.1"
	gateway6 = "fd00:99::1"

	firstIndex = 11
	lastIndex  = 99
	freeIndex  = 50 // the first index for names that follow no pattern

	// DefaultPodSubnet holds the Pods' addresses unless a NodeSpec says otherwise.
	DefaultPodSubnet = "10.244.0.0/16"
)

// ipv4 returns the address of the node with an index.
func ipv4(index int) string { return fmt.Sprintf("192.168.99.%d", index) }

// ipv6 writes the index in decimal digits, so the address reads like the IPv4 one.
func ipv6(index int) string { return fmt.Sprintf("fd00:99::%d", index) }

var patterned = regexp.MustCompile(`^(cp|worker)-([1-9][0-9]?)$`)

// indexFor chooses a node's index: 11 for cp-1, 21 for worker-1, and the first free one for any other name. The same name and
// taken set always get the same index.
func indexFor(name string, taken map[int]bool) (int, error) {
	if m := patterned.FindStringSubmatch(name); m != nil {
		number, _ := strconv.Atoi(m[2]) // two digits at most
		index := map[string]int{"cp": 10, "worker": 20}[m[1]] + number
		most := map[string]int{"cp": 9, "worker": 29}[m[1]]
		if number <= most && !taken[index] {
			return index, nil
		}
	}
	for index := freeIndex; index <= lastIndex; index++ {
		if !taken[index] {
			return index, nil
		}
	}
	return 0, errors.New("the lab has no free address for another node")
}

// podRange returns the part of a Pod subnet for the node with an index. It cuts subnets of the usual sizes as a cluster does,
// into /24 and /64; smaller ones into 128 parts.
func podRange(subnet netip.Prefix, index int) (netip.Prefix, error) {
	const indexBits = 7
	usual, all := 24, 32
	if subnet.Addr().Is6() {
		usual, all = 64, 128
	}
	bits := max(usual, subnet.Bits()+indexBits)
	if bits > all-2 {
		return netip.Prefix{}, errors.Errorf("the Pod subnet %s is too small for the lab's nodes", subnet)
	}
	start := new(big.Int).SetBytes(subnet.Masked().Addr().AsSlice())
	start.Add(start, new(big.Int).Lsh(big.NewInt(int64(index)), uint(all-bits)))
	address, _ := netip.AddrFromSlice(start.FillBytes(make([]byte, all/8)))
	return netip.PrefixFrom(address, bits), nil
}
