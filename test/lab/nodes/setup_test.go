// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestNetworkBatch(t *testing.T) {
	got, err := networkBatch(12, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(got, "\n")
	for line, want := range map[string]bool{
		"addr add 192.168.99.12/24 dev host0":           true,
		"addr add fd00:99::12/64 dev host0 nodad":       true,
		"route add default via 192.168.99.1":            true,
		"route add 10.244.11.0/24 via 192.168.99.11":    true,
		"route add 10.244.12.0/24 via 192.168.99.12":    false,
		"route add fd00:10:244:15::/64 via fd00:99::21": true,
	} {
		if slices.Contains(lines, line) != want {
			t.Errorf("%q: there is %v, want %v", line, !want, want)
		}
	}
	if slices.Index(lines, "link set host0 up") > slices.Index(lines, "route add default via 192.168.99.1") {
		t.Error("a route comes before its link is up")
	}
}

func TestCNIConfig(t *testing.T) {
	text, err := cniConfig(21, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Plugins []struct {
			Type string
			IPAM struct {
				Ranges [][]struct{ Subnet string }
				Routes []struct{ Dst string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Plugins) != 2 || got.Plugins[0].Type != "bridge" || got.Plugins[1].Type != "portmap" {
		t.Fatalf("plugins %+v", got.Plugins)
	}
	ipam := got.Plugins[0].IPAM
	if len(ipam.Ranges) != 1 || ipam.Ranges[0][0].Subnet != "10.244.21.0/24" || ipam.Routes[0].Dst != "0.0.0.0/0" {
		t.Errorf("ipam %+v", ipam)
	}
}

func TestHostsFile(t *testing.T) {
	got := hostsFile("worker-2", 22)
	for _, want := range []string{"192.168.99.22 worker-2\n", "192.168.99.11 cp-1\n", "192.168.99.21 worker-1\n"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is there %d times, want once", want, strings.Count(got, want))
		}
	}
}

func TestCgroupDropIn(t *testing.T) {
	if got := cgroupDropIn(nil); strings.Contains(got, "ExecStart") {
		t.Errorf("cgroup version 2 remounts something:\n%s", got)
	}
	if got := cgroupDropIn([]string{"memory"}); !strings.HasSuffix(got, "remount,bind,rw /sys/fs/cgroup/memory\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestInitConfig(t *testing.T) {
	n := &Node{state: state{Name: "cp-1", Index: 11, PodSubnets: []string{"10.244.0.0/16", "fd00:10:244::/56"}}}
	got := n.InitConfig("v1.37.2", "192.168.99.11:6443")
	for _, want := range []string{
		"advertiseAddress: 192.168.99.11\n", "kubernetesVersion: v1.37.2\n",
		"podSubnet: 10.244.0.0/16,fd00:10:244::/56\n", "controlPlaneEndpoint: 192.168.99.11:6443\n", "failCgroupV1: false\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Count(got, "---\n") != 3 {
		t.Errorf("not four documents:\n%s", got)
	}
}
