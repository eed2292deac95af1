// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"testing"
)

func TestEndpoint(t *testing.T) {
	for _, tt := range []struct{ given, want string }{
		{"", "10.0.0.9:6443"},
		{"api.example", "api.example:6443"},
		{"api.example:", "api.example:6443"},
		{"api.example:443", "api.example:443"},
		{"10.0.0.1", "10.0.0.1:6443"},
		{"fd00::1", "[fd00::1]:6443"},
		{"[fd00::1]", "[fd00::1]:6443"},
		{"[fd00::1]:443", "[fd00::1]:443"},
	} {
		t.Run(tt.given, func(t *testing.T) {
			n := mustLoad(t, file("localAPIEndpoint: {advertiseAddress: 10.0.0.9}", fmt.Sprintf("controlPlaneEndpoint: %q", tt.given)), Flags{}, testOptions())
			if got := n.Endpoint(); got != tt.want || n.LocalEndpoint() != "10.0.0.9:6443" {
				t.Errorf("got %s and %s, want %s", got, n.LocalEndpoint(), tt.want)
			}
			if want := tt.want; tt.given != "" && n.Cluster.ControlPlaneEndpoint != want {
				t.Errorf("stored as %s, want %s", n.Cluster.ControlPlaneEndpoint, want)
			}
		})
	}
}

func TestNetworks(t *testing.T) {
	networking := "networking: {serviceSubnet: '10.96.0.0/16,fd00:10:96::/112', podSubnet: '10.244.7.0/16'}"
	src := file("", networking)
	n, _, err := LoadInit(t.Context(), src, Flags{}, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(n.ServiceSubnets(), n.PodSubnets(), n.APIServiceIP(), n.ClusterDNSIPs())
	if want := "[10.96.0.0/16 fd00:10:96::/112] [10.244.0.0/16] 10.96.0.1 [10.96.0.10 fd00:10:96::a]\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
