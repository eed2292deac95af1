// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestWithNodeIP(t *testing.T) {
	for line, want := range map[string]string{
		`KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.1 --v=2"`:             `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.9 --v=2"`,
		`KUBELET_KUBEADM_ARGS="--node_ip=192.0.2.1"`:                   `KUBELET_KUBEADM_ARGS="--node_ip=192.0.2.9"`,
		`KUBELET_KUBEADM_ARGS="--v=2"`:                                 `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.9 --v=2"`,
		`KUBELET_KUBEADM_ARGS=""`:                                      `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.9"`,
		`KUBELET_KUBEADM_ARGS="--v=2 --node-ip=192.0.2.1"`:             `KUBELET_KUBEADM_ARGS="--v=2 --node-ip=192.0.2.9"`,
		`KUBELET_KUBEADM_ARGS="--node-ip 192.0.2.1 --v=2"`:             `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.9 --v=2"`,
		`KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.1 --node-ip fd00::1"`: `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.9 --node-ip=192.0.2.9"`,
		`KUBELET_KUBEADM_ARGS=--v=2`:                                   `KUBELET_KUBEADM_ARGS=--node-ip=192.0.2.9 --v=2`,
		`KUBELET_KUBEADM_ARGS=`:                                        `KUBELET_KUBEADM_ARGS=--node-ip=192.0.2.9`,
		`KUBELET_KUBEADM_ARGS='--v=2'`:                                 `KUBELET_KUBEADM_ARGS='--node-ip=192.0.2.9 --v=2'`,
		"# --node-ip=192.0.2.1\nKUBELET_KUBEADM_ARGS=\"--v=2\"":        "# --node-ip=192.0.2.1\nKUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.9 --v=2\"",
	} {
		if got, err := withNodeIP(line, "192.0.2.9"); got != want || err != nil {
			t.Errorf("%s became %s, %v", line, got, err)
		}
	}
}

// TestNodeIPWithoutEffect: a kubelet that wouldn't get the address isn't restarted for it, unless an administrator's file has it.
func TestNodeIPWithoutEffect(t *testing.T) {
	for name, hurt := range map[string]func(*phasetest.Stage){
		"no file":     func(s *phasetest.Stage) { s.Remove(t, flagsEnv) },
		"no variable": func(s *phasetest.Stage) { s.Put(t, flagsEnv, "# nothing\n") },
		"no value":    func(s *phasetest.Stage) { s.Put(t, flagsEnv, `KUBELET_KUBEADM_ARGS="--node-ip --v=2"`) },
	} {
		for _, move := range []Move{{NodeIP: next}, {To: toNext.To, NodeIP: next}} {
			s, _ := single(t)
			hurt(s)
			err := run(t, s, move)
			if err == nil {
				t.Fatalf("%s: no error", name)
			}
			if did := s.FakeHost.Orders(); len(did) > 0 {
				t.Errorf("%s: did %q", name, did)
			}
			fact.In(t, s.Said.String()+err.Error(), flagsEnv, "--node-ip="+next)
		}
	}
	s, _ := single(t)
	s.Remove(t, flagsEnv)
	s.Put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--node-ip="+next+"\n")
	phasetest.Fatal(t, run(t, s, Move{NodeIP: next}))
}

// TestNodeIPInUnit: systemd reads a drop-in with the next address before the kubelet restarts, also if an earlier run has written it.
func TestNodeIPInUnit(t *testing.T) {
	const dropIn = "/etc/systemd/system/kubelet.service.d/20-address.conf"
	for name, at := range map[string]string{"to write": former, "written": next} {
		for _, move := range []Move{toNext, {NodeIP: next}} {
			s, _ := single(t)
			s.Put(t, dropIn, "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--node-ip="+at+"\n")
			if move.NodeIP != "" && at == former { // nothing replaces it, as the control plane's address stays
				continue
			}
			phasetest.Fatal(t, run(t, s, move))
			fact.In(t, s.Get(t, dropIn), "--node-ip="+next)
			did := s.FakeHost.Orders()
			reload := slices.Index(did, "reload")
			starts := slices.IndexFunc(did, func(order string) bool { return strings.HasSuffix(order, "start kubelet.service") })
			if reload < 0 || starts >= 0 && starts < reload {
				t.Errorf("%s, %+v: did %q", name, move, did)
			}
		}
	}
	s, _ := single(t)
	phasetest.Fatal(t, run(t, s, toNext))
	if did := s.FakeHost.Orders(); slices.Contains(did, "reload") {
		t.Errorf("did %q", did)
	}
}
