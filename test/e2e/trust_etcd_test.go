// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// replacesLostVoter rebuilds cp-3's machine and returns it. The voter without data comes back as a new member, first as a
// learner. In the full tier, the kubelet then starts it on an empty disk, and it comes back once more.
func (m machine) replacesLostVoter(planes []machine) machine {
	m.Helper()
	planes = slices.Clone(planes)
	lost := planes[2]
	if err := lost.node.Remove(m.Context()); err != nil {
		m.Fatal(err)
	}
	rebuilt := m.another(lost.node.Name())
	planes[2] = rebuilt
	rebuilt.knowsEndpoint(planes)
	m.deletes(lost)
	rebuilt.joinsAsNewMember(m, planes)
	if tier.Full() {
		rebuilt.losesItsData()
		rebuilt.joinsAsNewMember(m, planes)
	}
	return machine{lost.T, rebuilt.node}
}

// etcdMember is a member in etcdctl's output.
type etcdMember struct {
	ID      uint64 `json:"ID"`
	Name    string `json:"name"`
	Learner bool   `json:"isLearner"`
}

// etcdMembers asks m's etcd for the members, by name.
func (m machine) etcdMembers() (map[string]etcdMember, error) {
	out, err := m.etcdctl("member", "list", "--write-out=json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var list struct {
		Members []etcdMember `json:"members"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	byName := map[string]etcdMember{}
	for _, e := range list.Members {
		byName[e.Name] = e
	}
	return byName, nil
}

// joinsAsNewMember joins m, which lost its data but is still a voter in etcd.
func (m machine) joinsAsNewMember(other machine, planes []machine) {
	m.Helper()
	name := m.node.Name()
	before, err := other.etcdMembers()
	if err != nil {
		m.Fatal(err)
	}
	_, plane := other.joinCommands()

	out, err := m.try(append([]string{"slipway", "join"}, plane...)...)
	if err != nil {
		m.Errorf("join of %s after it lost its data: %v\n%s", name, err, out)
	}
	fact.In(m, out, "[WARNING]", name, "https://"+m.node.IP()+":2380")
	other.hasVoters(planes...)
	after, err := other.etcdMembers()
	if err != nil {
		m.Fatal(err)
	}
	if before[name].ID == after[name].ID {
		m.Errorf("%s came back with an empty disk as the former voter %x", name, after[name].ID)
	}
	// raft notes each configuration.
	if logs := other.must("grep", "-rhF", "switched to configuration", "/var/log/pods"); !strings.Contains(logs, fmt.Sprintf("learners=(%x)", after[name].ID)) {
		m.Errorf("%s became a voter at once:\n%s", name, logs)
	}
	other.haveTheSame(planes)
}

// haveTheSame compares the data of all control planes' etcds at one revision.
func (m machine) haveTheSame(planes []machine) {
	m.Helper()
	var endpoints []string
	for _, p := range planes {
		endpoints = append(endpoints, "https://"+p.node.IP()+":2379")
	}
	at := strings.Join(endpoints, ",")
	m.eventually("the same data in all etcds", readyLimit, func() error {
		revision, err := m.commonRevision(at)
		if err != nil {
			return err
		}
		out, err := m.etcdctlAt(at, "endpoint", "hashkv", fmt.Sprintf("--rev=%d", revision))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		hashes := map[string]bool{}
		for line := range strings.Lines(out) {
			_, hash, _ := strings.Cut(strings.TrimSpace(line), ", ")
			hashes[hash] = true
		}
		if len(hashes) != 1 || strings.Count(out, "\n") != len(planes) {
			return fmt.Errorf("at revision %d:\n%s", revision, out)
		}
		return nil
	})
}

// commonRevision returns the newest revision that all these etcds have.
func (m machine) commonRevision(endpoints string) (int64, error) {
	out, err := m.etcdctlAt(endpoints, "endpoint", "status", "--write-out=json")
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	var all []struct {
		Status struct {
			Header struct {
				Revision int64 `json:"revision"`
			} `json:"header"`
		} `json:"Status"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	revision := all[0].Status.Header.Revision
	for _, s := range all {
		revision = min(revision, s.Status.Header.Revision)
	}
	return revision, nil
}

// losesItsData gives m an empty disk for etcd, on which the kubelet starts it. The new etcd can't become ready: the others expect
// the data it has forgotten. The API server ends too, as after a power loss: if it only hung, the kubelet would wait for it.
func (m machine) losesItsData() {
	m.Helper()
	m.must("systemctl", "stop", "kubelet")
	m.eventually("the end of etcd and of the API server", readyLimit, func() error {
		pids, err := m.try("pgrep", "-x", "etcd|kube-apiserver")
		if err != nil {
			return nil //nolint:nilerr // there is none
		}
		_, err = m.try(append([]string{"kill", "-KILL"}, strings.Fields(pids)...)...)
		return fmt.Errorf("processes %s: %v", pids, err)
	})
	m.must("rm", "-r", "/var/lib/etcd/member")
	m.must("systemctl", "start", "kubelet")
	m.eventually("etcd's start on an empty disk", readyLimit, func() error {
		out, err := m.try("find", "/var/lib/etcd/member/wal", "-name", "*.wal")
		if err != nil || out == "" {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
}

// isNotReset cuts the others' power: the data on m may be the only copy.
func (m machine) isNotReset(others []machine) {
	m.Helper()
	for _, o := range others {
		if err := o.node.Kill(m.Context()); err != nil {
			m.Fatal(err)
		}
	}
	before := m.must("find", "/etc/kubernetes", "/var/lib/etcd", "-name", "*.wal", "-o", "-name", "db", "-o", "-path", "/etc/kubernetes/*")
	var out strings.Builder
	err := m.node.Exec(m.Context(), nodes.Cmd{Args: []string{"slipway", "reset"}, Stdin: strings.NewReader("y\n"), Stdout: &out, Stderr: &out})
	if err == nil {
		m.Errorf("the reset deleted the last copy of etcd's data:\n%s", out.String())
		return
	}
	for _, o := range others {
		if !strings.Contains(out.String(), o.node.Name()+" does not (") {
			m.Errorf("the reset does not report that %s is down:\n%s", o.node.Name(), out.String())
		}
	}
	if after := m.must("find", "/etc/kubernetes", "/var/lib/etcd", "-name", "*.wal", "-o", "-name", "db", "-o", "-path", "/etc/kubernetes/*"); after != before {
		m.Errorf("the refused reset changed the files, before:\n%s\nafter:\n%s", before, after)
	}
	if out, err := m.try("slipway", "reset", "--force"); err != nil || !strings.Contains(out, "CONTINUING BECAUSE OF --FORCE") {
		m.Errorf("reset --force: %v\n%s", err, out)
	}
}

// etcdStatus is the output of `etcd status`, and its exit code.
type etcdStatus struct {
	Code     int
	Findings []struct{ Cause, Subject string }
	Members  []struct {
		Name, HashKV string
		ThisHost     bool
	}
	Last struct{ Path string } `json:"lastSnapshot"`
}

func (m machine) etcdStatus(flags ...string) (s etcdStatus, err error) {
	var out, said bytes.Buffer
	err = m.node.Exec(m.Context(), nodes.Cmd{Args: append([]string{"slipway", "etcd", "status", "-o", "json"}, flags...), Stdout: &out, Stderr: &said})
	if exit := new(nodes.ExitError); errors.As(err, &exit) {
		s.Code, err = exit.Code, nil
	}
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &s)
	}
	return s, errors.WithMessagef(err, "%s%s", out.String(), said.String())
}

// etcdNeeds waits until `etcd status` says that an operator is needed, for this finding, or with none that all is well.
func (m machine) etcdNeeds(finding, subject string) {
	m.Helper()
	code := 0
	if finding != "" {
		code = 2
	}
	m.eventually("etcd status", readyLimit, func() error {
		s, err := m.etcdStatus()
		if err != nil {
			return err
		}
		for _, f := range s.Findings {
			if f.Cause == finding && f.Subject == subject && s.Code == code {
				return nil
			}
		}
		if finding == "" && s.Code == code && len(s.Findings) == 0 {
			return nil
		}
		return fmt.Errorf("exit code %d, %+v", s.Code, s.Findings)
	})
}

// removesLost cuts the power of another control plane, and takes it out of the cluster: its member and its Node. The rest is then
// well, and may be defragmented.
func (m machine) removesLost(lost, other machine) {
	m.Helper()
	m.etcdNeeds("", "")
	if err := lost.node.Kill(m.Context()); err != nil {
		m.Fatal(err)
	}
	name := lost.node.Name()
	m.etcdNeeds("etcd-down", name)
	m.eventually("removing "+name, readyLimit, func() error { // the cluster needs a minute to notice
		out, err := m.try("slipway", "reset", "node", name, "--yes")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	m.etcdNeeds("", "")
	m.hasVoters(m, other)
	if s, err := m.etcdStatus("--hashkv"); err != nil || s.Code != 0 || len(s.Members) != 2 || s.Members[0].HashKV == "" || s.Members[0].HashKV != s.Members[1].HashKV {
		m.Errorf("%+v, %v", s, err)
	}
	var list struct{ Members []struct{ Name string } }
	if err := json.Unmarshal([]byte(m.must("slipway", "etcd", "member", "list", "-o", "json")), &list); err != nil || len(list.Members) != 2 {
		m.Errorf("members: %+v, %v", list, err)
	}
	if out := m.kubectl("get", "nodes", "-o", "name"); strings.Contains(out, name) {
		m.Errorf("nodes:\n%s", out)
	}
	m.must("slipway", "etcd", "defrag", "--all")
	m.etcdNeeds("", "")
}

// TestEtcdQuota fills etcd up to its quota. `etcd defrag` makes it accept writes again.
func TestEtcdQuota(t *testing.T) {
	tier.OnlyFull(t, "phases/maintenance.TestDefragmentation/a full quota")
	m := boot(t)
	m.init(document("", podSubnet+"\netcd: {local: {extraArgs: [{name: quota-backend-bytes, value: '33554432'}]}}"))
	m.etcdNeeds("", "")
	m.write("/root/value", strings.Repeat("x", 1<<20))
	const fill = `for i in $(seq 64); do etcdctl --endpoints=https://localhost:2379 --cacert=ca.crt --cert=peer.crt --key=peer.key put filler </root/value; done`
	out, _ := m.try("sh", "-c", "cd /etc/kubernetes/pki/etcd && "+fill)
	if want := rpctypes.ErrorDesc(rpctypes.ErrNoSpace); !strings.Contains(out, want) {
		t.Fatalf("etcd isn't full: %s", out)
	}
	m.etcdNeeds("etcd-space", "cp-1")
	if out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "create", "configmap", "too-much"); err == nil {
		t.Errorf("etcd accepts a write beyond its quota:\n%s", out)
	}
	m.must("slipway", "etcd", "defrag")
	m.etcdNeeds("", "")
	m.kubectl("create", "configmap", "fits-again")
}
