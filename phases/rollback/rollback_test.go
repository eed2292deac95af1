// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

type otherMembers struct {
	etcd.Etcd
	others []etcd.Health
	err    error
	// leaderless means this node's has no leader. peers are the answers by peer URL; all other URLs are silent.
	leaderless bool
	peers      map[string][]etcd.Member
}

func (m otherMembers) Peers(_ context.Context, urls []string) []etcd.Peer {
	all := phasetest.Silent(urls)
	for i, url := range urls {
		if told, answers := m.peers[url]; answers {
			all[i] = etcd.Peer{URL: url, Members: told}
		}
	}
	return all
}

func (m otherMembers) Health(context.Context) ([]etcd.Health, error) {
	own := etcd.Health{Member: etcd.Member{Name: "cp-1", PeerURL: "https://192.0.2.11:2380"}, Answers: true, Status: etcd.Status{Revision: 42}}
	if m.leaderless {
		own.Err = errors.New("no leader")
	}
	return append([]etcd.Health{own}, m.others...), m.err
}

func member(name string, answers bool) etcd.Health {
	return etcd.Health{Member: etcd.Member{Name: name, PeerURL: "https://" + name + ":2380"}, Answers: answers}
}

const startedCluster = "1234"

// noAPI is an API without credentials.
func noAPI() cluster.Cluster {
	return cluster.New(cluster.Options{Kubeconfig: "x", Timeout: time.Second, ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
}

const (
	backedUpManifests = phasetest.RollbackBackups + "kubeadm-backup-manifests-" + phasetest.UpgradeTime + "/"
	backedUpSnapshot  = phasetest.RollbackBackups + "kubeadm-backup-etcd-" + phasetest.UpgradeTime + "/snapshot.db"
)

// TestRollbackRefusals: a rollback begins only with a backup and a snapshot that fit this node, and explains any misfit.
func TestRollbackRefusals(t *testing.T) {
	agedCA := authoritySince(t, time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
	etcdRecords := []string{backedUpManifests + "upgrade.yaml", phasetest.RollbackBackups + "kubeadm-backup-manifests-2026-02-03-04-06-07/upgrade.yaml"}
	tests := map[string]struct {
		change  func(edit func(path, old, new string), replace func(path, from string)) // nil for none
		members otherMembers
		plain   bool     // without --restore-etcd
		says    []string // none if it isn't refused
		remedy  []string
	}{
		"all fits": {},
		"another node": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-7")
		}, plain: true, says: []string{"node cp-7", "cp-1"}},
		"a cluster with another CA": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			ofAnotherCluster(edit)
		}, plain: true, says: []string{"sha256:0", "/etc/kubernetes/pki/ca.crt"}},
		"a cluster with another CA, with its data": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			ofAnotherCluster(edit)
		}, says: []string{"sha256:0", "/etc/kubernetes/pki/ca.crt"}},
		"one of two CAs": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "ca: sha256:", "ca: sha256:0,sha256:")
		}, plain: true},
		"no CA here": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace("/etc/kubernetes/pki/ca.crt", "")
		}, plain: true, says: []string{"/etc/kubernetes/pki/ca.crt"}},
		"a backup without a hash, older than the cluster": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			ofEarlierRelease(edit)
		}, plain: true, says: []string{"/etc/kubernetes/pki/ca.crt", "2026-02-03"}},
		"a backup without a hash": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			ofEarlierRelease(edit)
			replace("/etc/kubernetes/pki/ca.crt", "text:"+agedCA)
		}, plain: true},
		"a backup without a hash, of another etcd": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			ofEarlierRelease(edit)
			replace("/etc/kubernetes/pki/ca.crt", "text:"+agedCA)
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: abc")
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", fixture.Path("internal/etcd/testdata/started.wal"))
		}, plain: true, says: []string{phasetest.RollbackBackups[:len(phasetest.RollbackBackups)-1], "cluster abc", "cluster " + startedCluster}},
		"a version between": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			edit("/etc/kubernetes/manifests/kube-apiserver.yaml", "v1.37.2", "v1.36.9")
		}, plain: true, says: []string{"runs registry.k8s.io/kube-apiserver:v1.36.9", "from v1.36.4 to v1.37.2"}},
		"an interrupted restore": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace("/etc/kubernetes/tmp/slipway-etcd-data.yaml", "text:command: etcd restore\nfrom: /b.db\naside: /etc/kubernetes\nmanifest: x\n")
		}, says: []string{"`slipway etcd restore /b.db`"}},
		"no snapshot": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace(backedUpSnapshot, "")
		}, says: []string{"no snapshot", "/etc/kubernetes/tmp"}},
		"no snapshot, and none needed": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace(backedUpSnapshot, "")
		}, plain: true},
		"a damaged snapshot": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace(backedUpSnapshot, backedUpManifests+"etcd.yaml")
		}, says: []string{backedUpSnapshot, "incomplete"}},
		"a newer snapshot": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace(backedUpSnapshot, fixture.Path("internal/etcd/testdata/snapshot-3.7.db"))
		}, says: []string{backedUpSnapshot, "of etcd 3.7", "and etcd 3.6"}},
		"only snapshots of the new API server's data": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace(backedUpSnapshot, "")
			anotherRun("04-06-07", config.DefaultKubernetesVersion, "3.6", replace)
		}, says: []string{"no snapshot", "/etc/kubernetes/tmp", phasetest.RollbackBackups + "kubeadm-backup-etcd-2026-02-03-04-06-07/snapshot.db"}},
		"another member's snapshot": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			edit(backedUpManifests+"etcd.yaml", "--name=cp-1", "--name=cp-8")
		}, says: []string{"members cp-1", "member is cp-8"}},
		"a log elsewhere": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			edit(backedUpManifests+"etcd.yaml", "- --name=cp-1", "- --name=cp-1\n    - --wal-dir=/var/lib/wal")
		}, says: []string{"--wal-dir=/var/lib/wal", "restored"}},
		"another cluster": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: abc")
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", fixture.Path("internal/etcd/testdata/started.wal"))
		}, says: []string{phasetest.RollbackBackups[:len(phasetest.RollbackBackups)-1], "cluster abc", "/var/lib/etcd/member/wal", "cluster " + startedCluster}},
		"another cluster with the same CA": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: abc")
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", fixture.Path("internal/etcd/testdata/started.wal"))
		}, plain: true, says: []string{phasetest.RollbackBackups[:len(phasetest.RollbackBackups)-1], "cluster abc", "/var/lib/etcd/member/wal", "cluster " + startedCluster}},
		"another cluster, in several runs": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			anotherRun("04-06-07", phasetest.OldVersion, "3.6", replace)
			for _, file := range etcdRecords {
				edit(file, "node: cp-1", "node: cp-1\netcdCluster: abc")
			}
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", fixture.Path("internal/etcd/testdata/started.wal"))
		}, plain: true, says: []string{"cluster abc", "cluster " + startedCluster}, remedy: append(etcdRecords, "\""+startedCluster+"\"")},
		"the same etcd": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: \""+startedCluster+"\"")
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", fixture.Path("internal/etcd/testdata/started.wal"))
		}, plain: true},
		"an old backup of kubeadm's": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			replace(backedUpManifests+"upgrade.yaml", "")
			replace(phasetest.RollbackBackups+"kubeadm-kubelet-config-"+phasetest.UpgradeTime+"/upgrade.yaml", "")
			replace("/etc/kubernetes/pki/ca.crt", "text:"+agedCA)
			edit(backedUpManifests+"kube-apiserver.yaml", "v1.36.4", "v1.35.4")
		}, plain: true, says: []string{"runs v1.37.2", "static Pods of v1.35.4"}},
		"a backup of kubeadm's": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace(backedUpManifests+"upgrade.yaml", "")
			replace(phasetest.RollbackBackups+"kubeadm-kubelet-config-"+phasetest.UpgradeTime+"/upgrade.yaml", "")
			replace("/etc/kubernetes/pki/ca.crt", "text:"+agedCA)
		}, plain: true},
		"a version between, after an unknown one": {change: func(edit func(path, old, new string), _ func(path, from string)) {
			edit(backedUpManifests+"kube-apiserver.yaml", ":v1.36.4", "@sha256:36")
			edit("/etc/kubernetes/manifests/kube-apiserver.yaml", "v1.37.2", "v1.36.9")
		}, plain: true, says: []string{"runs registry.k8s.io/kube-apiserver:v1.36.9", "from registry.k8s.io/kube-apiserver@sha256:36 to v1.37.2"}},
		"the cluster of a restore that was not finished": {change: func(edit func(path, old, new string), replace func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: abc")
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", fixture.Path("internal/etcd/testdata/started.wal"))
			anotherRun("04-06-07", phasetest.OldVersion, "3.6", replace)
			replace(phasetest.RollbackBackups+"slipway-rollback.yaml", "text:began: 2026-02-03T04:05:06Z\nended: 2026-02-03T04:05:06Z\nsnapshot: /x/snapshot.db\naside: /var/lib/etcd/old\nrestored: true\n")
			edit(phasetest.RollbackBackups+"kubeadm-backup-manifests-2026-02-03-04-06-07/upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: '"+startedCluster+"'")
		}},
		"others that run":      {members: otherMembers{others: []etcd.Health{member("cp-2", true), member("cp-3", false)}}, says: []string{"other members", "run: cp-2."}, remedy: []string{"run `slipway reset` on cp-2;"}},
		"others that are gone": {members: otherMembers{others: []etcd.Health{member("cp-3", false)}}},
		"an etcd that is down": {members: otherMembers{err: errors.New("connection refused")}},
		"etcd's static Pod was moved away": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace("/etc/kubernetes/manifests/etcd.yaml", "")
		}, plain: true, says: []string{"/etc/kubernetes/manifests/etcd.yaml", "not exist"}},
		"etcd's static Pod is damaged": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace("/etc/kubernetes/manifests/etcd.yaml", "text:[")
		}, plain: true, says: []string{"/etc/kubernetes/manifests/etcd.yaml"}, remedy: []string{"--restore-etcd"}},
		"etcd's static Pod is damaged, with its data": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace("/etc/kubernetes/manifests/etcd.yaml", "text:[")
		}},
		"a damaged log of etcd": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", "text:damaged")
		}},
		"an interrupted restore that had stopped etcd": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			interruptRestore(replace)
			replace("/etc/kubernetes/manifests/etcd.yaml", "")
		}, plain: true, says: []string{"restored from /x/snapshot.db", "interrupted"}},
		"an interrupted restore that had moved the data": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			interruptRestore(replace)
			replace("/var/lib/etcd/old", "text:")
		}, plain: true, says: []string{"restored from /x/snapshot.db", "interrupted"}},
		"an interrupted restore that had moved the data, without its snapshot": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			interruptRestore(replace)
			replace("/var/lib/etcd/old", "text:")
		}},
		"an interrupted restore that had stopped etcd, without its snapshot": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			interruptRestore(replace)
			replace("/etc/kubernetes/manifests/etcd.yaml", "")
		}, says: []string{"/x/snapshot.db"}},
		"an interrupted restore that had changed nothing": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			interruptRestore(replace)
		}, plain: true},
		"an interrupted restore that had changed nothing, again": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			interruptRestore(replace)
		}},
		"an interrupted restore, others that run now": {change: func(_ func(path, old, new string), replace func(path, from string)) {
			interruptRestore(replace)
		}, members: otherMembers{others: []etcd.Health{member("cp-2", true)}}, says: []string{"other members", "run: cp-2."}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewScene(t, rollbackScenario)
			defer s.Close()
			if tt.change != nil {
				tt.change(func(path, old, new string) { editFile(t, s.Root+path, old, new) }, func(path, from string) { replaceFile(t, s.Root, path, from) })
			}
			_, _, err := newRollback(t.Context(), noAPI(), phasetest.NewLastingHost(s.Root), tt.members, !tt.plain, io.Discard)
			fact.Error(t, err, tt.says...)
			fact.In(t, fault.Remedy(err), tt.remedy...)
		})
	}
}

