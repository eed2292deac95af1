// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/test/fact"
)

// tableCommands are the commands in the flag table, with the kinds of documents they load and a pointer to their flags' struct.
func tableCommands() map[string]tableCommand {
	initKinds := []string{kindInit, kindCluster}
	return map[string]tableCommand{
		"init": {initKinds, &InitFlags{}}, "preflight init": {initKinds, &InitFlags{}}, "init phase": {nil, &InitFlags{}},
		"config images list": {initKinds, &InitFlags{}}, "config images pull": {initKinds, &InitFlags{}},
		"join": {[]string{kindJoin}, &JoinFlags{}}, "preflight join": {[]string{kindJoin}, &JoinFlags{}},
		"reset": {[]string{kindReset}, &ResetFlags{}}, "token create": {[]string{kindInit}, &TokenFlags{}},
		"token": {}, "config": {}, "config validate": {},
		"certs check-expiration": {nil, &CertsFlags{}}, "certs renew": {nil, &CertsFlags{}}, "certs generate-csr": {nil, &CertsFlags{}},
		"kubeconfig user": {nil, &CertsFlags{}}, "diagnose": {nil, &DiagnoseFlags{}}, "support-bundle": {nil, &DiagnoseFlags{}},
		upgradeApply: {[]string{kindUpgrade}, &UpgradeFlags{}}, upgradeNode: {[]string{kindUpgrade}, &UpgradeFlags{}},
		upgradePlan: {[]string{kindUpgrade}, &UpgradeFlags{}}, upgradeDiff: {[]string{kindUpgrade}, &UpgradeFlags{}},
		upgradeRollback: {nil, &RollbackFlags{}}, reconfigureCommand: {nil, &ReconfigureFlags{}}, reconfigureNode: {nil, &ReconfigureFlags{}},
		encryptionEnable: {nil, &TrialFlags{}},
		resetNode:        {nil, &RemovalFlags{}}, etcdMemberRemove: {nil, &RemovalFlags{}}, etcdPrune: {nil, &RemovalFlags{}},
		etcdDefrag: {nil, &DefragFlags{}}, etcdRestore: {nil, &RestoreFlags{}}, etcdRecover: {nil, &RecoverFlags{}}, etcdSnapshotPrune: {},
		hostPrepare: {nil, &HostFlags{}}, hostReset: {nil, &HostFlags{}},
		upCommand: {nil, &UpFlags{}}, downCommand: {nil, &DownFlags{}},
	}
}

type tableCommand struct {
	kinds []string
	flags any
}

// TestFlagTable: a command has each flag once, and each field belongs to a document the flag's command loads.
func TestFlagTable(t *testing.T) {
	commands := tableCommands()
	seen := make(map[string]bool)
	for _, row := range flagTable() {
		var loaded []string
		for _, command := range row.commands {
			if _, known := commands[command]; !known {
				t.Errorf("--%s: there is no command %q", row.Name, command)
			}
			if seen[command+" --"+row.Name] {
				t.Errorf("%s has --%s twice", command, row.Name)
			}
			seen[command+" --"+row.Name] = true
			loaded = append(loaded, commands[command].kinds...)
		}
		if len(row.commands) == 0 {
			t.Errorf("no command takes --%s", row.Name)
		}
		for _, field := range row.fields {
			if !slices.Contains(loaded, field.kind) {
				t.Errorf("--%s sets %s %s, which none of %q loads", row.Name, field.kind, field.path, row.commands)
			}
		}
	}
	for command, c := range commands {
		if c.flags != nil && flagFields()[reflect.TypeOf(c.flags).Elem()] == nil {
			t.Errorf("%s does not get the values of its flags", command)
		}
		if c.kinds != nil && flagOf(command, "config") == nil {
			t.Errorf("%s does not take --config", command)
		}
	}
}

