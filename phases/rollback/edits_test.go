// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestRollbackKeepsEdited: a rollback names the files edited since the upgrade, and copies only them before it replaces anything.
func TestRollbackKeepsEdited(t *testing.T) {
	const settings, scheduler, etcd = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/manifests/kube-scheduler.yaml", "/etc/kubernetes/manifests/etcd.yaml"
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	h := phasetest.NewLastingHost(s.Root)
	if !h.Unchanged(settings) {
		t.Skip("this file system, or this user, keeps no notes of what was made")
	}
	editFile(t, s.Root+settings, "kind: KubeletConfiguration\n", "kind: KubeletConfiguration\npodPidsLimit: 77\n")
	editFile(t, s.Root+scheduler, "    - kube-scheduler\n", "    - kube-scheduler\n    - --v=7\n")
	editFile(t, s.Root+etcd, "    - etcd\n", "    - etcd\n    - --v=7\n") // this edit stays
	var said strings.Builder
	h.Has.Time = time.Date(2026, 2, 4, 0, 0, 0, 0, time.UTC)
	r, n, err := newRollback(t.Context(), noAPI(), h, otherMembers{}, false, &said)
	if err != nil {
		t.Fatal(err)
	}
	fact.In(t, said.String(), settings+", "+scheduler, phasetest.RollbackBackups+editedCopies)
	fact.NotIn(t, said.String(), etcd, "kube-apiserver.yaml")
	if err := phasetest.CrashRun(t.Context(), n, h, s.API.Listener.Addr().String(), io.Discard, r.Phases()[1:2], nil); err != nil {
		t.Fatal(err)
	}
	copies := phasetest.RollbackBackups + editedCopies + "2026-02-04-00-00-00/"
	fact.In(t, fixture.Get(t, s.Root, copies+"config.yaml"), "podPidsLimit: 77")
	fact.In(t, fixture.Get(t, s.Root, copies+"kube-scheduler.yaml"), "--v=7")
	fact.In(t, fixture.Get(t, s.Root, settings), "maxPods: 99")
	all, err := filepath.Glob(s.Root + phasetest.RollbackBackups + editedCopies + "*/*")
	if diff := cmp.Diff([]string{s.Root + copies + "config.yaml", s.Root + copies + "kube-scheduler.yaml"}, all); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestRollbackWithoutAnswer: a rollback reports facts it couldn't check, or isn't certain about, and goes on.
func TestRollbackWithoutAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		change func(edit func(path, old, new string), replace func(path, from string))
		says   []string
	}{
		"etcd without data": {func(edit func(path, old, new string), _ func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: abc")
		}, []string{"not checked", "abc"}},
		"etcd with a damaged log": {func(edit func(path, old, new string), replace func(path, from string)) {
			edit(backedUpManifests+"upgrade.yaml", "node: cp-1", "node: cp-1\netcdCluster: abc")
			replace("/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal", "text:damaged")
		}, []string{"not checked", "abc", "/var/lib/etcd/member/wal"}},
		"a run after an earlier release's": {func(edit func(path, old, new string), replace func(path, from string)) {
			ofEarlierRelease(edit)
			replace("/etc/kubernetes/pki/ca.crt", "text:"+authoritySince(t, time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)))
			anotherRun("04-06-07", config.DefaultKubernetesVersion, "3.6", replace)
		}, []string{"2026-02-03 04:05:06 UTC", "2026-02-03 04:06:07 UTC", config.DefaultKubernetesVersion}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewScene(t, rollbackScenario)
			defer s.Close()
			row.change(func(path, old, new string) { editFile(t, s.Root+path, old, new) }, func(path, from string) { replaceFile(t, s.Root, path, from) })
			var said strings.Builder
			if _, _, err := newRollback(t.Context(), noAPI(), phasetest.NewLastingHost(s.Root), otherMembers{}, false, &said); err != nil {
				t.Fatal(err)
			}
			fact.In(t, said.String(), row.says...)
		})
	}
}
