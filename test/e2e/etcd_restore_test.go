// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/pkg/errors"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// etcdLimit is how long an etcd may take for anything here.
const etcdLimit = time.Minute

// TestEtcdRestore restores snapshots of real etcds, and starts real etcds on them: of the same version, and of the next. Clients
// notice that the database is older than before, so none of them carries on with stale data. The test doesn't run beside tests
// with nodes: these end threads, and each etcd here ends with the thread that has started it (Pdeathsig).
func TestEtcdRestore(t *testing.T) {
	pki := newEtcdPKI(t)
	all := [][2]string{{"1.36", "1.36"}, {"1.36", ""}, {"", ""}}
	for _, i := range tier.Sample(t, 1, len(all)) {
		versions := all[i]
		t.Run(strings.Join(versions[:], "-"), func(t *testing.T) {
			t.Parallel()
			restoresEtcd(t, pki, versions[0], versions[1])
		})
	}
}

func restoresEtcd(t *testing.T, pki, from, to string) {
	before := newEtcd(t, pki, from, "cp-1")
	before.start("--initial-cluster=cp-1=" + before.peerURL)
	want := map[string]string{"kept": "1", "changed": "old", "kept too": strings.Repeat("x", 500_000)}
	for key, value := range want {
		before.put(key, value)
	}
	before.put("deleted", "1")
	before.do(func(ctx context.Context, c *clientv3.Client) error { _, err := c.Delete(ctx, "deleted"); return err })
	path, atSnapshot := before.takesSnapshot()
	before.put("changed", "new")
	before.put("later", "1")
	latest, members := before.revision(), before.members()
	before.stop()

	after := newEtcd(t, pki, to, "restored")
	ids := after.restores(path, latest)
	// The flags of a node that once joined others.
	after.start("--initial-cluster=cp-9=https://127.0.0.1:1,restored="+after.peerURL, "--initial-cluster-state=existing")
	after.holds(want)
	first := after.revision()
	if first < latest+etcd.RevisionBump {
		t.Errorf("at revision %d after the restore, %d before", first, latest)
	}
	now := after.members()
	if len(now) != 1 || now[0].ID != ids.Member || now[0].Cluster != ids.Cluster || now[0].Cluster == members[0].Cluster || now[0].ID == members[0].ID {
		t.Errorf("members %+v, before %+v", now, members)
	}
	for _, revision := range []int64{1, atSnapshot, latest, latest + 1, latest + etcd.RevisionBump, first - 1} {
		after.hasCompacted(revision)
	}
	after.put("later", "2")
	want["later"] = "2"
	after.watchesOnlyNew(first)
	after.grows(t, pki, to, want)
	after.stop()
	after.start()
	after.holds(want)
}

// takesSnapshot writes a snapshot of three keys to a file, and verifies it.
func (e *etcdProcess) takesSnapshot() (path string, revision int64) {
	e.Helper()
	e.waitForStorageVersion()
	path = filepath.Join(e.TempDir(), "snapshot.db")
	var taken etcd.SnapshotInfo
	err := linux.New().WriteStream(path, func(w io.Writer) (err error) {
		taken, err = e.api().Snapshot(e.Context(), e.peerURL, w)
		return err
	})
	if err != nil {
		e.Fatal(err)
	}
	revision = e.revision()
	info := verifySnapshot(e.T, path)
	e.Logf("%s: %+v", e.version(), info)
	if info.Hash != taken.Hash || info.Size != taken.Size || info.Version != taken.Version || info.Revision != revision ||
		info.Keys != 3 || info.Version == "" || len(info.Members) != 1 || info.Members[0].Name != "cp-1" || info.Members[0].PeerURL != e.peerURL {
		e.Errorf("taken %+v, verified %+v, at revision %d", taken, info, revision)
	}
	return path, revision
}

// restores makes e's data from a snapshot.
func (e *etcdProcess) restores(path string, latest int64) (ids etcd.Data) {
	e.Helper()
	started := time.Now()
	h := linux.New()
	err := h.WriteTree(filepath.Join(e.dir, "member"), func(dir string) error {
		f, err := h.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		ids, err = etcd.Restore(context.Background(), f, dir, e.name, e.peerURL, latest, time.Now())
		return err
	})
	if err != nil {
		e.Fatal(err)
	}
	e.Logf("restored in %s", time.Since(started))
	return ids
}

