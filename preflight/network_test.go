// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// changing is a port and a unit that change between looks, as they do while systemd restarts the kubelet.
type changing struct {
	held    []bool          // at each attempt to listen; the last stays
	holders []*host.Process // at each look at the holder; the last stays
	pids    []int           // of the unit
}

func (c changing) on(h *fakeHost) {
	h.On.PortFree = func(string, int) error {
		if next(&c.held) {
			return errors.Wrap(unix.EADDRINUSE, "port 10250 is in use")
		}
		return nil
	}
	h.On.PortHolder = func(int) (host.Process, bool) {
		if p := next(&c.holders); p != nil {
			return *p, true
		}
		return host.Process{}, false
	}
	h.On.Unit = func(context.Context, string) (host.UnitState, error) {
		return host.UnitState{LoadState: "loaded", MainPID: uint32(next(&c.pids))}, nil
	}
}

func next[T any](values *[]T) T {
	v := (*values)[0]
	if len(*values) > 1 {
		*values = (*values)[1:]
	}
	return v
}

func TestPortOfAKubeletThatIsRestarted(t *testing.T) {
	before, after := &host.Process{PID: 7, Name: kubelet}, &host.Process{PID: 9, Name: kubelet}
	for name, tt := range map[string]struct {
		host changing
		want []string
	}{
		"gone between the attempt and the look": {host: changing{
			held: []bool{true, false}, holders: []*host.Process{nil}, pids: []int{7}}},
		"gone, and back again": {host: changing{
			held: []bool{true}, holders: []*host.Process{nil, nil, after}, pids: []int{9}},
			want: []string{"[NOTE ] | kubelet | process 9 | port 10250"}},
		"another process when the unit is read": {host: changing{
			held: []bool{true}, holders: []*host.Process{before, after}, pids: []int{9}},
			want: []string{"[NOTE ] | kubelet | process 9 | port 10250"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.earlier("kube-apiserver")
			tt.host.on(s.fakeHost)
			got := portFree(s.node, portUse{"", 10250, kubelet})(t.Context(), s.fakeHost)
			expect(t, got, tt.want...)
		})
	}
}

// TestPortOfRoot: other users may not listen below 1024, which says nothing about the port.
func TestPortOfRoot(t *testing.T) {
	s := newScene(t)
	s.On.PortFree = func(string, int) error { return errors.Wrap(unix.EACCES, "port 443") }
	expect(t, portFree(s.node, portUse{"", 443, "kube-apiserver"})(t.Context(), s.fakeHost), "[SKIPPED ] | root | port 443")
}

// TestPortsOfAddresses: a port held on another address doesn't matter.
func TestPortsOfAddresses(t *testing.T) {
	s := newScene(t)
	c := &s.node.Cluster
	c.APIServer.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "192.0.2.11"}}
	c.Scheduler.ExtraArgs = []config.Arg{{Name: "bind-address", Value: "::"}}
	for _, port := range []string{"6443", "10259", "10257", "10250", "2379", "2380"} {
		s.found("Port-" + port)
	}
	own := s.node.AdvertiseAddress.String()
	want := []string{"192.0.2.11:6443", ":10259", "127.0.0.1:10257", ":10250", net.JoinHostPort(own, "2379"), net.JoinHostPort(own, "2380")}
	if diff := cmp.Diff(want, s.Listened); diff != "" {
		t.Error(diff)
	}
}

func TestFlannel(t *testing.T) {
	for _, r := range flannelRows() {
		r.run(t)
	}
}

