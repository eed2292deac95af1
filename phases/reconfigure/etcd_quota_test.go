// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// sized are members whose databases have the given sizes, in bytes.
type sized struct {
	phasetest.FakeMembers
	sizes []int64
	err   error
}

func (s *sized) Health(context.Context) ([]etcd.Health, error) {
	var all []etcd.Health
	for i, size := range s.sizes {
		m := etcd.Member{Name: fmt.Sprintf("cp-%d", i+1), PeerURL: fmt.Sprintf("https://192.0.2.%d:2380", i+11)}
		if i == 0 {
			m.PeerURL = phasetest.OwnPeer
		}
		all = append(all, etcd.Health{Member: m, Answers: true, Status: etcd.Status{Version: "3.6.4", Leader: 1, Size: size}})
	}
	return all, s.err
}

// withQuota changes etcd's quota, and runs only the preflight.
func withQuota(t *testing.T, s *phasetest.Stage, local string) *Run {
	t.Helper()
	src := &config.Source{Name: "change.yaml", Data: []byte(ofCluster + "etcd: {local: {" + local + "}}\n")}
	c, _, err := loaderOn(s).Load(t.Context(), src)
	phasetest.Fatal(t, err)
	s.Config = c.Node
	return New(c, "/usr/bin/slipway")
}

func quotaArg(value string) string {
	return "extraArgs: [{name: quota-backend-bytes, value: \"" + value + "\"}]"
}

// TestQuota: etcd's quota doesn't go below the size of any member's database, by a flag or by a variable. One that rises, or that stays,
// is nobody's business.
func TestQuota(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		local string
		sizes []int64
		err   error
		want  fault.Severity
	}{
		"meant MiB":               {quotaArg("8192"), []int64{300 * mib}, nil, fault.Error},
		"one of three":            {quotaArg("209715200"), []int64{mib, 300 * mib, mib}, nil, fault.Error},
		"just its size":           {quotaArg("314572800"), []int64{300 * mib}, nil, fault.Error},
		"hexadecimal":             {quotaArg("0x100"), []int64{300 * mib}, nil, fault.Error},
		"a variable":              {"extraEnvs: [{name: ETCD_QUOTA_BACKEND_BYTES, value: \"8192\"}]", []int64{300 * mib}, nil, fault.Error},
		"with room":               {quotaArg("419430400"), []int64{300 * mib}, nil, ""},
		"higher than the default": {quotaArg("8589934592"), []int64{3 << 30}, nil, ""},
		"none":                    {quotaArg("-1"), []int64{3 << 30}, nil, ""},
		"the default":             {quotaArg("0"), []int64{3 << 30}, nil, ""},
		"another flag":            {"extraArgs: [{name: v, value: \"4\"}]", []int64{3 << 30}, nil, ""},
		"a dry run":               {quotaArg("8192"), nil, nil, fault.Unasked},
		"no member answers":       {quotaArg("8192"), nil, errors.New("away"), fault.Error},
		"no member says":          {quotaArg("8192"), []int64{0, 0}, nil, fault.Error},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			s.Etcd = &sized{sizes: test.sizes, err: test.err}
			found := withQuota(t, s, test.local).checkQuota(t.Context(), s.Env)
			if len(found) == 0 && test.want == "" {
				return
			}
			if len(found) != 1 || found[0].Severity != test.want {
				t.Fatalf("found %v", found)
			}
			if test.want == fault.Error && slices.Max(append(test.sizes, 0)) > 0 {
				fact.In(t, found[0].Message+found[0].Remedy, "--quota-backend-bytes", "`slipway etcd defrag`")
			}
		})
	}
}

// TestQuotaOfSilentEtcd: the size of this host's database counts if etcd doesn't say any. If there's none to see, nobody knows.
func TestQuotaOfSilentEtcd(t *testing.T) {
	const db = "/var/lib/etcd/member/snap/db"
	s := live(t)
	s.Etcd = &sized{err: errors.New("away")}
	found := withQuota(t, s, quotaArg("314572800")).checkQuota(t.Context(), s.Env)
	if len(found) != 1 || found[0].Severity != fault.Error {
		t.Fatalf("without a database: %v", found)
	}
	fact.In(t, found[0].Message, "314572800", "away", db)
	s.Put(t, db, "")
	for size, severity := range map[int64]fault.Severity{100 << 20: "", 299 << 20: fault.Error} {
		phasetest.Fatal(t, os.Truncate(s.Root+db, size))
		found := withQuota(t, s, quotaArg("314572800")).checkQuota(t.Context(), s.Env)
		if len(found) == 0 && severity == "" {
			continue
		}
		if len(found) != 1 || found[0].Severity != severity {
			t.Fatalf("of %d bytes: %v", size, found)
		}
		fact.In(t, found[0].Message+found[0].Remedy, db, strconv.FormatInt(size, 10), "`slipway etcd defrag`")
	}
}

// TestQuotaBesideSidecar: the variables are those of etcd's own container, wherever that is.
func TestQuotaBesideSidecar(t *testing.T) {
	s := live(t)
	s.EditPod(t, "etcd", "  containers:\n", "  containers:\n  - {name: side, image: 'side:1', env: [{name: ETCD_QUOTA_BACKEND_BYTES, value: \"4096\"}]}\n")
	before, wanted, err := withQuota(t, s, "extraEnvs: [{name: ETCD_QUOTA_BACKEND_BYTES, value: \"8192\"}]").etcds(s.Env)
	phasetest.Fatal(t, err)
	if now, next := manifests.EtcdQuota(before), manifests.EtcdQuota(wanted); now != 2<<30 || next != 8192 {
		t.Errorf("the quota goes from %d to %d", now, next)
	}
}

// TestLoweredQuota: nothing changes; `all` doesn't mean this check. A change that's taken back doesn't lower it either.
func TestLoweredQuota(t *testing.T) {
	s := live(t)
	members := &sized{FakeMembers: phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}, sizes: []int64{300 << 20}}
	s.Etcd = members
	before := files(t, s)
	r := withQuota(t, s, quotaArg("8192"))
	s.Config = s.Config.With(func(n *config.Node) { n.IgnorePreflightErrors = []string{"all"} })
	fact.Error(t, step.Run(t.Context(), s.Env, r.Phases(), step.Options{}), fault.EtcdQuota, "cp-1", "314572800")
	if after := files(t, s); after[apiServer] != before[apiServer] || after["/etc/kubernetes/manifests/etcd.yaml"] != before["/etc/kubernetes/manifests/etcd.yaml"] {
		t.Error("it has changed static Pods")
	}
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, withQuota(t, s, quotaArg("8589934592")).Phases(), step.Options{}))
	members.sizes[0] = 3 << 30
	fact.Error(t, takeBack(t, s), fault.EtcdQuota, "cp-1")
	if !strings.Contains(s.Get(t, "/etc/kubernetes/manifests/etcd.yaml"), "--quota-backend-bytes=8589934592") {
		t.Error("it has taken the quota back")
	}
}