// TestFieldsOfFlags: a flag that sets a field of a document has its value in its command's struct, and each value has a flag of
// its type.
func TestFieldsOfFlags(t *testing.T) {
	unbound := map[string]bool{}
	for flags, fields := range flagFields() {
		if flags == reflect.TypeFor[UpFlags]() || flags == reflect.TypeFor[DownFlags]() { // their parts have more
			continue
		}
		for name := range fields {
			unbound[flags.Name()+" --"+name] = true
		}
	}
	types := map[string]string{
		"bool": "*bool", "duration": "*time.Duration", "int": "*int", "int32": "*int32", "string": "*string", "stringSlice": "*[]string",
	}
	for command, c := range tableCommands() {
		for _, row := range flagTable() {
			sets := slices.ContainsFunc(row.fields, func(f flagField) bool { return slices.Contains(c.kinds, f.kind) })
			if sets && slices.Contains(row.commands, command) && fieldOf(c.flags, row.Name) == nil {
				t.Errorf("%T has no field for --%s", c.flags, row.Name)
			}
		}
		if c.flags == nil {
			continue
		}
		bound := pflag.NewFlagSet(command, pflag.ContinueOnError)
		Bind(bound, command, c.flags)
		bound.VisitAll(func(f *pflag.Flag) {
			if got := fmt.Sprintf("%T", fieldOf(c.flags, f.Name)); got != types[f.Value.Type()] && got != "<nil>" {
				t.Errorf("%T: --%s is of type %s, its field of %s", c.flags, f.Name, f.Value.Type(), got)
			}
			delete(unbound, reflect.TypeOf(c.flags).Elem().Name()+" --"+f.Name)
		})
	}
	for field := range unbound { // up and down bind theirs in UpFlags and DownFlags
		if !strings.HasSuffix(field, " --schedulable") && !strings.HasSuffix(field, " --host") {
			t.Errorf("no command has %s", field)
		}
	}
}

// TestImagesAndPreflightReadFlagsOfInit: these commands load a configuration like init and join, with the same rows.
func TestImagesAndPreflightReadFlagsOfInit(t *testing.T) {
	for command, as := range map[string]string{
		"config images list": "init", "config images pull": "init", "preflight init": "init", "preflight join": "join",
	} {
		for _, row := range flagTable() {
			if slices.Contains(row.commands, command) && !slices.Contains(row.commands, as) {
				t.Errorf("--%s of %q would not be applied: %q does not take it", row.Name, command, as)
			}
		}
	}
}

// TestBindLeavesOutUnknownFlags: a test of the commands finds a wrong name in a phase, so that no user does.
func TestBindLeavesOutUnknownFlags(t *testing.T) {
	fs := pflag.NewFlagSet("phase", pflag.ContinueOnError)
	BindPhase(fs, "init", []string{"no-such-flag", "discovery-file", "node-name", "kubeconfig-dir"}, nil)
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if want := []string{"kubeconfig-dir", "node-name"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestUpJoins(t *testing.T) {
	source := func(kind string) *Source {
		return &Source{Name: "f.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: " + kind + "\n")}
	}
	for name, c := range map[string]struct {
		flags UpFlags
		src   *Source
		want  bool
	}{
		"nothing":              {want: false},
		"an endpoint":          {flags: UpFlags{Join: JoinFlags{Endpoint: "192.0.2.11:6443"}}, want: true},
		"discovery by file":    {flags: UpFlags{Given: []string{"discovery-file"}}, want: true},
		"a JoinConfiguration":  {src: source("JoinConfiguration"), want: true},
		"an InitConfiguration": {src: source("InitConfiguration"), want: false},
		"both": {src: &Source{Name: "f.yaml", Data: slices.Concat(source("JoinConfiguration").Data, []byte("---\n"), source("ClusterConfiguration").Data)},
			want: false},
	} {
		if got := c.flags.Joins(c.src); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSplitUp(t *testing.T) {
	given := []string{"bundle", "cri-socket", "ignore-preflight-errors", "skip-phases", "token", "dry-run", "output"}
	for name, c := range map[string]struct {
		more       []string
		joins      bool
		node, host []string
		err        string
	}{
		"init": {
			more: []string{"schedulable", "network", "pod-network-cidr"},
			node: []string{"cri-socket", "ignore-preflight-errors", "token", "dry-run", "schedulable", "network", "pod-network-cidr"},
			host: []string{"bundle", "cri-socket", "ignore-preflight-errors", "dry-run"},
		},
		"join": {
			more: []string{"discovery-token-ca-cert-hash"}, joins: true,
			node: []string{"cri-socket", "ignore-preflight-errors", "token", "dry-run", "discovery-token-ca-cert-hash"},
			host: []string{"bundle", "cri-socket", "ignore-preflight-errors", "dry-run"},
		},
		"init with a flag of join": {
			more: []string{"control-plane"},
			err:  "--control-plane | HOST:PORT | --discovery-file",
		},
		"join with flags of init": {
			more: []string{"network", "schedulable"}, joins: true,
			err: "--network, --schedulable | first host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := UpFlags{Given: append(slices.Clone(given), c.more...), SkipPhases: []string{"prepare/swap"}}
			err := f.Split(c.joins, nil)
			if c.err != "" {
				fact.Error(t, err, fact.Of(c.err)...)
				return
			}
			if err != nil || f.Init.SkipPhases != nil || f.Join.SkipPhases != nil || !slices.Equal(f.Host.SkipPhases, []string{"swap"}) {
				t.Fatal(err, f)
			}
			node := f.Init.Given
			if c.joins {
				node = f.Join.Given
			}
			for part, pair := range map[string][2]Given{"node": {c.node, node}, "host": {c.host, f.Host.Given}} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Errorf("%s, -want +got:\n%s", part, diff)
				}
			}
		})
	}
}

