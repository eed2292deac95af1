// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/test/fact"
)

// hostFields are LoadHost's results from the command line.
type hostFields struct {
	CRISocket        string
	SkipPhases       []string
	Ignore           []string
	DryRun           bool
	BindPort         int32
	AdvertiseAddress string
}

func TestLoadHost(t *testing.T) {
	const socket = "unix:///run/crio/crio.sock"
	for name, test := range map[string]struct {
		flags Flags
		want  hostFields
	}{
		"nothing":             {},
		"a socket":            {Flags{CRISocket: socket}, hostFields{CRISocket: socket}},
		"a path":              {Flags{CRISocket: "/run/crio/crio.sock"}, hostFields{CRISocket: socket}},
		"names in any case":   {Flags{IgnorePreflightErrors: []string{"CRI", "cri", " Swap ", ""}}, hostFields{Ignore: []string{"cri", "swap"}}},
		"phases and dry run":  {Flags{SkipPhases: []string{"images"}, DryRun: true}, hostFields{SkipPhases: []string{"images"}, DryRun: true}},
		"swap off":            {flags: Flags{Given: []string{"swap"}, Swap: "off"}},
		"swap kept":           {flags: Flags{Given: []string{"swap"}, Swap: "keep"}},
		"a command without":   {flags: Flags{Swap: ""}},
		"nothing of init's":   {flags: Flags{NodeName: "node-1", APIServerBindPort: 7443}},
		"nothing of a config": {flags: Flags{KubernetesVersion: "v1.30.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := LoadHost(test.flags)
			if err != nil {
				t.Fatal(err)
			}
			test.want.BindPort, test.want.AdvertiseAddress = DefaultBindPort, "invalid IP"
			got := hostFields{n.CRISocket, n.SkipPhases, n.IgnorePreflightErrors, n.DryRun, n.BindPort, n.AdvertiseAddress.String()}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n.Name != "" || n.Paths.Kubelet != "/var/lib/kubelet" || n.Timeouts != defaultLimits() {
				t.Errorf("name %q, the kubelet's directory %q, limits %+v", n.Name, n.Paths.Kubelet, n.Timeouts)
			}
		})
	}
}

func TestLoadHostRefuses(t *testing.T) {
	for _, swap := range []string{"on", "", "OFF", "no"} {
		_, err := LoadHost(Flags{Given: []string{"swap"}, Swap: swap})
		fact.Error(t, err, "--swap", "off", "keep", strconv.Quote(swap))
	}
}

func TestHostFlags(t *testing.T) {
	for command, want := range map[string][]string{
		hostPrepare: {"allow-downgrade", "bundle", "cri-socket", "digest", "dry-run", "ignore-preflight-errors", "public-key", "registry-mirror", "skip-phases", "swap"},
		hostReset:   {"dry-run", "ignore-preflight-errors", "skip-phases"},
	} {
		var f Flags
		fs := pflag.NewFlagSet(command, pflag.ContinueOnError)
		f.Bind(fs, command)
		var names []string
		fs.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
		if command != hostPrepare {
			continue
		}
		if f.Swap != "off" {
			t.Errorf("swap is %q by default", f.Swap)
		}
		args := []string{"--registry-mirror=a=http://b", "--registry-mirror=c=http://d", "--public-key=k1,k2", "--swap=keep", "--bundle=x.tar"}
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		lists := [][]string{f.RegistryMirrors, f.PublicKeys, {f.Swap, f.Bundle}}
		if diff := cmp.Diff([][]string{{"a=http://b", "c=http://d"}, {"k1", "k2"}, {"keep", "x.tar"}}, lists); diff != "" {
			t.Errorf("parsed (-want +got):\n%s", diff)
		}
	}
}
