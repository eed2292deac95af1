// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestEtcdRecover loses two of three members, at the same moment, while 50 clients write. The survivor's data becomes a new
// cluster's, which has every write that a client was told of, and has nothing to do with the lost members when they come back.
func TestEtcdRecover(t *testing.T) {
	pki := newEtcdPKI(t)
	all := []struct {
		release string
		leads   bool // the survivor
		end     syscall.Signal
	}{{"", true, syscall.SIGTERM}, {"", false, syscall.SIGKILL}, {"1.36", true, syscall.SIGKILL}}
	for _, i := range tier.Sample(t, 1, len(all)) {
		row := all[i]
		t.Run(fmt.Sprintf("%s-leads-%t", row.release, row.leads), func(t *testing.T) {
			t.Parallel()
			survivor, lost := threeEtcds(t, pki, row.release, row.leads)
			w := survivor.writes(50)
			w.await(500)
			for _, m := range lost {
				m.ends(syscall.SIGKILL)
			}
			survivor.losesQuorum()
			told := w.stop()
			before := survivor.cluster()
			survivor.ends(row.end)
			survivor.recovers()
			survivor.hasAll(told)
			survivor.ignores(lost, before, told)
			survivor.grows(t, pki, row.release, survivor.everything())
		})
	}
}

// threeEtcds starts a cluster. One of its members is to survive.
func threeEtcds(t *testing.T, pki, release string, leads bool) (survivor *etcdProcess, lost []*etcdProcess) {
	t.Helper()
	var all []*etcdProcess
	var initial []string
	for i := range 3 {
		m := newEtcd(t, pki, release, fmt.Sprintf("cp-%d", i+1))
		all, initial = append(all, m), append(initial, m.name+"="+m.peerURL)
	}
	for _, m := range all {
		m.start("--initial-cluster=" + strings.Join(initial, ","))
	}
	for _, m := range all {
		if err := all[0].api().CaughtUp(t.Context(), etcd.At(m.peerURL)); err != nil {
			t.Fatal(err)
		}
	}
	health, err := all[0].api().Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		i := slices.IndexFunc(health, func(h etcd.Health) bool { return h.Name == m.name })
		if survivor == nil && health[i].Leads() == leads {
			survivor = m
		} else {
			lost = append(lost, m)
		}
	}
	return survivor, lost
}

func (e *etcdProcess) ends(by syscall.Signal) {
	_ = e.cmd.Process.Signal(by)
	_ = e.cmd.Wait()
	e.cmd = nil
}

// etcdWriters write keys of their own through one member.
type etcdWriters struct {
	e    *etcdProcess
	end  context.CancelFunc
	all  sync.WaitGroup
	mu   sync.Mutex
	told map[string]string // writes that a client knows to have succeeded
}

func (e *etcdProcess) writes(clients int) *etcdWriters {
	ctx, end := context.WithCancel(e.Context())
	w := &etcdWriters{e: e, end: end, told: map[string]string{}}
	for i := range clients {
		w.all.Go(func() {
			e.do(func(_ context.Context, c *clientv3.Client) error {
				for n := 0; ctx.Err() == nil; n++ {
					key, value := fmt.Sprintf("w/%d", i), fmt.Sprint(n)
					if n%2 == 0 {
						key = fmt.Sprintf("w/%d/%d", i, n)
					}
					_, err := c.Put(ctx, key, value)
					w.mu.Lock()
					if err == nil {
						w.told[key] = value
					} else if n%2 == 1 {
						delete(w.told, key) // the earlier or the later value
					}
					w.mu.Unlock()
				}
				return nil
			})
		})
	}
	e.Cleanup(func() { w.stop() })
	return w
}

// await waits until some writes have succeeded.
func (w *etcdWriters) await(least int) {
	w.e.do(func(context.Context, *clientv3.Client) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.told) < least {
			return errors.Errorf("%d writes", len(w.told))
		}
		return nil
	})
}

func (w *etcdWriters) stop() map[string]string {
	w.end()
	w.all.Wait()
	return w.told
}

// losesQuorum waits until the member has noticed.
func (e *etcdProcess) losesQuorum() {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		status, err := c.Status(ctx, e.clientURL)
		if err == nil && status.Leader != 0 {
			err = errors.New("it still has a leader")
		}
		return err
	})
}

// cluster is the ID of the member's cluster.
func (e *etcdProcess) cluster() (id uint64) {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		status, err := c.Status(ctx, e.clientURL)
		if err == nil {
			id = status.Header.ClusterId
		}
		return err
	})
	return id
}

