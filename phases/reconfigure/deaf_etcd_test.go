// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	etcdPod    = "/etc/kubernetes/manifests/etcd.yaml"
	onLoopback = "--listen-client-urls=https://127.0.0.1:2379\n"
)

// deafEtcd serves no clients once the change has made it listen elsewhere.
type deafEtcd struct {
	phasetest.FakeMembers
	deaf func() bool
}

func (d *deafEtcd) Health(ctx context.Context) ([]etcd.Health, error) {
	all, err := d.FakeMembers.Health(ctx)
	if d.deaf() {
		return nil, errors.New("192.0.2.11:2379: connection refused")
	}
	return all, err
}

// TestDeafEtcdGoesBack: an etcd that runs and serves no clients stops for its former static Pod if no other member needs it. If that's not
// known, the remedy says how to put it back regardless.
func TestDeafEtcdGoesBack(t *testing.T) {
	own := etcd.Member{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer}
	three := []etcd.Member{own, {ID: 2, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}, {ID: 3, Name: "cp-3", PeerURL: "https://192.0.2.13:2380"}}
	for name, test := range map[string]struct {
		members []etcd.Member
		silent  bool // to its peers, too
		dies    bool // cp-3, with the change
		ignore  string
		stays   bool
	}{
		"alone":                            {members: three[:1]},
		"alone, silent":                    {members: three[:1], silent: true, stays: true},
		"one of three":                     {members: three},
		"one of three, another is down":    {members: three, dies: true, stays: true},
		"one of three, silent":             {members: three, silent: true, stays: true},
		"one of three, silent, regardless": {members: three, silent: true, ignore: "EtcdQuorum"},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			before := files(t, s)
			r := changeTo(t, s, ofCluster+"etcd: {local: {extraArgs: [{name: listen-client-urls, value: \"https://127.0.0.1:2379\"}]}}\n")
			s.Config.Timeouts.EtcdAPICall = 50 * time.Millisecond
			if test.ignore != "" {
				s.Config.IgnorePreflightErrors = []string{test.ignore}
			}
			changed := func() bool { return strings.Contains(s.Get(t, etcdPod), onLoopback) }
			members := &deafEtcd{FakeMembers: phasetest.FakeMembers{List: test.members, TellsPeers: !test.silent}, deaf: changed}
			s.Etcd = members
			s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
				host.RestartUnit: func(context.Context, string) error {
					if !changed() {
						return nil
					}
					if members.Down = map[string]error{"cp-1": errors.New("connection refused")}; test.dies {
						members.Down["cp-3"] = errors.New("no route")
					}
					return errors.New("it does not work")
				},
			}
			err := step.Run(t.Context(), s.Env, r.Phases(), step.Options{})
			diff := cmp.Diff(before, files(t, s))
			if !test.stays {
				if back := (*node.RolledBackError)(nil); !errors.As(err, &back) || diff != "" || state(t, s) != trial.Reverted {
					t.Errorf("the change is %q: %v; files:\n%s", state(t, s), err, diff)
				}
				return
			}
			if !changed() || state(t, s) != trial.Reverting {
				t.Errorf("the change is %q: %v", state(t, s), err)
			}
			fact.In(t, fault.Remedy(err), "`systemctl stop slipway-watch`", "`slipway reconfigure node --ignore-preflight-errors=EtcdQuorum`")
		})
	}
}