// grows adds a second member, which gets everything from the restored one, and makes it the leader.
func (e *etcdProcess) grows(t *testing.T, pki, release string, want map[string]string) {
	t.Helper()
	second := newEtcd(t, pki, release, "second")
	if _, _, err := e.api().Join(t.Context(), "second", second.peerURL); err != nil {
		t.Fatal(err)
	}
	second.start("--initial-cluster=second="+second.peerURL+","+e.name+"="+e.peerURL, "--initial-cluster-state=existing")
	if err := e.api().Promote(t.Context(), second.peerURL); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*etcdProcess{second, e} {
		if err := second.api().CaughtUp(t.Context(), etcd.At(m.peerURL)); err != nil {
			t.Fatal(err)
		}
	}
	moved, err := second.api().MoveLeader(t.Context(), etcd.At(e.peerURL))
	again, errAgain := second.api().MoveLeader(t.Context(), etcd.At(e.peerURL))
	if !moved || again || err != nil || errAgain != nil {
		t.Errorf("moved %t (%v), again %t (%v)", moved, err, again, errAgain)
	}
	all, err := e.api().Health(t.Context())
	if err != nil || len(all) != 2 || all[0].Leads() == all[1].Leads() || all[0].Status.Size == 0 || all[0].Status.Quota == 0 || !strings.HasPrefix(all[0].Status.Version, "3.") {
		t.Errorf("%+v, %v", all, err)
	}
	second.hasCompacted(1)
	second.holds(want)
	e.knowsMembersAlone(second)
	if removed, err := e.api().Leave(t.Context(), second.peerURL); !removed || err != nil {
		t.Errorf("%t, %v", removed, err)
	}
	second.stop()
}

func verifySnapshot(t *testing.T, path string) etcd.SnapshotInfo {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := etcd.VerifySnapshot(f)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// newEtcdPKI makes the certificates of an etcd and its clients. With a root file system of its own, Slipway doesn't lock this machine,
// on which another run may be at work.
func newEtcdPKI(t *testing.T) string {
	t.Helper()
	slipway, err := openLab(t, labPrefix+"etcd", "").Program(t.Context(), "slipway")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "run"), 0o755); err != nil { // for the lock
		t.Fatal(err)
	}
	for _, name := range []string{"etcd-ca", "etcd-server", "etcd-peer", "apiserver-etcd-client"} {
		if out, err := exec.CommandContext(t.Context(), slipway, "init", "phase", "certs", name, "--rootfs", root).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	return filepath.Join(root, config.DefaultCertificatesDir)
}

// etcdProcess is an etcd listening on loopback.
type etcdProcess struct {
	*testing.T
	program, pki, dir, name string
	clientURL, peerURL      string
	cmd                     *exec.Cmd
}

func newEtcd(t *testing.T, pki, release, name string) *etcdProcess {
	t.Helper()
	path, err := openLab(t, labPrefix+"etcd", release).Program(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}
	e := &etcdProcess{T: t, program: path, pki: pki, dir: t.TempDir(), name: name, clientURL: freeURL(t), peerURL: freeURL(t)}
	t.Cleanup(e.stop)
	return e
}

func freeURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "https://" + l.Addr().String()
}

func (e *etcdProcess) start(flags ...string) {
	e.Helper()
	server, peer := e.pki+"/etcd/server", e.pki+"/etcd/peer"
	e.cmd = exec.Command(e.program, append([]string{
		"--name=" + e.name, "--data-dir=" + e.dir, "--listen-client-urls=" + e.clientURL, "--advertise-client-urls=" + e.clientURL,
		"--listen-peer-urls=" + e.peerURL, "--initial-advertise-peer-urls=" + e.peerURL,
		"--client-cert-auth", "--trusted-ca-file=" + e.pki + "/etcd/ca.crt", "--cert-file=" + server + ".crt", "--key-file=" + server + ".key",
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + e.pki + "/etcd/ca.crt", "--peer-cert-file=" + peer + ".crt", "--peer-key-file=" + peer + ".key",
		"--log-level=warn", "--snapshot-count=10",
	}, flags...)...)
	e.cmd.Stdout, e.cmd.Stderr = e.Output(), e.Output()
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		e.Fatal(err)
	}
}