// recovers makes the member the only one of a new cluster, as phases/recovery does.
func (e *etcdProcess) recovers() {
	e.Helper()
	pending := 0
	replay := filepath.Join(e.TempDir(), "replay")
	e.replaces(e.dir, replay, func(s *etcd.Survivor, dir string) error {
		pending = s.Pending()
		e.Logf("entry %d of term %d, committed %d, in the database %d, uncertain %d, to replay %d", s.Index, s.Term, s.Committed, s.Applied, s.Uncertain(s.Applied), pending)
		return s.WriteReplay(context.Background(), dir, e.name, e.peerURL)
	})
	before := e.dir
	e.dir = e.TempDir()
	if pending > 0 {
		after := e.dir
		e.dir, before = replay, replay
		e.start()
		e.revision()
		e.stop()
		e.dir = after
	}
	e.replaces(before, filepath.Join(e.dir, "member"), func(s *etcd.Survivor, dir string) error {
		_, err := s.WriteRenewed(context.Background(), dir, e.name, e.peerURL)
		return err
	})
	e.start("--log-level=error")
}

// replaces makes a directory from the data in another.
func (e *etcdProcess) replaces(from, to string, fill func(s *etcd.Survivor, dir string) error) {
	e.Helper()
	database, err := os.Open(filepath.Join(from, "member/snap/db"))
	if err != nil {
		e.Fatal(err)
	}
	defer database.Close()
	paths, err := filepath.Glob(filepath.Join(from, "member/wal/*.wal"))
	if err != nil {
		e.Fatal(err)
	}
	var log []*os.File
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			e.Fatal(err)
		}
		defer f.Close()
		log = append(log, f)
	}
	s, err := etcd.ReadSurvivor(database, log, true)
	if err != nil {
		e.Fatal(err)
	}
	if err := linux.New().WriteTree(to, func(dir string) error { return fill(s, dir) }); err != nil {
		e.Fatal(err)
	}
}

// everything returns all keys.
func (e *etcdProcess) everything() map[string]string {
	e.Helper()
	all := map[string]string{}
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, "", clientv3.WithPrefix())
		if err == nil {
			for _, kv := range answer.Kvs {
				all[string(kv.Key)] = string(kv.Value)
			}
		}
		return err
	})
	return all
}

func (e *etcdProcess) hasAll(told map[string]string) {
	e.Helper()
	have, lost := e.everything(), 0
	for key, value := range told {
		if got := have[key]; got != value {
			lost++
			e.Logf("%s is %q, and a client was told that it's %q", key, got, value)
		}
	}
	if lost > 0 || len(told) == 0 {
		e.Errorf("%d of %d writes are lost", lost, len(told))
	}
}

// ignores starts the lost members, who have a quorum of their former cluster, and looks for any effect on the recovered one.
func (e *etcdProcess) ignores(lost []*etcdProcess, before uint64, told map[string]string) {
	e.Helper()
	for _, m := range lost {
		m.start("--log-level=panic") // each says tens of times a second that the cluster is another one
	}
	e.put("kept", "after")
	for _, m := range lost {
		m.put("w/lost", m.name) // once they have elected a leader
		if got := m.cluster(); got != before {
			e.Errorf("%s is in cluster %x, was in %x", m.name, got, before)
		}
	}
	now := e.members()
	if len(now) != 1 || now[0].Cluster == before || now[0].Name != e.name {
		e.Errorf("members %+v, before in %x", now, before)
	}
	e.put("kept", "again")
	e.hasAll(told)
	e.asksNone(lost)
	for _, m := range lost {
		if _, found := m.everything()["kept"]; found {
			e.Errorf("%s has a key of the recovered cluster", m.name)
		}
	}
	for _, m := range lost {
		m.stop()
	}
	if _, found := e.everything()["w/lost"]; found {
		e.Error("the recovered cluster has a key of the lost members")
	}
}

// asksNone: Slipway gives no orders to members of the former cluster, though they answer.
func (e *etcdProcess) asksNone(former []*etcdProcess) {
	e.Helper()
	own := func(context.Context) ([]string, error) { return []string{e.clientURL}, nil }
	if members, err := e.apiBeside(own, former...).Members(e.Context()); err != nil || len(members) != 1 || members[0].Name != e.name {
		e.Errorf("beside members of the former cluster: %+v, %v", members, err)
	}
	_, added, err := e.apiBeside(nil, former...).Join(e.Context(), "new", "https://192.0.2.1:2380")
	if added || err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(former[0].clientURL, "https://")) {
		e.Errorf("a host that joins, with members of two clusters: added %t, %v", added, err)
	}
}