// TestSplitUpReadsTheFile: the host is prepared with the file's settings for the node, which flags override or add to.
func TestSplitUpReadsTheFile(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		joins bool
		flags UpFlags
		want  Machine
	}{
		"init": {kind: "InitConfiguration", want: Machine{CRISocket: "unix:///run/of-file.sock", IgnorePreflightErrors: []string{"swap"}}},
		"join": {kind: "JoinConfiguration", joins: true, want: Machine{CRISocket: "unix:///run/of-file.sock", IgnorePreflightErrors: []string{"swap"}}},
		"flags": {
			kind: "InitConfiguration", flags: UpFlags{Join: JoinFlags{CRISocket: "/run/of-flag.sock", IgnorePreflightErrors: []string{"CNI"}}},
			want: Machine{CRISocket: "unix:///run/of-flag.sock", IgnorePreflightErrors: []string{"cni", "swap"}},
		},
		"another kind": {kind: "JoinConfiguration"},
	} {
		t.Run(name, func(t *testing.T) {
			src := &Source{Name: "up.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: " + c.kind +
				"\nnodeRegistration: {criSocket: /run/of-file.sock, ignorePreflightErrors: [Swap]}\n")}
			if err := c.flags.Split(c.joins, src); err != nil {
				t.Fatal(err)
			}
			n, err := LoadHost(c.flags.Host)
			if err != nil || n.CRISocket != c.want.CRISocket || !slices.Equal(n.IgnorePreflightErrors, c.want.IgnorePreflightErrors) {
				t.Errorf("%q, %q, %v, want %q, %q", n.CRISocket, n.IgnorePreflightErrors, err, c.want.CRISocket, c.want.IgnorePreflightErrors)
			}
		})
	}
}

