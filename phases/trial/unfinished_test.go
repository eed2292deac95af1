// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestQuestion: an unfinished change is in the way of other workflows, unless an operator ignores it by name.
func TestQuestion(t *testing.T) {
	for state, refused := range map[State]bool{OnTrial: true, Storing: true, Reverting: true, Completed: false, Reverted: false} {
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		phasetest.Fatal(t, node.Check(t.Context(), s.Env, NewUnfinishedCheck(s.Env)))
		record, err := Begin(t.Context(), s.Env, "/usr/bin/slipway", nil, Record{})
		phasetest.Fatal(t, err)
		phasetest.Fatal(t, record.Set(s.Env, state))
		if !refused {
			phasetest.Fatal(t, node.Check(t.Context(), s.Env, NewUnfinishedCheck(s.Env)))
			phasetest.Fatal(t, RefuseUnfinished(s.Env))
			continue
		}
		s.Config.IgnorePreflightErrors = []string{"all"}
		fact.Error(t, node.Check(t.Context(), s.Env, NewUnfinishedCheck(s.Env)), fault.UnfinishedChange)
		fact.In(t, fault.Remedy(RefuseUnfinished(s.Env)), "slipway reconfigure")
		s.Config.IgnorePreflightErrors = []string{fault.UnfinishedChange}
		phasetest.Fatal(t, node.Check(t.Context(), s.Env, NewUnfinishedCheck(s.Env)))
	}
}

// TestFileBesideRecords: a file with a name like a record's directory is none.
func TestFileBesideRecords(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, filepath.Join(node.BackupRoot(s.Env), dirPrefix+"notes.txt"), "x\n")
	record, err := Begin(t.Context(), s.Env, "/usr/bin/slipway", nil, Record{})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, record.Set(s.Env, Completed))
	last, err := Last(s.Env)
	phasetest.Fatal(t, err)
	if last == nil || last.dir != record.dir {
		t.Errorf("the last is %+v", last)
	}
}

// TestFilesOfKeptServer: the files that a change has added go, unless the API server's static Pod stays, which may name them.
func TestFilesOfKeptServer(t *testing.T) {
	const (
		server, policy = "/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/audit.yaml"
		pod            = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: \"example.org/a:1\"}]}\n"
	)
	for name, edited := range map[string]string{"goes back": pod + "# edited\n", "stays": strings.Replace(pod, "a:1", "a:2", 1)} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Put(t, server, pod)
			writes := []Write{{Path: policy, Data: []byte("new")}, {Path: server, Data: []byte("new")}}
			record, err := Begin(t.Context(), s.Env, "/usr/bin/slipway", writes, Record{})
			phasetest.Fatal(t, err)
			s.Put(t, policy, "new")
			s.Put(t, server, edited)
			phasetest.Fatal(t, record.RestoreFiles(s.Env))
			_, gone := s.Host.Lstat(policy)
			if stays := s.Get(t, server) == edited; stays != (name == "stays") || stays != (gone == nil) {
				t.Errorf("the static Pod stays: %t; its file: %v", stays, gone)
			}
		})
	}
}

// TestBesideExchange: while etcd's data is replaced, its static Pod is away on purpose, and no change goes back.
func TestBrokenKubeconfigStays(t *testing.T) {
	const other = "/etc/kubernetes/audit.yaml"
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	path := s.Config.Paths.KubeletKubeconfig()
	s.Put(t, other, "former")
	s.Put(t, path, "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: \"https://192.0.2.1:6443\"}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\nusers: [{name: a}]\n")
	writes := []Write{{Path: path, Data: []byte("new")}, {Path: other, Data: []byte("new")}}
	record, err := Begin(t.Context(), s.Env, "/usr/bin/slipway", writes, Record{})
	phasetest.Fatal(t, err)
	s.Put(t, other, "new")
	s.Put(t, path, "broken: [")
	phasetest.Fatal(t, record.RestoreFiles(s.Env))
	if s.Get(t, other) != "former" || s.Get(t, path) != "broken: [" {
		t.Errorf("%s has %q, and %s %q", other, s.Get(t, other), path, s.Get(t, path))
	}
}

func TestBesideExchange(t *testing.T) {
	const etcd = "/etc/kubernetes/manifests/etcd.yaml"
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, etcd, "before")
	record, err := Begin(t.Context(), s.Env, "/usr/bin/slipway", []Write{{Path: etcd, Data: []byte("new")}}, Record{})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, s.Host.Remove(etcd))
	phasetest.Fatal(t, node.EtcdJournal{Command: "etcd restore", OldData: "/var/lib/etcd/member.before"}.Write(s.Env))
	for _, back := range []error{record.RestoreFiles(s.Env), record.RollBack(t.Context(), s.Env, node.Lease{})} {
		fact.Error(t, back, "`slipway etcd restore`")
	}
	if _, err := s.Host.Lstat(etcd); err == nil {
		t.Error("etcd's static Pod is back")
	}
	s.Put(t, etcd, "new") // the restore has ended
	phasetest.Fatal(t, record.RestoreFiles(s.Env))
	if got := s.Get(t, etcd); got != "before" {
		t.Errorf("etcd's static Pod is %q", got)
	}
}