// recoverInstants are the steps of a recovery that change anything, in order.
var recoverInstants = []instant{
	{"[stop] Stopping", 300 * time.Millisecond},
	{"[replay]", 0},
	{"[replay]", 2 * time.Second},
	{"[etcd-data] Making", 0},
	{"[etcd-data] Keeping", 0},
	{"[control-plane] Starting", 0},
	{"[control-plane] Starting", time.Second},
}

// recoversEtcd loses the other control planes while clients write, and goes on alone. Each write that its API server has confirmed is
// there afterwards. A lost host that boots again does no harm, and both join again.
func (m machine) recoversEtcd(planes []machine) {
	tier.OnlyFull(m.T, "TestEtcdRecover")
	lost := slices.DeleteFunc(slices.Clone(planes), func(p machine) bool { return p.node == m.node })
	local := []string{"kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://" + m.node.IP() + ":6443", "--request-timeout=5s"}
	var mu sync.Mutex
	var confirmed []string
	var writing sync.WaitGroup
	for i := range 4 {
		writing.Go(func() {
			for n, failed := 0, false; !failed; n++ { // until the quorum is lost
				name := fmt.Sprintf("written-%d-%d", i, n)
				_, err := m.try(append(local, "create", "configmap", name)...)
				mu.Lock()
				if failed = err != nil; !failed {
					confirmed = append(confirmed, name)
				}
				mu.Unlock()
			}
		})
	}
	m.eventually("some writes", readyLimit, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(confirmed) < 20 {
			return errors.Errorf("%d", len(confirmed))
		}
		return nil
	})
	sideBySide(
		func() { _ = lost[0].node.Kill(m.Context()) },
		func() { _ = lost[1].node.Kill(m.Context()) },
	)
	writing.Wait()
	m.etcdNeeds("etcd-down", lost[0].node.Name())
	again := []string{"slipway", "etcd", "recover", "--yes"}
	m.eventually("the loss to be noticed", readyLimit, func() error {
		out, err := m.try(append(again, "--dry-run")...)
		if err != nil {
			return errors.Errorf("%v: %s", err, out)
		}
		return nil
	})
	for i, at := range recoverInstants {
		if !m.recoverKilledAt(at, i%2 == 1, again) {
			break
		}
	}
	started := time.Now()
	if out, err := m.try(again...); err != nil && m.isAlone() != nil {
		m.Fatalf("%v:\n%s", err, out)
	}
	m.Logf("the last run took %.1fs", time.Since(started).Seconds())
	m.eventually("all that was confirmed", readyLimit, func() error {
		out, err := m.try(append(local, "get", "configmaps", "-o", "name")...)
		have := strings.Fields(out)
		for _, name := range confirmed {
			if !slices.Contains(have, "configmap/"+name) {
				return errors.Errorf("%s is not there (%v)", name, err)
			}
		}
		return nil
	})
	for i, p := range lost {
		if err := p.node.Start(m.Context()); err != nil {
			m.Fatal(err)
		}
		p.eventually("its former etcd", readyLimit, func() error { _, err := p.try("pidof", "etcd"); return err })
		m.hasVoters(append([]machine{m}, lost[:i]...)...)
		m.takesBack(p)
	}
	m.hasVoters(planes...)
	m.must("slipway", "etcd", "prune", "--yes")
}

// recoverKilledAt runs a recovery that's killed, perhaps with the whole node, and reports whether there's more of it to do.
func (m machine) recoverKilledAt(at instant, node bool, recovery []string) (more bool) {
	m.Helper()
	end := nothingMore
	if node {
		end = m.node.Kill
	}
	said, err := m.runUntil(at, end, recovery...)
	if err == nil { // it ended first
		m.Logf("it ended before %s:\n%s", at, said)
		return false
	}
	if node && at.in(said) {
		if err := m.node.Start(m.Context()); err != nil {
			m.Fatal(err)
		}
	}
	return true
}

// takesBack lets a control plane join again that etcd doesn't know any more, as `etcd recover` and `etcd restore` say.
func (m machine) takesBack(p machine) {
	m.Helper()
	p.runs("slipway", "reset", []string{"--force"})
	m.deletes(p)
	_, plane := m.joinCommands()
	p.knowsEndpointStill()
	p.runs("slipway", "join", plane)
	m.ready(p.node.Name())
}

// isAlone returns an error unless etcd works with this host's member alone.
func (m machine) isAlone() error {
	out, err := m.etcdctl("endpoint", "status", "--cluster")
	if err == nil && strings.Count(strings.TrimSpace(out), "\n") > 0 {
		err = errors.New(out)
	}
	return err
}