func (e *etcdProcess) stop() {
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	_ = e.cmd.Wait()
	e.cmd = nil
}

func (e *etcdProcess) api() *etcd.Real { return e.apiBeside(nil) }

// apiBeside also asks others. own has the URL of the member that decides which cluster counts; it's nil for none.
func (e *etcdProcess) apiBeside(own func(context.Context) ([]string, error), others ...*etcdProcess) *etcd.Real {
	urls := []string{e.clientURL}
	for _, m := range others {
		urls = append([]string{m.clientURL}, urls...)
	}
	return etcd.New(etcd.Options{
		Endpoints: func(context.Context) ([]string, error) { return urls, nil },
		Own:       own,
		CA:        e.pki + "/etcd/ca.crt", Cert: e.pki + "/apiserver-etcd-client.crt", Key: e.pki + "/apiserver-etcd-client.key",
		ReadFile: os.ReadFile, Timeout: etcdLimit,
	})
}

// do calls op with a client until it succeeds, as the etcd may still be starting.
func (e *etcdProcess) do(op func(context.Context, *clientv3.Client) error) {
	e.Helper()
	pair, err := tls.LoadX509KeyPair(e.pki+"/apiserver-etcd-client.crt", e.pki+"/apiserver-etcd-client.key")
	if err != nil {
		e.Fatal(err)
	}
	ca, err := os.ReadFile(e.pki + "/etcd/ca.crt")
	if err != nil {
		e.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.clientURL}, Logger: zap.NewNop(), TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}})
	if err != nil {
		e.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(e.Context(), etcdLimit)
	defer cancel()
	for {
		if err = op(ctx, c); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			e.Fatalf("%s: %v", e.name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (e *etcdProcess) put(key, value string) {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error { _, err := c.Put(ctx, key, value); return err })
}

func (e *etcdProcess) revision() (revision int64) {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, "kept")
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	})
	return revision
}

// holds checks that e has exactly these keys.
func (e *etcdProcess) holds(want map[string]string) {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		answer, err := c.Get(ctx, "", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, kv := range answer.Kvs {
			got[string(kv.Key)] = string(kv.Value)
		}
		if !maps.Equal(got, want) {
			e.Errorf("%s has the keys %v, or other values; want %v", e.name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		return nil
	})
}

func (e *etcdProcess) members() []etcd.Member {
	e.Helper()
	members, err := e.api().Members(e.Context())
	if err != nil {
		e.Fatal(err)
	}
	return members
}

func (e *etcdProcess) version() string {
	out, _ := exec.Command(e.program, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// waitForStorageVersion waits until the data has the etcd's version, some seconds after the start.
func (e *etcdProcess) waitForStorageVersion() {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		status, err := c.Status(ctx, e.clientURL)
		if err != nil {
			return err
		}
		// Before it has written one, it reports 3.5, as the schema has the fields of that version.
		if minor := status.Version[:strings.LastIndex(status.Version, ".")+1]; !strings.HasPrefix(status.StorageVersion, minor) {
			return fmt.Errorf("etcd %s reports the storage version %q", status.Version, status.StorageVersion)
		}
		return nil
	})
}

// hasCompacted checks that a client that resumes from a revision learns that it has missed changes.
func (e *etcdProcess) hasCompacted(revision int64) {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		answer, open := <-c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(revision))
		if !open || !errors.Is(answer.Err(), rpctypes.ErrCompacted) {
			return fmt.Errorf("a watch from revision %d got %+v, open: %t", revision, answer, open)
		}
		return nil
	})
}

// watchesOnlyNew checks that a watch from a revision gets only writes from after the restore.
func (e *etcdProcess) watchesOnlyNew(revision int64) {
	e.Helper()
	e.do(func(ctx context.Context, c *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		answer := <-c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(revision+1))
		if answer.Err() != nil || len(answer.Events) == 0 || string(answer.Events[0].Kv.Key) != "later" || answer.Events[0].Kv.ModRevision <= revision {
			return fmt.Errorf("a watch from revision %d got %+v", revision+1, answer)
		}
		return nil
	})
}

