// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import "testing"

func TestSysctlSetting(t *testing.T) {
	for line, want := range map[string][2]string{
		"net.ipv4.ip_forward = 1\n":          {"net/ipv4/ip_forward", "1"},
		"-net/ipv4/ip_forward=0":             {"net/ipv4/ip_forward", "0"},
		"net.ipv6.conf.eth0/100.accept_ra=2": {"net/ipv6/conf/eth0.100/accept_ra", "2"},
		"net/ipv6/conf/eth0.100/accept_ra=2": {"net/ipv6/conf/eth0.100/accept_ra", "2"},
		"# net.ipv4.ip_forward=0":            {"", ""},
		"; net.ipv4.ip_forward=0":            {"", ""},
		"net.ipv4.ip_forward":                {"", ""},
		"":                                   {"", ""},
	} {
		if name, value := sysctlSetting(line); name != want[0] || value != want[1] {
			t.Errorf("%q: %q, %q, want %q", line, name, value, want)
		}
	}
}