func authoritySince(t *testing.T, since time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotBefore: since, NotAfter: since.AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func ofAnotherCluster(edit func(path, old, new string)) {
	for _, dir := range []string{backedUpManifests, phasetest.RollbackBackups + "kubeadm-kubelet-config-" + phasetest.UpgradeTime + "/"} {
		edit(dir+"upgrade.yaml", "ca: sha256:", "ca: sha256:0 # ")
	}
}

// ofEarlierRelease removes the CA's hashes from a backup's records.
func ofEarlierRelease(edit func(path, old, new string)) {
	for _, dir := range []string{backedUpManifests, phasetest.RollbackBackups + "kubeadm-kubelet-config-" + phasetest.UpgradeTime + "/"} {
		edit(dir+"upgrade.yaml", "ca: ", "# ")
	}
}

func interruptRestore(replace func(path, from string)) {
	replace(phasetest.RollbackBackups+"slipway-rollback.yaml", "text:began: 2026-02-03T04:05:06Z\nsnapshot: /x/snapshot.db\naside: /var/lib/etcd/old\n")
}

func editFile(t *testing.T, path, old, new string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q (%v):\n%s", path, old, err, data)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), old, new)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replaceFile replaces a file by another of the host or of the project, by a text, or by nothing.
func replaceFile(t *testing.T, root, path, from string) {
	t.Helper()
	if err := os.RemoveAll(root + path); err != nil || from == "" {
		return
	}
	text, isText := strings.CutPrefix(from, "text:")
	data := []byte(text)
	if !isText {
		var err error
		if !strings.HasPrefix(from, "..") {
			from = root + from
		}
		if data, err = os.ReadFile(from); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(root+path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRollbackSaysWhatIsLost: the question names times and revisions, and the nodes that the restore affects.
func TestRollbackSaysWhatIsLost(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	h := phasetest.NewLastingHost(s.Root)
	var all strings.Builder
	for _, tt := range []struct {
		members otherMembers
		plain   bool
		want    []string
	}{
		{want: []string{"Kubernetes v1.36.4", "upgrade of 2026-02-03 04:05:06 UTC", "snapshot of 2026-02-03 04:05:06 UTC", "revision 6 (2 keys)", "revision 42", "36 revisions"}},
		{members: otherMembers{err: errors.New("refused")}, want: []string{"revision 6 (2 keys)", "not known"}},
		{members: otherMembers{others: []etcd.Health{member("cp-3", false)}}, want: []string{"run `slipway reset --force` on cp-3"}},
		{plain: true, want: []string{"cluster's data stays"}},
	} {
		r, _, err := newRollback(t.Context(), noAPI(), h, tt.members, !tt.plain, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		fact.In(t, r.Summary(), tt.want...)
		all.WriteString(r.Summary() + "\n\n")
	}
	phasetest.Shows(t, "rollback-summaries", all.String())
}

// TestRollbackKeepsEtcd: without a restore, an etcd of another minor version stays, because the older may not start with its
// data. The same minor goes back.
func TestRollbackKeepsEtcd(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	h := phasetest.NewLastingHost(s.Root)
	goesBack := func() bool {
		r, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(r.images(&step.Env{Config: n, Host: h}), " "), "/etcd:")
	}
	if goesBack() {
		t.Error("etcd 3.7 goes back to 3.6 without a restore")
	}
	editFile(t, s.Root+backedUpManifests+"etcd.yaml", ":3.6.8-0", "@sha256:36")
	if goesBack() {
		t.Error("etcd goes back to an unknown version without a restore")
	}
	editFile(t, s.Root+backedUpManifests+"etcd.yaml", "@sha256:36", ":3.7.9-0")
	if !goesBack() {
		t.Error("etcd does not go back to another patch release")
	}
}

// anotherRun adds a later upgrade run's backup, with the API server it found and a snapshot of this minor version of etcd.
func anotherRun(at, apiServer, etcd string, replace func(path, from string)) {
	manifests, day := phasetest.RollbackBackups+"kubeadm-backup-manifests-2026-02-03-"+at+"/", phasetest.RollbackBackups+"kubeadm-backup-etcd-2026-02-03-"+at+"/"
	replace(manifests+"upgrade.yaml", "text:node: cp-1\nto: "+config.DefaultKubernetesVersion+"\n")
	replace(manifests+"kube-apiserver.yaml", "text:spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:"+apiServer+"'}]}")
	replace(day+"snapshot.db", fixture.Path("internal/etcd/testdata/snapshot-"+etcd+".db"))
}

// TestSnapshotFromBeforeStays: after any number of attempts to upgrade, a rollback restores the newest snapshot written by the
// old API server and readable by the old etcd. Other snapshots are removed.
func TestSnapshotFromBeforeStays(t *testing.T) {
	type run struct{ at, apiServer, etcd string }
	for name, tt := range map[string]struct {
		runs  []run
		kept  string // the snapshots' times after the last run
		takes string // the snapshot that a rollback restores
	}{
		"the API server fails after etcd": {[]run{{"05-00-00", phasetest.OldVersion, "3.7"}, {"06-00-00", phasetest.OldVersion, "3.7"}, {"07-00-00", phasetest.OldVersion, "3.7"}},
			"04-05-06 05-00-00 06-00-00 07-00-00", "04-05-06"},
		"the API server is replaced": {[]run{{"05-00-00", config.DefaultKubernetesVersion, "3.6"}, {"06-00-00", config.DefaultKubernetesVersion, "3.6"},
			{"07-00-00", config.DefaultKubernetesVersion, "3.6"}, {"08-00-00", config.DefaultKubernetesVersion, "3.6"}}, "04-05-06 06-00-00 07-00-00 08-00-00", "04-05-06"},
		"nothing is replaced": {[]run{{"05-00-00", phasetest.OldVersion, "3.6"}, {"06-00-00", phasetest.OldVersion, "3.6"}, {"07-00-00", phasetest.OldVersion, "3.6"}},
			"05-00-00 06-00-00 07-00-00", "07-00-00"},
		"killed before the API server is replaced, and after it": {[]run{{"05-00-00", phasetest.OldVersion, "3.6"}, {"06-00-00", config.DefaultKubernetesVersion, "3.6"}},
			"04-05-06 05-00-00 06-00-00", "05-00-00"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewScene(t, rollbackScenario)
			defer s.Close()
			h := phasetest.NewLastingHost(s.Root)
			env := &step.Env{Config: &config.Node{Machine: config.Machine{Paths: config.Paths{Kubernetes: "/etc/kubernetes"}}}, Host: h, UI: ui.NewLines(io.Discard, io.Discard)}
			for _, r := range tt.runs {
				anotherRun(r.at, r.apiServer, r.etcd, func(path, from string) {
					if filepath.Base(path) == upgrading.RecordFile {
						from = backedUpManifests + upgrading.RecordFile // has the CA's hash; without it, runs are earlier releases', and separate upgrades
					}
					replaceFile(t, s.Root, path, from)
				})
				if err := backup.PruneSnapshots(env); err != nil {
					t.Fatal(err)
				}
			}
			dirs, err := filepath.Glob(s.Root + phasetest.RollbackBackups + "kubeadm-backup-etcd-*")
			if err != nil {
				t.Fatal(err)
			}
			for i := range dirs {
				_, dirs[i], _ = strings.Cut(dirs[i], "2026-02-03-")
			}
			if got := strings.Join(dirs, " "); got != tt.kept {
				t.Errorf("kept %s, want %s", got, tt.kept)
			}
			r, _, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, true, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if want := phasetest.RollbackBackups + "kubeadm-backup-etcd-2026-02-03-" + tt.takes + "/snapshot.db"; r.restore.snapshot != want {
				t.Errorf("restores %s, want %s", r.restore.snapshot, want)
			}
		})
	}
}

// TestSnapshotsAreKeptUnseen: if it's unknown which snapshot a rollback needs, all stay.
func TestSnapshotsAreKeptUnseen(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	replace := func(path, from string) { replaceFile(t, s.Root, path, from) }
	replace(phasetest.RollbackBackups+"slipway-rollback.yaml", "text:[")
	for _, at := range []string{"05-00-00", "06-00-00", "07-00-00"} {
		anotherRun(at, config.DefaultKubernetesVersion, "3.6", replace)
	}
	var said bytes.Buffer
	env := &step.Env{Config: &config.Node{Machine: config.Machine{Paths: config.Paths{Kubernetes: "/etc/kubernetes"}}}, Host: phasetest.NewLastingHost(s.Root), UI: ui.NewLines(&said, &said)}
	if err := backup.PruneSnapshots(env); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Root + backedUpSnapshot); err != nil {
		t.Error(err)
	}
	phasetest.Once(t, said.String(), phasetest.Line{"[WARNING]", "all snapshots", "slipway-rollback.yaml"})
}

// TestRollbackKubeletStarts: a kubelet gets its flags back, except those it wouldn't start with.
func TestRollbackKubeletStarts(t *testing.T) {
	const accepted = `KUBELET_KUBEADM_ARGS="--v=2"` + "\n"
	for kubelet, want := range map[string]string{"v1.34.9": phasetest.OldFlags, "v1.35.0": accepted, "v1.37.2": accepted, "": accepted} {
		s := phasetest.NewScene(t, rollbackNodeScenario)
		defer s.Close()
		h := phasetest.NewLastingHost(s.Root)
		h.Has.Programs = map[string]string{"kubelet": "Kubernetes " + kubelet}
		if kubelet == "" {
			h.Fail["ProgramVersion"] = errors.New("not found")
		}
		if said, err := s.On(t.Context(), h); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		if got, err := os.ReadFile(s.Root + "/var/lib/kubelet/kubeadm-flags.env"); err != nil || string(got) != want {
			t.Errorf("kubelet %q: %s (%v)", kubelet, got, err)
		}
	}
	s := phasetest.NewScene(t, rollbackNodeScenario)
	defer s.Close()
	h := phasetest.NewLastingHost(s.Root)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.On.Probe = func(context.Context, host.Probe) error {
		cancel()
		return errors.New("connection refused")
	}
	if said, err := s.On(ctx, h); err == nil {
		t.Errorf("it has succeeded, although the kubelet does not answer\n%s", said)
	}
}

// TestRollbackOfKubeletConfiguration: settings that the installed kubelet wouldn't start with don't go back.
func TestRollbackOfKubeletConfiguration(t *testing.T) {
	const gone = "AnyVolumeDataSource" // 1.36 still has this gate
	for name, row := range map[string]struct {
		kubelet string
		present bool // the gate is still set
		found   bool
	}{
		"a newer kubelet":         {"Kubernetes v1.37.2", false, true},
		"the kubelet from before": {"Kubernetes v1.36.4", false, false},
		"settings that stay":      {"Kubernetes v1.37.2", true, false},
		"a kubelet that fails":    {"", false, true},
	} {
		s := phasetest.NewScene(t, rollbackNodeScenario)
		defer s.Close()
		h := phasetest.NewLastingHost(s.Root)
		h.Has.Programs = map[string]string{"kubelet": row.kubelet}
		r, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, io.Discard)
		phasetest.Fatal(t, err)
		settings := "featureGates: {" + gone + ": true}\n"
		phasetest.Fatal(t, os.WriteFile(s.Root+r.Backup.Kubelet["config.yaml"], []byte(settings), 0o600))
		if row.present {
			phasetest.Fatal(t, os.WriteFile(s.Root+n.Paths.KubeletConfig(), []byte(settings), 0o600))
		}
		found := r.kubeletQuestion(&step.Env{Config: n, Host: h}).Run(t.Context(), h)
		if len(found) > 1 || len(found) == 1 != row.found {
			t.Errorf("%s: found %v", name, found)
		}
		for _, f := range found {
			fact.In(t, f.Message, r.Backup.Kubelet["config.yaml"])
			if refused := strings.Contains(f.Message, gone); refused != (f.Severity == fault.Error) || refused != (row.kubelet != "") {
				t.Errorf("%s: %+v", name, f)
			}
			if f.Severity == fault.Error {
				fact.In(t, f.Remedy, "--ignore-preflight-errors="+kubeletCheck)
			}
		}
	}
}

// TestRollbackToUnknownVersion: an API server with only a digest goes back. Shared objects stay, and the run says so.
func TestRollbackToUnknownVersion(t *testing.T) {
	s := phasetest.NewScene(t, rollbackPlainScenario)
	defer s.Close()
	const image = "registry.k8s.io/kube-apiserver@sha256:36"
	editFile(t, s.Root+backedUpManifests+"kube-apiserver.yaml", "registry.k8s.io/kube-apiserver:"+phasetest.OldVersion, image)
	said, err := s.Again(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	phasetest.Once(t, said, phasetest.Line{"static Pods", "unknown version", image}, phasetest.Line{"[WARNING]", "leaving", "stored configuration"}, phasetest.Line{"[WARNING]", "leaving kube-proxy"})
	if got := phasetest.NewLastingHost(s.Root).RunningPods()["container of kube-apiserver"]; !strings.Contains(got, image) {
		t.Errorf("the API server runs with %s", got)
	}
	if said, err := s.Again(t.Context()); err != nil {
		t.Errorf("again: %v\n%s", err, said)
	}
}

// TestRollbackFormerControlPlane: a worker that was once a control plane doesn't get its static Pods back.
func TestRollbackFormerControlPlane(t *testing.T) {
	s := phasetest.NewScene(t, rollbackNodeScenario)
	defer s.Close()
	dirs, err := filepath.Glob(s.Root + phasetest.RollbackBackups + "kubeadm-kubelet-config-*")
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	manifests := phasetest.RollbackBackups + "kubeadm-backup-manifests-" + phasetest.UpgradeTime + "/"
	for name, from := range map[string]string{
		"upgrade.yaml":        strings.TrimPrefix(dirs[0], s.Root) + "/upgrade.yaml",
		"kube-apiserver.yaml": "text:spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:v1.36.4'}]}",
	} {
		replaceFile(t, s.Root, manifests+name, from)
	}
	said, err := s.Again(t.Context())
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	fact.In(t, said, "kubelet's settings")
	fact.NotIn(t, said, "static Pods")
	if left, err := filepath.Glob(s.Root + "/etc/kubernetes/manifests/*"); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

func TestRollbackWithoutStaticPod(t *testing.T) {
	s := phasetest.NewScene(t, rollbackPlainScenario)
	defer s.Close()
	replaceFile(t, s.Root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "")
	if said, err := s.Again(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if got := phasetest.NewLastingHost(s.Root).RunningPods()["container of kube-apiserver"]; !strings.Contains(got, phasetest.OldVersion) {
		t.Errorf("the API server runs with %q", got)
	}
}

// TestRetriedUpgradeKeepsBefore: if an upgrade is retried with the API server replaced already, a rollback ignores the retry's
// snapshot and puts back what the first run found.
func TestRetriedUpgradeKeepsBefore(t *testing.T) {
	s := phasetest.NewScene(t, upgradeScenario)
	defer s.Close()
	f := &phasetest.Refusal{Named: "write /etc/kubernetes/manifests/kube-scheduler.yaml"}
	h := f.On(s.Root)
	h.On.Now = func() time.Time { return time.Now().Add(-time.Minute) } // so the backups of the two runs have different names
	if said, err := s.On(t.Context(), h); err == nil || f.What == "" {
		t.Fatalf("the first run ended with %v\n%s", err, said)
	}
	if said, err := s.Again(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	b, err := upgrading.LastBackup(h, phasetest.RollbackBackups, upgrading.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Snapshots) != 1 || len(b.Later) != 1 || b.Snapshots[0] > b.Later[0] {
		t.Errorf("snapshots from before: %v, later: %v", b.Snapshots, b.Later)
	}
	if b.From != phasetest.CrashFrom || len(b.Manifests) != 4 {
		t.Errorf("from %s: %v", b.From, b.Manifests)
	}
}

// TestDamagedEtcdPod: a rollback with a restore replaces an unreadable static Pod of etcd.
func TestDamagedEtcdPod(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	const path = "/etc/kubernetes/manifests/etcd.yaml"
	replaceFile(t, s.Root, path, "text:[")
	if said, err := s.Again(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	fact.In(t, fixture.Get(t, s.Root, path), ":3.6.8-0")
}

// TestRollbackAfterGoingForward: an unfinished rollback's restored data doesn't count once the upgrade has run again.
func TestRollbackAfterGoingForward(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	replace := func(path, from string) { replaceFile(t, s.Root, path, from) }
	replace(phasetest.RollbackBackups+"slipway-rollback.yaml", "text:began: 2026-02-03T04:05:06Z\nended: 2026-02-03T04:05:06Z\nsnapshot: "+backedUpSnapshot+"\naside: /var/lib/etcd/old\nrestored: true\n")
	replace("/var/lib/etcd/old", "text:")
	for _, again := range []bool{false, true} {
		snapshot := backedUpSnapshot
		if again {
			anotherRun("05-00-00", phasetest.OldVersion, "3.6", replace)
			snapshot = phasetest.RollbackBackups + "kubeadm-backup-etcd-2026-02-03-05-00-00/snapshot.db"
		}
		r, _, err := newRollback(t.Context(), noAPI(), phasetest.NewLastingHost(s.Root), otherMembers{}, true, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if r.Progress.Restored == again || r.restore.snapshot != snapshot {
			t.Errorf("upgraded again: %t; restored: %t, from %s", again, r.Progress.Restored, r.restore.snapshot)
		}
	}
}