// savesEtcd takes snapshots, lists, verifies and prunes them.
func (m machine) savesEtcd() {
	m.Helper()
	defer m.must("sh", "-c", "rm -r "+snapshots.Dir+"; rmdir --ignore-fail-on-non-empty /var/lib/slipway")
	first := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--in-turn"))
	second := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save"))
	fact.List(m.T, strings.Split(strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "verify")), "\n"), first, second)

	var list struct{ Items []snapshots.Snapshot }
	if err := json.Unmarshal([]byte(m.must("slipway", "etcd", "snapshot", "list", "-o", "json")), &list); err != nil || len(list.Items) != 2 {
		m.Fatalf("%+v, %v", list, err)
	}
	for _, s := range list.Items {
		if s.Revision < 100 || s.Keys < 100 || s.Kubernetes == "" || s.Etcd == "" || len(s.Authorities) != 3 || len(s.Members) != 1 || len(s.Unknown) > 0 {
			m.Errorf("%+v", s)
		}
	}
	sum, _, _ := strings.Cut(m.must("sha256sum", second), " ")
	if sum != list.Items[1].SHA256 || second != list.Items[1].Path {
		m.Errorf("%s has the SHA-256 %s; the record: %+v", second, sum, list.Items[1])
	}
	if status, err := m.etcdStatus(); err != nil || status.Code != 0 || status.Last.Path != second {
		m.Errorf("%+v, %v; want the last snapshot %s", status, err, second)
	}
	m.must("slipway", "etcd", "snapshot", "prune", "--keep=1", "--keep-days=0")
	fact.List(m.T, strings.Fields(m.must("ls", snapshots.Dir)), second[len(snapshots.Dir)+1:], snapshots.RecordPath(second)[len(snapshots.Dir)+1:])
	if out, err := m.etcdctl("snapshot", "save", "/root/theirs.db"); err != nil {
		m.Fatalf("%v: %s", err, out)
	}
	fact.In(m.T, m.must("slipway", "etcd", "snapshot", "verify", "/root/theirs.db"), "/root/theirs.db")
	m.sealsEtcd()

	m.must("truncate", "--size=-1", second)
	out, err := m.try("slipway", "etcd", "snapshot", "verify")
	fact.In(m.T, out, second)
	if err == nil {
		m.Errorf("a shortened snapshot is whole:\n%s", out)
	}
	m.savesOnSchedule()
}

// sealsEtcd saves etcd with everything that a bare host needs to take m's place.
func (m machine) sealsEtcd() {
	m.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		m.Fatal(err)
	}
	m.write("/root/recipients", key.Recipient().String())
	m.write("/root/identity", key.String())
	path := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--with-pki", "--recipients-file=/root/recipients"))
	out := m.must("slipway", "etcd", "snapshot", "verify", "--identity-file=/root/identity", path)
	fact.In(m.T, out, path)
	data, err := m.node.ReadFile(path)
	if err != nil {
		m.Fatal(err)
	}
	local := m.TempDir()
	if err := os.WriteFile(filepath.Join(local, "a"+snapshots.SealedExtension), data, 0o600); err != nil {
		m.Fatal(err)
	}
	in, err := snapshots.Open(linux.NewAt(local), "/a"+snapshots.SealedExtension, snapshots.Identities{key})
	if err != nil {
		m.Fatal(err)
	}
	defer in.Close()
	have := map[string]bool{}
	for _, f := range in.Files {
		have[f.Path] = f.OfHost
	}
	for path, ofHost := range map[string]bool{
		"/etc/kubernetes/pki/ca.key": false, "/etc/kubernetes/pki/sa.key": false, "/etc/kubernetes/pki/etcd/ca.key": false,
		"/etc/kubernetes/pki/apiserver.key": true, "/etc/kubernetes/manifests/etcd.yaml": true, "/var/lib/kubelet/config.yaml": true,
	} {
		if of, found := have[path]; !found || of != ofHost {
			m.Errorf("%s: found %t, of the host %t; the snapshot has %v", path, found, of, have)
		}
	}
	m.sealsWithPassphrase()
	m.must("rm", path, snapshots.RecordPath(path), "/root/identity", "/root/recipients", "/root/theirs.db")
}

