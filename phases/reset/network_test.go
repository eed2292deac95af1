// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// newNetworkScene is a host with flannel and others' networks, but not a node.
func newNetworkScene(t *testing.T, more map[string]string) *resetScene {
	t.Helper()
	s := newResetScene(t, flannelOwn)
	for _, path := range []string{"/etc/kubernetes", "/var/lib/etcd", "/var/lib/kubelet", "/usr/libexec/kubernetes", phasetest.KubeletActive, fakeMember, phasetest.FakePods} {
		if err := os.RemoveAll(filepath.Join(s.root, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := lay(s.root, more); err != nil {
		t.Fatal(err)
	}
	s.before = slices.DeleteFunc(s.before, func(path string) bool { return path == phasetest.FakePods+"/" })
	s.Config.Reset.Network = true
	return s
}

func (s *resetScene) has(path string) bool {
	_, err := os.Lstat(filepath.Join(s.root, path))
	return err == nil
}

func (s *resetScene) remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(filepath.Join(s.root, path)); err != nil {
		t.Fatal(err)
	}
}

// TestResetLeavesNetworksOfOthers: on a host that was never a node, these belong to other tools.
func TestResetLeavesNetworksOfOthers(t *testing.T) {
	for name, spoil := range map[string]func(s *resetScene){
		"no sign": func(s *resetScene) { s.remove(t, config.FlannelPluginsPath) },
		"flannel's plugins as others set them": func(s *resetScene) {
			_ = os.WriteFile(filepath.Join(s.root, config.FlannelPluginsPath), []byte(`{"name": "cbr0"}`), 0o600)
		},
		"what is ready for a node": func(s *resetScene) {
			s.remove(t, config.FlannelPluginsPath)
			_ = lay(s.root, map[string]string{"/etc/kubernetes/pki/ca.crt": "", "/etc/kubernetes/manifests/.keep": ""})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newNetworkScene(t, nil)
			spoil(s)
			for range 2 {
				said := s.reset(t)
				phasetest.Once(t, said, phasetest.Line{"[WARNING]", "network stays"})
				fact.In(t, said, "network interface cni0")
				for _, path := range []string{phasetest.FakeLeftovers + "/cni0", phasetest.FakeLeftovers + "/cni-podman0", flannelSubnets, "/var/lib/cni/networks/cbr0/10.244.0.2", "/var/lib/cni/networks/podman/10.88.0.2"} {
					if !s.has(path) {
						t.Errorf("%s is gone", path)
					}
				}
			}
		})
	}
}

// TestResetNetworkOfFormerNode: a former node loses its own network, and keeps other tools', however often reset runs.
func TestResetNetworkOfFormerNode(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		left  []string
	}{
		"flannel's plugins are Slipway's": {},
		"Slipway prepared it":             {map[string]string{thisnode.PreparedPath: "{}"}, []string{"/var/lib/slipway/", thisnode.PreparedPath}},
		"kubeadm has reset it":            {map[string]string{config.DefaultCertificatesDir + "/": ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newNetworkScene(t, tt.files)
			if tt.files != nil {
				s.remove(t, config.FlannelPluginsPath)
				for _, path := range []string{"networks/cbr0/10.244.0.2", "networks/cbr0", "results/cbr0-1-eth0", "cache/results/cbr0-1-eth0", "cache/results", "results/cni-loopback-1-lo"} {
					s.remove(t, filepath.Join(pluginState, path)) // nothing says whose these are
				}
			}
			for range 2 {
				s.reset(t)
				s.isAsBefore(t, tt.left...)
			}
			if s.has("/run/flannel") {
				t.Error("/run/flannel is left")
			}
		})
	}
}

// TestResetNetworkInUse: another tool has made this host a node after it was reset.
func TestResetNetworkInUse(t *testing.T) {
	s := newNetworkScene(t, nil)
	before := files(t, s.root)
	s.host.On.PortHolder = func(int) (host.Process, bool) { return host.Process{PID: 7, Name: "k3s-agent"}, true }
	phasetest.Once(t, s.reset(t), phasetest.Line{"[WARNING]", "network stays", "k3s-agent (process 7)", "port 10250"})
	if after := files(t, s.root); !slices.Equal(before, after) {
		t.Errorf("left %v", after)
	}
}

// TestResetKeepsOtherToolsNetworks: a node whose only network is another tool's.
func TestResetKeepsOtherToolsNetworks(t *testing.T) {
	for name, conf := range map[string]string{
		"87-podman.conflist":   usersOwn["/etc/cni/net.d/87-podman.conflist"],
		"nerdctl-net.conflist": `{"name": "net", "plugins": [{"type": "bridge", "bridge": "br-other"}]}`,
		"bridge.conflist":      `{"name": "bridge", "plugins": [{"type": "bridge", "bridge": "nerdctl0"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newResetScene(t)
			for _, e := range s.host.Names(pluginConfig) {
				s.remove(t, filepath.Join(pluginConfig, e))
			}
			if err := lay(s.root, map[string]string{filepath.Join(pluginConfig, name): conf, phasetest.FakeLeftovers + "/nerdctl0/": "", "/var/lib/cni/networks/net/x": "", "/var/lib/cni/networks/bridge/x": ""}); err != nil {
				t.Fatal(err)
			}
			before := len(s.host.Names(phasetest.FakeLeftovers)) + len(s.host.Names("/var/lib/cni/networks"))
			s.Config.Reset.Network = true
			for range 2 {
				s.reset(t)
			}
			if after := len(s.host.Names(phasetest.FakeLeftovers)) + len(s.host.Names("/var/lib/cni/networks")); after != before {
				t.Errorf("%d networks and interfaces of %d are left", after, before)
			}
		})
	}
}

// TestResetNamesEditedFlannel: edited settings stay, and are named.
func TestResetNamesEditedFlannel(t *testing.T) {
	s := newResetScene(t, flannelOwn, map[string]string{config.FlannelPluginsPath: strings.Replace(manifests.FlannelPlugins, "true", "false", 1)})
	s.Config.Reset.Network = true
	phasetest.Once(t, s.reset(t), phasetest.Line{"[WARNING]", "keeping " + config.FlannelPluginsPath})
	s.isAsBefore(t, config.FlannelPluginsPath)
}

// TestResetNetworkLater: the network is still known when the node's files are gone, even if somebody has removed its own.
func TestResetNetworkLater(t *testing.T) {
	s := newResetScene(t, networkOwn)
	s.reset(t)
	s.remove(t, "/etc/cni/net.d/10-pods.conflist")
	s.before = slices.DeleteFunc(s.before, func(path string) bool { return path == "/etc/cni/net.d/10-pods.conflist" })
	s.Config.Reset.Network = true
	for range 2 {
		s.reset(t)
		s.isAsBefore(t)
	}
	if s.has(networkPath) {
		t.Errorf("%s is left", networkPath)
	}
}