// TestUpPassesValues: each part gets the value of a flag, and a flag of several parts gives it to all of them.
func TestUpPassesValues(t *testing.T) {
	var f UpFlags
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	Bind(fs, "up", &f)
	args := []string{"--cri-socket=/s", "--config=c", "--schedulable", "--pod-network-cidr=p", "--token-file=t", "--bundle=b", "--skip-phases=x"}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := f.Split(false, nil); err != nil {
		t.Fatal(err)
	}
	got := []any{f.ConfigFile, f.SkipPhases, f.Join.CRISocket, f.Init.CRISocket, f.Host.CRISocket, f.Init.ConfigFile, f.Join.ConfigFile,
		f.Init.Schedulable, f.Init.PodNetworkCIDR, f.Join.TokenFile, f.Host.Bundle, f.Init.SkipPhases, f.Host.Swap}
	want := []any{"c", []string{"x"}, "/s", "/s", "/s", "c", "c", true, "p", "t", "b", []string(nil), "off"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUpTakesAllFlags: up and down have each flag of their parts, once.
func TestUpTakesAllFlags(t *testing.T) {
	for command, parts := range map[string][]string{"up": {"init", "join", "host prepare"}, "down": {"reset", "host reset"}} {
		have := pflag.NewFlagSet(command, pflag.ContinueOnError)
		Bind(have, command, nil)
		for _, part := range parts {
			want := pflag.NewFlagSet(part, pflag.ContinueOnError)
			Bind(want, part, nil)
			want.VisitAll(func(row *pflag.Flag) {
				if got := have.Lookup(row.Name); got == nil || got.Value.Type() != row.Value.Type() {
					t.Errorf("%s has no --%s as %s has it", command, row.Name, part)
				}
			})
		}
	}
}

// TestDownWithHost: the leftovers of the node's network go, too.
func TestDownWithHost(t *testing.T) {
	f := DownFlags{Given: []string{"force"}, Reset: ResetFlags{Force: true}}
	if f.Split(); f.Reset.Network || !f.Reset.Force {
		t.Errorf("down: %+v", f)
	}
	f.Reset.Host = true
	if f.Split(); !f.Reset.Network || !f.Reset.Given.Has("network") {
		t.Errorf("down --host: %+v", f)
	}
}

// TestSchedulable: the flag equals `taints: []` in a file.
func TestSchedulable(t *testing.T) {
	n, _, err := LoadInit(t.Context(), nil, InitFlags{Given: []string{"schedulable"}, Schedulable: true}, testOptions())
	if err != nil || !n.Schedulable || len(n.Taints) != 0 {
		t.Errorf("%v, %v, %v", n.Schedulable, n.Taints, err)
	}
}

// TestVersionOfBundle: the bundle's version is the default; the user's choice takes precedence.
func TestVersionOfBundle(t *testing.T) {
	opts := testOptions()
	opts.KubernetesVersion = "v1.36.4"
	for want, flags := range map[string]InitFlags{"v1.36.4": {}, "v1.37.1": {Given: []string{"kubernetes-version"}, KubernetesVersion: "v1.37.1"}} {
		if n, _, err := LoadInit(t.Context(), nil, flags, opts); err != nil || n.Cluster.KubernetesVersion != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// hostFields are LoadHost's results from the command line.
type hostFields struct {
	CRISocket  string
	SkipPhases []string
	Ignore     []string
	DryRun     bool
}

func TestLoadHost(t *testing.T) {
	const socket = "unix:///run/crio/crio.sock"
	for name, test := range map[string]struct {
		flags HostFlags
		want  hostFields
	}{
		"nothing":            {},
		"a socket":           {HostFlags{CRISocket: socket}, hostFields{CRISocket: socket}},
		"a path":             {HostFlags{CRISocket: "/run/crio/crio.sock"}, hostFields{CRISocket: socket}},
		"names in any case":  {HostFlags{IgnorePreflightErrors: []string{"CRI", "cri", " Swap ", ""}}, hostFields{Ignore: []string{"cri", "swap"}}},
		"phases and dry run": {HostFlags{SkipPhases: []string{"images"}, DryRun: true}, hostFields{SkipPhases: []string{"images"}, DryRun: true}},
		"swap off":           {flags: HostFlags{Given: []string{"swap"}, Swap: "off"}},
		"swap kept":          {flags: HostFlags{Given: []string{"swap"}, Swap: "keep"}},
		"a command without":  {flags: HostFlags{Swap: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := LoadHost(test.flags)
			if err != nil {
				t.Fatal(err)
			}
			got := hostFields{m.CRISocket, m.SkipPhases, m.IgnorePreflightErrors, m.DryRun}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if m.Paths.Kubelet != "/var/lib/kubelet" || m.Timeouts != DefaultLimits() {
				t.Errorf("the kubelet's directory %q, limits %+v", m.Paths.Kubelet, m.Timeouts)
			}
		})
	}
}

func TestLoadHostRefuses(t *testing.T) {
	for _, swap := range []string{"on", "", "OFF", "no"} {
		_, err := LoadHost(HostFlags{Given: []string{"swap"}, Swap: swap})
		fact.Error(t, err, "--swap", "off", "keep", strconv.Quote(swap))
	}
	for _, flag := range []string{"digest", "public-key"} {
		_, err := LoadHost(HostFlags{Given: []string{flag}, Bundle: "b.tar", PublicKeys: []string{}})
		fact.Error(t, err, "--"+flag, "empty")
	}
}

func TestHostFlags(t *testing.T) {
	for command, want := range map[string][]string{
		hostPrepare: {"allow-downgrade", "bundle", "cri-socket", "digest", "dry-run", "ignore-preflight-errors", "public-key", "registry-mirror", "skip-phases", "swap"},
		hostReset:   {"dry-run", "ignore-preflight-errors", "skip-phases"},
	} {
		var f HostFlags
		fs := pflag.NewFlagSet(command, pflag.ContinueOnError)
		Bind(fs, command, &f)
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

// TestTrialFlagsComplete: without patches, there's no directory of them.
func TestTrialFlagsComplete(t *testing.T) {
	for want, flags := range map[string]TrialFlags{"/srv/patches": {Patches: "/srv/patches", IgnorePreflightErrors: []string{"StaticPodEdits"}}, "": {}} {
		self := &JoinConfiguration{}
		if flags.Complete(self); !slices.Equal(self.NodeRegistration.IgnorePreflightErrors, flags.IgnorePreflightErrors) || (self.Patches == nil) != (want == "") ||
			want != "" && self.Patches.Directory != want {
			t.Errorf("%q: %+v", want, self)
		}
	}
}