func (m machine) sealsWithPassphrase() {
	m.Helper()
	m.write("/root/passphrase", "a long enough passphrase\n")
	m.write("/root/another", "another long passphrase\n")
	path := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--with-pki", "--passphrase-file=/root/passphrase"))
	fact.In(m.T, m.must("slipway", "etcd", "snapshot", "verify", "--passphrase-file=/root/passphrase", path), path)
	if out, err := m.try("slipway", "etcd", "snapshot", "verify", "--passphrase-file=/root/another", path); err == nil {
		m.Errorf("another passphrase opens %s: %s", path, out)
	}
	m.must("rm", path, snapshots.RecordPath(path), "/root/passphrase", "/root/another")
}

// savesOnSchedule runs the packages' service: with an upload that works, and with one that fails. Then it fails, and yet removes old
// snapshots.
func (m machine) savesOnSchedule() {
	m.Helper()
	const unit = "slipway-etcd-snapshot.service"
	text, err := os.ReadFile("../../packaging/systemd/" + unit)
	if err != nil {
		m.Fatal(err)
	}
	program := strings.TrimSpace(m.must("sh", "-c", "command -v slipway"))
	m.write("/etc/systemd/system/"+unit, strings.ReplaceAll(string(text), "/usr/bin/slipway", program))
	m.must("mkdir", "-p", "/etc/systemd/system/"+unit+".d", "/root/elsewhere")
	uploadWith := func(command string) {
		m.write("/etc/systemd/system/"+unit+".d/flags.conf", "[Service]\nEnvironment=\"SAVE_FLAGS=--upload '"+command+"'\" \"PRUNE_FLAGS=--keep=1 --keep-days=0\"\n")
		m.must("systemctl", "daemon-reload")
	}
	uploadWith("/bin/cp {} /root/elsewhere/")
	m.must("systemctl", "start", unit)
	before := strings.Fields(m.must("ls", snapshots.Dir))
	m.must("diff", "-r", snapshots.Dir, "/root/elsewhere")
	uploadWith("/bin/false {}")
	if out, err := m.try("systemctl", "start", unit); err == nil {
		m.Errorf("the service succeeds though the upload failed: %s", out)
	}
	m.must("systemctl", "is-failed", unit)
	if after := strings.Fields(m.must("ls", snapshots.Dir)); len(after) != 2 || after[0] == before[0] {
		m.Errorf("before %q, after %q\n%s", before, after, m.must("journalctl", "--unit="+unit))
	}
	m.must("rm", "-r", "/root/elsewhere", "/etc/systemd/system/"+unit, "/etc/systemd/system/"+unit+".d")
	m.must("systemctl", "daemon-reload")
	m.must("systemctl", "reset-failed")
}

// restoreInstants are the steps of a restore that change anything, in order.
var restoreInstants = []instant{
	{"[etcd-data] Restoring", 0},
	{"[etcd-data] Stopping", 0},
	{"[etcd-data] Stopping", 300 * time.Millisecond},
	{"[etcd-data] Keeping", 0},
	{"[etcd-data] Starting", 0},
	{"[etcd-data] Starting", time.Second},
	{"[settle] Waiting", 0},
}

// restoresEtcd goes back to a snapshot, in a run that's killed. A Deployment that was scaled since is scaled back, and no Pod of the
// lost future remains, in the API or on a host. phases/snapshot kills a restore at each step.
func (m machine) restoresEtcd(workers ...machine) {
	m.Helper()
	const dir = "/root/restore"
	defer m.must("rm", "-rf", dir)
	kept := m.hasDeployment("scaled")
	file := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--dir", dir))
	m.hasLostFuture()
	restore := []string{"slipway", "etcd", "restore", file, "--yes"}
	m.must(append(restore, "--dry-run")...)
	for _, i := range tier.Sample(m.T, 1, len(restoreInstants)) {
		m.restoreKilledAt(restoreInstants[i], i%2 == 1 && tier.Full(), restore)
		m.isRestored(kept, workers)
		m.must("slipway", "etcd", "prune", "--yes")
		m.hasLostFuture()
	}
	plain := dir + "/etcdctl.db" // without a record
	m.kubectl("delete", "configmap", "lost")
	m.kubectl("scale", "deployment", "scaled", "--replicas=1")
	m.eventually("one Pod", readyLimit, func() error {
		if kept = m.podsOf("scaled"); len(kept) != 1 {
			return errors.Errorf("there are %v", kept)
		}
		return nil
	})
	if out, err := m.etcdctl("snapshot", "save", plain); err != nil {
		m.Fatalf("%v: %s", err, out)
	}
	m.hasLostFuture()
	started := time.Now()
	fact.NotIn(m.T, m.said("slipway", "etcd", "restore", plain, "--yes"), plain+".json") // the database says enough
	m.Logf("a restore took %.1fs", time.Since(started).Seconds())
	m.isRestored(kept, workers)
	m.must("slipway", "etcd", "prune", "--yes")
	if names := strings.Fields(m.must("ls", "/var/lib/etcd")); len(names) != 1 || names[0] != "member" {
		m.Errorf("/var/lib/etcd has %v", names)
	}
	m.kubectl("delete", "deployment", "scaled")
}

