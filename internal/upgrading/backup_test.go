// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/test/fact"
)

// A backup in these tests is a directory with files and, in most cases, a record of an upgrade to a version. A file's content is
// the version it's from.
type kept struct {
	dir, to string
	files   string // NAME=VERSION, separated by spaces
}

const (
	manifests1 = ManifestBackup + "2026-01-01-00-00-00"
	manifests2 = ManifestBackup + "2026-02-01-00-00-00"
	manifests3 = ManifestBackup + "2026-02-01-00-10-00"
	kubelet1   = KubeletBackup + "2026-01-01-00-01-00"
	kubelet2   = KubeletBackup + "2026-02-01-00-01-00"
	etcd1      = EtcdBackup + "2026-01-01-00-00-00"
	etcd2      = EtcdBackup + "2026-02-01-00-00-00"
	etcd3      = EtcdBackup + "2026-02-01-00-10-00"
)

func TestLastBackup(t *testing.T) {
	etcd2Kept, etcd3Kept := kept{etcd2, "", "snapshot.db=1.36.4"}, kept{etcd3, "", "snapshot.db=1.36.4"}
	first := []kept{
		{manifests1, "v1.36.4", "kube-apiserver.yaml=1.35.8 etcd.yaml=1.35.8"}, {etcd1, "", "snapshot.db=1.35.8"}, {kubelet1, "v1.36.4", "config.yaml=1.35.8 kubeadm-flags.env=1.35.8"},
	}
	second := []kept{
		{manifests2, "v1.37.2", "kube-apiserver.yaml=1.36.4 etcd.yaml=1.36.4"}, {etcd2, "", "snapshot.db=1.36.4"}, {kubelet2, "v1.37.2", "config.yaml=1.36.4"},
	}
	march := []kept{{ManifestBackup + "2026-03-01-00-00-00", "v1.37.2", "kube-apiserver.yaml=1.37.2 etcd.yaml=1.37.2"}, {EtcdBackup + "2026-03-01-00-00-00", "", "snapshot.db=1.37.2"}}
	for name, tt := range map[string]struct {
		kept     []kept
		rollback string // end of the last one
		of       string // start of the upgrade it rolled back
		want     string // version, files and their directories' times
	}{
		"none":               {},
		"other files":        {kept: []kept{{"kubeadm-init-dryrun123", "", "kube-apiserver.yaml=1"}, {ManifestBackup + "yesterday", "", "kube-apiserver.yaml=1"}}},
		"one upgrade":        {kept: first, want: "v1.35.8: etcd@01-01 kube-apiserver@01-01; config.yaml@01-01 kubeadm-flags.env@01-01; 01-01"},
		"two upgrades":       {kept: slices.Concat(first, second), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"after a rollback":   {kept: slices.Concat(first, second), rollback: "2026-02-02", want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"since a rollback":   {kept: slices.Concat(first, second), rollback: "2026-01-02", want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"an interrupted run": {kept: slices.Concat(first, second, []kept{{manifests3, "v1.37.2", "kube-apiserver.yaml=1.37.2 kube-scheduler.yaml=1.36.4"}, {etcd3, "", "snapshot.db=1.37.2"}}), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01 kube-scheduler@02-01; config.yaml@02-01; 02-01 (02-01)"},
		"a run that was put back": {kept: slices.Concat(second, []kept{{manifests3, "v1.37.2", "kube-apiserver.yaml=1.36.4"}, {etcd3, "", "snapshot.db=1.36.4"}}),
			want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01 02-01"},
		"a run of an earlier release that found the API server replaced": {kept: slices.Concat(second, []kept{{manifests3, "v1.37.2", "etcd.yaml=1.37.2 kube-scheduler.yaml=1.36.4"}, {etcd3, "", "snapshot.db=1.37.2"}}),
			want: "v1.36.4: etcd@02-01 kube-apiserver@02-01 kube-scheduler@02-01; config.yaml@02-01; 02-01 (02-01)"},
		"only the scheduler is replaced": {kept: []kept{{manifests2, "v1.37.2", "etcd.yaml=1.37.2 kube-scheduler.yaml=1.37.2"}, etcd2Kept}, want: ": etcd@02-01 kube-scheduler@02-01; ; 02-01"},
		"a digest": {kept: inCluster([]kept{{manifests2, "v1.37.2", "kube-apiserver.yaml=@sha256:36"}, etcd2Kept, {manifests3, "v1.37.2", "kube-apiserver.yaml=1.37.2"}, {etcd3, "", "snapshot.db=1.37.2"}}, "sha256:1"),
			want: ": kube-apiserver@02-01; ; 02-01 (02-01)"},
		"tag and digest":                                           {kept: []kept{{manifests2, "v1.37.2", "kube-apiserver.yaml=1.36.4@sha256:36"}}, want: "v1.36.4: kube-apiserver@02-01; ; "},
		"a later run finds a wreck":                                {kept: slices.Concat(second, []kept{{manifests3, "v1.37.2", "kube-apiserver.yaml=["}, {etcd3, "", "snapshot.db=1.37.2"}}), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01 (02-01)"},
		"two runs of earlier releases":                             {kept: slices.Concat(second, march), want: "v1.37.2: etcd@03-01 kube-apiserver@03-01; ; 03-01, after 02-01"},
		"a run after an earlier release's":                         {kept: slices.Concat(second, inCluster(march, "sha256:1")), want: "v1.37.2: etcd@03-01 kube-apiserver@03-01; ; 03-01, after 02-01"},
		"before a run after an earlier release's, which went back": {kept: second, rollback: "2026-03-02", of: "2026-03-01", want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"a run after two of an earlier release": {kept: slices.Concat(second, march, inCluster([]kept{{ManifestBackup + "2026-03-02-00-00-00", "v1.37.2", "kube-apiserver.yaml=1.37.2 kube-scheduler.yaml=1.37.2"}}, "sha256:1")),
			want: "v1.37.2: kube-apiserver@03-02 kube-scheduler@03-02; ; , after 03-01"},
		"an earlier release's crash after the API server": {kept: slices.Concat(second[:2], inCluster([]kept{{manifests3, "v1.37.2", "kube-apiserver.yaml=1.37.2 kube-scheduler.yaml=1.36.4"}, {KubeletBackup + "2026-02-01-00-20-00", "v1.37.2", "config.yaml=1.36.4"}}, "sha256:1")),
			want: "v1.36.4: etcd@02-01 kube-apiserver@02-01 kube-scheduler@02-01; config.yaml@02-01; 02-01"},
		"an earlier release's crash before the API server": {kept: slices.Concat(second[:2], inCluster([]kept{{manifests3, "v1.37.2", "kube-apiserver.yaml=1.36.4 kube-scheduler.yaml=1.36.4"}, etcd3Kept}, "sha256:1")),
			want: "v1.36.4: etcd@02-01 kube-apiserver@02-01 kube-scheduler@02-01; ; 02-01 02-01"},
		"an earlier release's crash before the kubelet's settings": {kept: slices.Concat(second, inCluster([]kept{{KubeletBackup + "2026-02-01-00-20-00", "v1.37.2", "config.yaml=1.36.4"}}, "sha256:1")),
			want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"the kubelet's settings after an earlier release's upgrade": {kept: slices.Concat(second, inCluster([]kept{{KubeletBackup + "2026-03-01-00-00-00", "v1.37.2", "config.yaml=1.37.2"}}, "sha256:1")),
			want: ": ; config.yaml@03-01; , after 02-01"},
		"the kubelet's settings after an earlier release's static Pods": {kept: slices.Concat(second[:2], inCluster([]kept{{KubeletBackup + "2026-03-01-00-00-00", "v1.37.2", "config.yaml=1.36.4"}}, "sha256:1")),
			want: ": ; config.yaml@03-01; , after 02-01"},
		"a worker, after an earlier release's upgrade": {kept: slices.Concat(second[2:], inCluster([]kept{{KubeletBackup + "2026-03-01-00-00-00", "v1.37.2", "config.yaml=1.37.2"}}, "sha256:1")),
			want: ": ; config.yaml@03-01; , after 02-01"},
		"an earlier release's crash at a digest": {kept: []kept{{manifests2, "v1.37.2", "kube-apiserver.yaml=@sha256:36"}, {manifests3, "v1.37.2\nca: sha256:1", "kube-apiserver.yaml=@sha256:36"}}, want: ": kube-apiserver@02-01; ; "},
		"a run after an earlier release's at a digest": {kept: []kept{{manifests1, "v1.37.2", "kube-apiserver.yaml=@sha256:36"}, {manifests3, "v1.37.2\nca: sha256:1", "kube-apiserver.yaml=@sha256:37"}},
			want: ": kube-apiserver@02-01; ; , after 01-01"},
		"the same again, since a rollback": {kept: slices.Concat(second, []kept{{ManifestBackup + "2026-03-01-00-00-00", "v1.37.2", "kube-apiserver.yaml=1.36.4"}}), rollback: "2026-02-02",
			want: "v1.36.4: kube-apiserver@03-01; ; "},
		"the same again, after its rollback": {kept: slices.Concat(second, []kept{{ManifestBackup + "2026-03-01-00-00-00", "v1.37.2", "kube-apiserver.yaml=1.36.4"}}), rollback: "2026-03-02", of: "2026-03-01",
			want: "v1.36.4: kube-apiserver@03-01; ; "},
		"the same again, while it is rolled back": {kept: slices.Concat(second, []kept{{ManifestBackup + "2026-03-01-00-00-00", "v1.37.2", "kube-apiserver.yaml=1.36.4"}}), of: "2026-03-01",
			want: "v1.36.4: kube-apiserver@03-01; ; "},
		"the same again, after it was completed": {kept: slices.Concat(completed(second), march), want: "v1.37.2: etcd@03-01 kube-apiserver@03-01; ; 03-01"},
		"the same again, in two runs": {kept: slices.Concat(completed(second), inCluster(march, "sha256:1"), []kept{{ManifestBackup + "2026-03-02-00-00-00", "v1.37.2", "kube-apiserver.yaml=1.37.2 kube-scheduler.yaml=1.37.2"},
			{EtcdBackup + "2026-03-02-00-00-00", "", "snapshot.db=1.37.2"}}), want: "v1.37.2: etcd@03-01 kube-apiserver@03-01 kube-scheduler@03-02; ; 03-01 03-02"},
		"the same again, completed":             {kept: completed(slices.Concat(completed(second), march)), want: "v1.37.2: etcd@03-01 kube-apiserver@03-01; ; 03-01"},
		"completed":                             {kept: completed(second), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"completed in two runs":                 {kept: completed(inCluster(slices.Concat(second, march), "sha256:1")), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01 (03-01)"},
		"only the kubelet's settings since":     {kept: slices.Concat(completed(second), []kept{{KubeletBackup + "2026-03-01-00-00-00", "v1.37.2", "config.yaml=1.37.2"}}), want: ": ; config.yaml@03-01; "},
		"a killed run's":                        {kept: []kept{{kubelet1, "v1.36.4", "config.yaml=1.35.8 .upgrade.yaml.slipway-1=1.35.8"}}, want: ": ; config.yaml@01-01; "},
		"a worker, after it was completed":      {kept: slices.Concat(completed(second[2:]), []kept{{KubeletBackup + "2026-03-01-00-00-00", "v1.37.2", "config.yaml=1.37.2"}}), want: ": ; config.yaml@03-01; "},
		"the same version in another cluster":   {kept: slices.Concat(inCluster(second, "sha256:1"), inCluster(march, "sha256:2")), want: "v1.37.2: etcd@03-01 kube-apiserver@03-01; ; 03-01"},
		"the same cluster with another CA more": {kept: slices.Concat(inCluster(second, "sha256:1"), inCluster(march, "sha256:2,sha256:1")), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01 (03-01)"},
		"kubeadm's":                             {kept: unrecorded(slices.Concat(first, second)), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"after kubeadm's":                       {kept: slices.Concat(unrecorded(first), second), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"before kubeadm's":                      {kept: slices.Concat(first, unrecorded(second)), want: "v1.36.4: etcd@02-01 kube-apiserver@02-01; config.yaml@02-01; 02-01"},
		"kubeadm's worker":                      {kept: unrecorded([]kept{first[2], second[2]}), want: ": ; config.yaml@02-01; "},
		"a worker":                              {kept: []kept{first[2], second[2]}, want: ": ; config.yaml@02-01; "},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, k := range tt.kept {
				write(t, filepath.Join(root, k.dir), k)
			}
			var rollback Progress
			rollback.Finished, _ = time.Parse(time.DateOnly, tt.rollback)
			rollback.Began, _ = time.Parse(time.DateOnly, tt.of)
			b, err := LastBackup(linux.New(), root, rollback)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.text(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// completed marks the upgrade behind these backups as complete.
func completed(list []kept) []kept {
	out := slices.Clone(list)
	for i := range slices.Backward(out) {
		if out[i].to != "" {
			out[i].to += "\ncompleted: 2026-02-01T00:02:00Z"
			break
		}
	}
	return out
}

// inCluster sets the CAs of the backups' cluster.
func inCluster(list []kept, pins string) []kept {
	out := slices.Clone(list)
	for i := range out {
		if out[i].to != "" {
			out[i].to += "\nca: " + pins
		}
	}
	return out
}

func unrecorded(list []kept) (out []kept) {
	for _, k := range list {
		k.to = ""
		out = append(out, k)
	}
	return out
}

func write(t *testing.T, dir string, k kept) {
	t.Helper()
	err := os.Mkdir(dir, 0o700)
	if k.to != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, RecordFile), []byte("node: cp-1\nto: "+k.to+"\n"), 0o600))
	}
	for file := range strings.FieldsSeq(k.files) {
		name, version, _ := strings.Cut(file, "=")
		pod := "spec: {containers: [{image: registry.k8s.io/x:v" + version + "}]}"
		if strings.HasPrefix(version, "@") {
			pod = "spec: {containers: [{image: registry.k8s.io/x" + version + "}]}"
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(pod), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// text describes a backup, with month and day for each file, later snapshots in parentheses, and the upgrade before.
func (b *Backup) text() string {
	if b == nil {
		return ""
	}
	day := func(path string) string {
		dir := filepath.Base(filepath.Dir(path))
		return dir[strings.Index(dir, "-2026-")+6:][:5]
	}
	list := func(files map[string]string) string {
		var out []string
		for _, name := range slices.Sorted(maps.Keys(files)) {
			out = append(out, name+"@"+day(files[name]))
		}
		return strings.Join(out, " ")
	}
	var snapshots []string
	for _, path := range b.Snapshots {
		snapshots = append(snapshots, day(path))
	}
	for _, path := range b.Later {
		snapshots = append(snapshots, "("+day(path)+")")
	}
	text := fmt.Sprintf("%s: %s; %s; %s", b.From, list(b.Manifests), list(b.Kubelet), strings.Join(snapshots, " "))
	if !b.Earlier.IsZero() {
		text += b.Earlier.Format(", after 01-02")
	}
	return text
}

// TestLastBackupRecord: a rollback's facts come from the first run that recorded them. The phase for the kubelet's settings alone
// doesn't record the cluster's configuration.
func TestLastBackupRecord(t *testing.T) {
	root := t.TempDir()
	for dir, record := range map[string]string{
		kubelet2:                               "node: cp-1\nto: v1.37.2\n",
		manifests3:                             "node: cp-1\nto: v1.37.2\netcdCluster: abc\nclusterConfiguration: before\nkubeletConfiguration: \"maxPods: 1\"\n",
		ManifestBackup + "2026-02-01-00-20-00": "node: cp-1\nto: v1.37.2\netcdCluster: abc\nclusterConfiguration: after\nkubeletConfiguration: \"maxPods: 2\"\n",
	} {
		err := os.Mkdir(filepath.Join(root, dir), 0o700)
		if err = errors.Join(err, os.WriteFile(filepath.Join(root, dir, RecordFile), []byte(record), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := LastBackup(linux.New(), root, Progress{})
	if err != nil {
		t.Fatal(err)
	}
	want := Record{Node: "cp-1", To: "v1.37.2", EtcdCluster: "abc", ClusterConfiguration: "before", KubeletConfiguration: "maxPods: 1"}
	if !reflect.DeepEqual(b.Record, want) {
		t.Errorf("got %+v, want %+v", b.Record, want)
	}
	if began, ended := b.Began.Format(host.BackupTime), b.Ended.Format(host.BackupTime); began != "2026-02-01-00-01-00" || ended != "2026-02-01-00-20-00" {
		t.Errorf("from %s to %s", began, ended)
	}
}

// TestLastBackupOfEtcdCluster: clusters may share a CA, and a restore makes a new etcd cluster.
func TestLastBackupOfEtcdCluster(t *testing.T) {
	root := t.TempDir()
	for _, k := range []kept{{manifests2, "v1.37.2\nca: sha256:1\netcdCluster: abc", "kube-apiserver.yaml=1.36.4"}, {manifests3, "v1.37.2\nca: sha256:1\netcdCluster: def", "kube-apiserver.yaml=1.37.2"}} {
		write(t, filepath.Join(root, k.dir), k)
	}
	began := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		rollback Progress
		from     string
		clusters []string
	}{
		"another cluster":              {Progress{}, "v1.37.2", []string{"def"}},
		"restored":                     {Progress{Began: began, OldData: "/x"}, "v1.36.4", []string{"abc", "def"}},
		"put back without etcd's data": {Progress{Began: began}, "v1.37.2", []string{"def"}},
		"a restore before both":        {Progress{Began: began.AddDate(0, -1, 0), OldData: "/x", Finished: began.AddDate(0, 0, -9)}, "v1.37.2", []string{"def"}},
		"a restore of a later upgrade": {Progress{Began: began.AddDate(0, 0, 1), OldData: "/x"}, "v1.37.2", []string{"def"}},
	} {
		b, err := LastBackup(linux.New(), root, row.rollback)
		if err != nil || b.From != row.from || !slices.Equal(b.EtcdClusters, row.clusters) {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

// TestCompleted: the end of an upgrade is recorded once, and a rollback takes it back. kubeadm's backups stay as they are.
func TestCompleted(t *testing.T) {
	root := t.TempDir()
	h := linux.New()
	read := func() *Backup {
		b, err := LastBackup(h, root, Progress{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	write(t, filepath.Join(root, manifests1), kept{manifests1, "", "kube-apiserver.yaml=1.35.8"})
	if err := read().Complete(h); err != nil || !read().Completed.IsZero() {
		t.Error(err)
	}
	for _, k := range []kept{{manifests2, "v1.37.2\nca: sha256:1", "kube-apiserver.yaml=1.36.4"}, {etcd2, "", "snapshot.db=1.36.4"}} {
		write(t, filepath.Join(root, k.dir), k)
	}
	if err := read().Complete(h); err != nil {
		t.Fatal(err)
	}
	first := read()
	if err := first.Complete(h); err != nil || first.Completed.IsZero() || first.Node != "cp-1" || first.CA != "sha256:1" || first.From != "v1.36.4" {
		t.Errorf("%+v, %v", first, err)
	}
	write(t, filepath.Join(root, manifests3), kept{manifests3, "v1.37.2\nca: sha256:1", "kube-apiserver.yaml=1.37.2"})
	if b := read(); b.From != "v1.37.2" || !b.Completed.IsZero() {
		t.Errorf("the next run: %+v", b)
	}
	if err := first.Reopen(h); err != nil {
		t.Fatal(err)
	}
	if b := read(); b.From != "v1.36.4" || !b.Completed.IsZero() || b.CA != "sha256:1" {
		t.Errorf("after a rollback began: %+v", b)
	}
}

// TestLastBackupDamaged: a damaged static Pod in a backup is in the way of a rollback, but not of the next upgrade.
func TestLastBackupDamaged(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, manifests1), kept{manifests1, "v1.36.4", "etcd.yaml=1.35.8"})
	path := filepath.Join(root, manifests1, "kube-apiserver.yaml")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := LastBackup(linux.New(), root, Progress{})
	if err != nil || b == nil || b.To != "v1.36.4" || b.From != "" || b.Manifests["kube-apiserver"] != path {
		t.Fatalf("%+v, %v", b, err)
	}
	_, _, err = Source{Host: linux.New()}.NodeBefore(t.Context(), b, &config.JoinConfiguration{})
	fact.Error(t, err, path)
}

// TestWrote: an upgrade that took several runs may have written a file in any of them.
func TestWrote(t *testing.T) {
	root := t.TempDir()
	for dir, text := range map[string]string{kubelet2: "one", KubeletBackup + "2026-02-01-00-20-00": "two"} {
		write(t, filepath.Join(root, dir), kept{dir, "v1.37.2\nca: sha256:1\nwritten:\n  config.yaml: " + host.HashOf([]byte(text)), "config.yaml=" + text})
	}
	b, err := LastBackup(linux.New(), root, Progress{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, text     string
		same, recorded bool
	}{{"config.yaml", "one", true, true}, {"config.yaml", "two", true, true}, {"config.yaml", "three", false, true}, {"kubeadm-flags.env", "one", false, false}} {
		if same, recorded := b.Wrote(row.name, []byte(row.text)); same != row.same || recorded != row.recorded {
			t.Errorf("%s, %s: %t, %t", row.name, row.text, same, recorded)
		}
	}
}

// countedReads is a host that allows only some reads of files.
type countedReads struct {
	host.Host
	left int
}

func (c *countedReads) ReadFile(path string) ([]byte, error) {
	if c.left--; c.left < 0 {
		return nil, errors.New("too many reads")
	}
	return c.Host.ReadFile(path)
}

// TestLastBackupOfManyRuns: each run of an earlier release may have been its upgrade's last, and is looked at once.
func TestLastBackupOfManyRuns(t *testing.T) {
	const count = 40
	root, first := t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range count {
		dir := ManifestBackup + first.AddDate(0, 0, i).Format(host.BackupTime)
		write(t, filepath.Join(root, dir), kept{dir, "v1.37.2", "kube-apiserver.yaml=1.36.4"})
	}
	b, err := LastBackup(&countedReads{linux.New(), 20 * count}, root, Progress{})
	if err != nil {
		t.Fatal(err)
	}
	if !b.Began.Equal(first) || b.From != "v1.36.4" {
		t.Errorf("from %s, began %s", b.From, b.Began)
	}
}

// TestProgressConcerns: progress counts until the upgrade replaces static Pods again.
func TestProgressConcerns(t *testing.T) {
	began, ended := time.Unix(100, 0), time.Unix(200, 0)
	b := &Backup{Began: began, Ended: ended}
	for name, tt := range map[string]struct {
		progress Progress
		want     bool
	}{
		"this upgrade":       {Progress{Began: began, Ended: ended}, true},
		"an earlier release": {Progress{Began: began}, true},
		"upgraded again":     {Progress{Began: began, Ended: began}, false},
		"another upgrade":    {Progress{Began: time.Unix(1, 0), Ended: ended}, false},
	} {
		if got := tt.progress.IsOf(b); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestNodeBeforeUnasked: if neither the backup nor the API has the configuration, the host's static Pods show where etcd is.
func TestNodeBeforeUnasked(t *testing.T) {
	for name, tt := range map[string]struct {
		onHost, inBackup bool
		external         bool
	}{
		"on this host":               {onHost: true, inBackup: true},
		"stopped":                    {inBackup: true},
		"not replaced by an upgrade": {onHost: true},
		"elsewhere":                  {external: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			h := linux.NewAt(root)
			dir := filepath.Join(root, "/etc/kubernetes/manifests")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			static := []string{"kube-apiserver"}
			if tt.onHost {
				static = append(static, "etcd")
			}
			for _, component := range static {
				if err := os.WriteFile(filepath.Join(dir, component+".yaml"), []byte("kind: Pod"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b := &Backup{From: "v1.36.4", Manifests: map[string]string{"kube-apiserver": "x"}}
			if tt.inBackup {
				b.Manifests["etcd"] = "y"
			}
			none := cluster.New(cluster.Options{Kubeconfig: "x", Timeout: time.Second, ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
			n, warnings, err := Source{API: none, Host: h}.NodeBefore(t.Context(), b, thisnode.Current(h))
			if err != nil {
				t.Fatal(err)
			}
			if got := n.Cluster.Etcd.External != nil; got != tt.external || len(warnings) == 0 {
				t.Errorf("external: %t, warnings %q", got, warnings)
			}
		})
	}
}