// flannelRows are hosts on which `init --network flannel` runs.
func flannelRows() []row {
	const (
		bridge4 = "/proc/sys/net/bridge/bridge-nf-call-iptables"
		module  = "[ERROR Flannel] | br_netfilter | flannel | " +
			"`modprobe br_netfilter` | /etc/modules-load.d/k8s.conf | `slipway host prepare`"
	)
	with := func(change func(s scene)) func(s scene) {
		return func(s scene) {
			s.node.NetworkAddOn.Name = config.Flannel
			s.node.Cluster.Networking.PodSubnet = "10.244.0.0/16"
			s.put(bridge4, "1\n")
			change(s)
		}
	}
	dual := func(s scene) {
		s.node.Cluster.Networking.PodSubnet = "10.244.0.0/16,fd00:10:244::/56"
		s.put("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "1\n")
	}
	held := func(by string) func(s scene) {
		return func(s scene) { s.Has.Held[8081] = host.Process{Name: by, PID: 7} }
	}
	// plugins puts network plugins into a directory, and makes the runtime look in others.
	plugins := func(dir string, looksIn ...string) func(s scene) {
		return with(func(s scene) {
			s.Has.Runtime.CNIPluginDirs = looksIn
			for _, name := range []string{"bridge", "host-local", "portmap"} {
				s.put(dir+"/"+name, "")
			}
		})
	}
	return []row{
		{"Flannel", "plugins", plugins("/opt/cni/bin", "/opt/cni/bin/"), nil},
		{"Flannel", "plugins in two directories", plugins("/usr/lib/cni", "/usr/lib/cni", "/opt/cni/bin"), nil},
		{"Flannel", "plugins of a runtime that looks elsewhere", plugins("/usr/lib/cni", "/usr/lib/cni"),
			[]string{"[ERROR Flannel] | containerd | /usr/lib/cni | /opt/cni/bin | bin_dir | bin_dirs"}},
		{"Flannel", "plugins elsewhere, with flannel's own", func(s scene) {
			plugins("/usr/lib/cni", "/usr/lib/cni")(s)
			s.put("/usr/lib/cni/flannel", "")
		}, nil},
		{"Flannel", "plugins by a symlink", func(s scene) {
			plugins("/usr/lib/cni", "/usr/lib/cni")(s)
			s.mkdir("/opt/cni")
			if err := os.Symlink("/usr/lib/cni", s.Root+"/opt/cni/bin"); err != nil {
				s.t.Fatal(err)
			}
		}, nil},
		{"Flannel", "no plugins", with(func(s scene) { s.Has.Runtime.CNIPluginDirs = []string{"/opt/cni/bin"} }),
			[]string{"[ERROR Flannel] | containerd | /opt/cni/bin | bridge | host-local | portmap | `slipway host prepare --bundle FILE`"}},
		{"Flannel", "no runtime", with(func(s scene) { s.Fail["RuntimeInfo"] = errors.New("no socket") }), nil},
		{"Flannel", "all is there", with(func(scene) {}), nil},
		{"Flannel", "no module", with(func(s scene) { s.remove(bridge4) }), []string{module}},
		{"Flannel", "no module, and none needed", with(func(s scene) {
			s.remove(bridge4)
			s.node.KubeProxy.Mode = "nftables"
		}), nil},
		{"Flannel", "no module, and none to load", with(func(s scene) {
			s.modular("6.12.1-amd64", "vxlan")
			s.remove(bridge4)
		}), []string{"[ERROR Flannel] | br_netfilter | flannel | kernel-modules-extra-$(uname -r)"}},
		{"Flannel", "VXLAN to load", with(func(s scene) { s.modular("6.12.1-amd64", "vxlan") }), nil},
		{"Flannel", "no VXLAN", with(func(s scene) { s.modular("6.12.1-amd64", "br_netfilter") }),
			[]string{"[ERROR Flannel] | vxlan | flannel | linux-modules-extra-raspi"}},
		{"Flannel", "VXLAN not to be told", with(func(s scene) { s.remove("/proc/config.gz") }), nil},
		{"Flannel", "no default route", with(func(s scene) { s.Has.Default = nil }),
			[]string{"[ERROR Flannel] | IPv4 | flannel | " +
				"`ip route add default via ADDRESS` | IPv4"}},
		{"Flannel", "dual stack", with(func(s scene) {
			dual(s)
			s.Has.Default = append(s.Has.Default, netip.MustParseAddr("2001:db8::10"))
		}), nil},
		{"Flannel", "dual stack with one default route", with(dual),
			[]string{"[ERROR Flannel] | IPv6 | flannel | " +
				"`ip route add default via ADDRESS` | IPv6"}},
		{"Flannel", "routes that cannot be read", with(func(s scene) { s.Has.Default, s.Fail["DefaultAddress"] = nil, errors.New("no netlink") }),
			[]string{"[WARNING Flannel] | IPv4 | no netlink | `ip route`"}},
		{"Flannel", "a foreign program on its port", with(held("nginx")),
			[]string{"[ERROR Flannel] | port 8081 | flannel | nginx | process 7"}},
		{"Flannel", "networks that come after its own", with(func(s scene) {
			s.put(config.FlannelPluginsPath, "{}")
			s.put("/etc/cni/net.d/10-lab.conflist", "{}")
			s.put("/etc/cni/net.d/05-notes.txt", "")
		}), nil},
		{"Flannel", "a network that comes before its own", with(func(s scene) { s.put("/etc/cni/net.d/10-calico.conflist", "{}") }),
			[]string{"[ERROR Flannel] | /etc/cni/net.d/10-calico.conflist | flannel | 10-flannel.conflist | " +
				"/etc/cni/net.d | --network flannel"}},
		{"Flannel", "networks that cannot be seen", with(func(s scene) { s.unreadable("/etc/cni/net.d") }),
			[]string{"[WARNING Flannel] | flannel | /etc/cni/net.d | permission denied"}},
		{"Flannel", "an earlier run's flannel", with(held("flanneld")), []string{"[NOTE Flannel] | flannel | process 7"}},
	}
}