// hasDeployment makes a Deployment, and returns the UID of its Pod.
func (m machine) hasDeployment(name string) []string {
	m.Helper()
	pause := strings.TrimSpace(m.must("sh", "-c", "ctr -n k8s.io images ls -q | grep -m1 registry.k8s.io/pause:"))
	m.kubectl("create", "deployment", name, "--image="+pause)
	m.kubectl("wait", "--for=condition=Available", "deployment/"+name, "--timeout="+readyLimit.String())
	return m.podsOf(name)
}

// restoreKilledAt restores in a run that's killed, perhaps with the whole node, and in another.
func (m machine) restoreKilledAt(at instant, node bool, restore []string) {
	m.Helper()
	end := nothingMore
	if node {
		end = m.node.Kill
	}
	if !m.killedAt(at, end, restore...) {
		m.Logf("it ended before %s", at)
		return
	}
	if node {
		if err := m.node.Start(m.Context()); err != nil {
			m.Fatal(err)
		}
	}
	m.must(restore...)
}

// said returns all output of a command that must succeed.
func (m machine) said(args ...string) string {
	m.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// hasLostFuture writes what a restore takes back.
func (m machine) hasLostFuture() {
	m.Helper()
	m.kubectl("create", "configmap", "lost")
	m.kubectl("scale", "deployment", "scaled", "--replicas=4")
	m.eventually("four Pods", readyLimit, func() error {
		if ready := m.kubectl("get", "deployment", "scaled", "-o", "jsonpath={.status.readyReplicas}"); ready != "4" {
			return errors.Errorf("%s are ready", ready)
		}
		return nil
	})
}

// sandboxesOf lists a Deployment's Pods that run on a host. Its name follows.
const sandboxesOf = `ctr -n k8s.io tasks ls -q | grep -xF "$(ctr -n k8s.io containers ls -q labels.app==`

// podsOf returns the UIDs of a Deployment's Pods in the API.
func (m machine) podsOf(app string) []string {
	m.Helper()
	return strings.Fields(m.kubectl("get", "pods", "-l", "app="+app, "-o", "jsonpath={.items[*].metadata.uid}"))
}

// isRestored checks that only these Pods of the Deployment are left, everywhere.
func (m machine) isRestored(kept []string, workers []machine) {
	m.Helper()
	if lost := m.kubectl("get", "configmap", "lost", "--ignore-not-found"); lost != "" {
		m.Errorf("a ConfigMap from after the snapshot is there: %s", lost)
	}
	m.eventually("only the Pods of the snapshot", readyLimit, func() error {
		if ready := m.kubectl("get", "deployment", "scaled", "-o", "jsonpath={.spec.replicas} {.status.readyReplicas}"); ready != "1 1" {
			return errors.Errorf("replicas and ready ones: %s", ready)
		}
		if now := m.podsOf("scaled"); !slices.Equal(now, kept) {
			return errors.Errorf("the API has Pods %v, the snapshot %v", now, kept)
		}
		var running []string
		for _, w := range workers {
			running = append(running, strings.Fields(w.must("sh", "-c", sandboxesOf+"scaled)\" || true"))...)
		}
		if len(running) != len(kept) {
			return errors.Errorf("the workers run %d Pods", len(running))
		}
		return nil
	})
	for _, w := range append(workers, m) {
		m.ready(w.node.Name())
	}
}

// TestEtcdBareHost loses the only control plane. Another host with its address takes its place with one file: a sealed snapshot. It has
// neither the snapshot's record nor a configuration beside it.
func TestEtcdBareHost(t *testing.T) {
	m := boot(t)
	config := document("", podSubnet)
	m.init(config)
	m.kubectl("taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
	m.hasDeployment("kept")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	m.write("/root/recipients", key.Recipient().String())
	file := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--dir=/root", "--with-pki", "--recipients-file=/root/recipients"))
	admin := m.must("cat", "/etc/kubernetes/admin.conf")
	m = m.isReplaced(file)
	m.write("/root/identity", key.String())
	restore := []string{"slipway", "init", "--ignore-preflight-errors=SystemVerification", "--restore=" + file, "--identity-file=/root/identity"}
	m.must(append(restore, "--dry-run")...)
	m.must(restore...)
	m.write("/root/old.conf", admin)
	m.must("kubectl", "--kubeconfig=/root/old.conf", "auth", "can-i", "delete", "nodes")
	m.eventually("the Deployment's Pod on this host", readyLimit, func() error {
		if running := m.must("sh", "-c", sandboxesOf+"kept)\" || true"); len(strings.Fields(running)) != 1 {
			return errors.Errorf("Pods here: %q", running)
		}
		return nil
	})
	m.kubectl("wait", "--for=condition=Available", "deployment/kept", "--timeout="+readyLimit.String())
	m.ready("cp-1")
	m.init(config) // the restore is complete
}

// isReplaced loses m. Another host with its name and address has these files of it, and nothing else.
func (m machine) isReplaced(files ...string) machine {
	m.Helper()
	saved := map[string][]byte{}
	for _, path := range files {
		data, err := m.node.ReadFile(path)
		if err != nil {
			m.Fatal(err)
		}
		saved[path] = data
	}
	name, address := m.node.Name(), m.node.IP()
	if err := m.node.Remove(m.Context()); err != nil {
		m.Fatal(err)
	}
	other := m.another(name)
	if other.node.IP() != address {
		m.Fatalf("the other host has the address %s, not %s", other.node.IP(), address)
	}
	for path, data := range saved {
		other.must("mkdir", "-p", filepath.Dir(path))
		other.write(path, string(data))
	}
	return other
}

// bareInstants are the steps of a restore on a bare host that change anything, in order.
var bareInstants = []instant{{"[restore-files]", 0}, {"[restore-etcd]", 0}, {"[etcd]", 0}, {"[settle]", 0}}

// TestBareHostDisk loses the only control plane. Another host takes its place with a snapshot and the cluster's PKI from a disk, and
// with the configuration that the snapshot has: its networks and the kubelet's and kube-proxy's settings.
// Runs that are killed don't keep the last one from finishing. The worker comes back by itself, with its Pod.
func TestBareHostDisk(t *testing.T) {
	tier.OnlyFull(t, "TestEtcdBareHost")
	m := boot(t)
	config := document("", podSubnet)
	args := m.initForJoin(config)
	w := m.another("worker-1")
	w.runs("slipway", "join", args)
	m.ready(w.node.Name())
	kept := m.hasDeployment("kept")
	file := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--dir=/root"))
	files := []string{file, snapshots.RecordPath(file)}
	for _, name := range []string{"ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt", "etcd/ca.key"} {
		files = append(files, "/etc/kubernetes/pki/"+name)
	}
	m = m.isReplaced(files...)
	restore := []string{"slipway", "init", "--ignore-preflight-errors=SystemVerification", "--restore=" + file}
	for _, at := range bareInstants {
		if !m.killedAt(at, nothingMore, restore...) {
			t.Fatalf("it ended before %s", at)
		}
	}
	started := time.Now()
	m.must(restore...)
	t.Logf("the last run of init --restore took %.1fs", time.Since(started).Seconds())
	for _, name := range []string{"cp-1", "worker-1"} {
		m.ready(name)
	}
	if now := m.podsOf("kept"); !slices.Equal(now, kept) {
		t.Errorf("the API has Pods %v, the snapshot %v", now, kept)
	}
	if running := w.must("sh", "-c", sandboxesOf+"kept)\" || true"); len(strings.Fields(running)) != 1 {
		t.Errorf("Pods on the worker: %q", running)
	}
}
