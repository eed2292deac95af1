// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package snapshot saves etcd to a file with a record (Save), checks such files (Verify), removes old ones (Prune), and restores
// etcd from them (Restore). PruneData removes the data that etcd had before. internal/snapshots has the files' forms and records;
// phases/backup takes the snapshot.
//
//   - save.go, save_source.go: a snapshot, its turn and the member it comes from
//   - drafts.go, upload.go: files of interrupted saves, and the operator's program for uploads
//   - record.go, contents.go: the record beside a snapshot, and what the database itself says
//   - seal.go, files.go: --with-pki, and this control plane's files in it
//   - verify.go, prune.go: reads files again, and removes surplus ones
//   - restore.go, restore_source.go, restore_fits.go: a restore, its file, and the refusals before anything stops
//   - restore_data.go, restore_settle.go, restore_kubelets.go: the replacement of data, and the wait for controllers and kubelets
//   - init_restore.go, bare_files.go, configuration.go: `init --restore` on a host without a control plane
//   - prune_data.go: data that etcd had before
//   - memory.go: keeps the memory of reading a large file small
package snapshot

import (
	"context"
	stderrors "errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// Options say how to save etcd.
type Options struct {
	Dir string
	// InTurn is for a timer: it waits for this host's turn among etcd's members, and takes only a healthy member's snapshot.
	InTurn bool
	// Upload is the operator's command that takes the files elsewhere; empty for none.
	Upload string
	// Recipients are whom to seal the snapshot for, together with this control plane's files; none for a plain snapshot.
	Recipients snapshots.Recipients
	Slipway    string // this program's version
}

// pace leaves an etcd on the same two processors and disk enough of both to serve its clients: docs/speed.md.
const pace etcd.Pace = 16 << 20

// plainDir is where the snapshot is written first. One that's sealed afterwards stays on this host until then: the directory it's for
// may be another machine's.
func (o Options) plainDir() string {
	if len(o.Recipients) > 0 {
		return snapshots.Dir
	}
	return o.Dir
}

// dirs are the directories that a save writes to.
func (o Options) dirs() []string {
	return slices.Compact([]string{o.plainDir(), filepath.Clean(o.Dir)})
}

// Save writes a snapshot and its record, and returns its path.
func Save(ctx context.Context, env *step.Env, o Options) (path string, err error) {
	defer limitMemory()()
	if err := checkLocalEtcd(env); err != nil {
		return "", err
	}
	if o.InTurn {
		if err := awaitEtcd(ctx, env); err != nil {
			return "", err
		}
		if err := awaitTurn(ctx, env); err != nil {
			return "", err
		}
	}
	source, err := chooseSource(ctx, env, o.InTurn)
	if err != nil {
		return "", err
	}
	for _, dir := range o.dirs() {
		if err := ensureDir(env, dir); err != nil {
			return "", err
		}
		if err := sweep(env, dir); err != nil {
			return "", err
		}
	}
	if err := ensureSpace(env, o, uint64(source.Status.Size)); err != nil {
		return "", err
	}
	path, err = write(ctx, env, o, source)
	if err == nil && o.Upload != "" {
		err = upload(ctx, env, o.Upload, path)
	}
	return path, err
}

// write writes the snapshot under a hidden name at first, so that each file with a snapshot's name is whole and has a record.
func write(ctx context.Context, env *step.Env, o Options, source etcd.Health) (path string, err error) {
	if err := awaitName(ctx, env, o.Dir); err != nil {
		return "", err
	}
	record := newRecord(env, o, source)
	path = filepath.Join(o.Dir, snapshots.Name(record.Node, record.Taken))
	draft := draftOf(filepath.Join(o.plainDir(), filepath.Base(path)))
	info, err := backup.Snapshot(ctx, env, source.PeerURL, draft, pace)
	if err == nil {
		record = complete(env, record, info)
	}
	if err == nil && len(o.Recipients) > 0 {
		path, err = unsealed{record, info.Contents, path, draft}.seal(ctx, env, o.Recipients)
		left := env.Host.Remove(draft)
		return path, stderrors.Join(err, left)
	}
	if err == nil {
		err = publish(env, record, draft, path)
	}
	if err != nil {
		left := env.Host.Remove(draft) // nothing would count it
		return "", stderrors.Join(err, left)
	}
	return path, nil
}

// awaitName waits for the next second if this one has a snapshot already: their names have no fractions.
func awaitName(ctx context.Context, env *step.Env, dir string) error {
	now := env.Host.Now()
	path := filepath.Join(dir, snapshots.Name(env.Config.Name, now))
	taken, err := host.Exists(env.Host, path)
	if err == nil && !taken {
		taken, err = host.Exists(env.Host, sealedPath(path))
	}
	if err != nil || !taken {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
		return nil
	}
}

// complete adds the snapshot's own facts to its record.
func complete(env *step.Env, r snapshots.Record, info etcd.SnapshotInfo) snapshots.Record {
	r.Revision, r.Keys, r.Storage = info.Revision, info.Keys, info.Version
	r.ClusterUID, r.Alarms = uidIn(info.Contents), info.Contents.Alarms
	if slices.Contains(r.Alarms, "NOSPACE") {
		env.UI.Warn("etcd is full (alarm NOSPACE): once this snapshot is restored, etcd accepts no writes either",
			"run `slipway etcd defrag`, and take another")
	}
	for _, m := range info.Members {
		r.Members = append(r.Members, memberOf(m))
	}
	r.Size, r.SHA256 = info.Size, info.FileHash
	return r
}

// publish writes the record, and then gives a draft its name.
func publish(env *step.Env, r snapshots.Record, draft, path string) error {
	if exists, err := host.Exists(env.Host, path); err != nil {
		return err
	} else if exists {
		return errors.Errorf("%s exists: another save began in the same second; run the same command again", path)
	}
	data, err := r.Encode()
	if err != nil {
		return err
	}
	if _, err := env.Host.WriteSecret(snapshots.RecordPath(path), data); err != nil {
		return err
	}
	if _, err := env.Host.Rename(draft, path); err != nil {
		left := env.Host.Remove(snapshots.RecordPath(path))
		return stderrors.Join(err, left)
	}
	return nil
}

func checkLocalEtcd(env *step.Env) error {
	external := env.Config.Cluster.Etcd.External
	if external == nil {
		return nil
	}
	return fault.New(fmt.Sprintf("this cluster's etcd is external, at %v: Slipway neither saves nor restores it", external.Endpoints),
		"take its snapshots on its own hosts, with `etcdctl snapshot save`")
}

// ensureDir makes a missing directory, for root alone. An operator's own keeps its mode.
func ensureDir(env *step.Env, dir string) error {
	if _, err := env.Host.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return env.Host.EnsureDir(dir, 0o700)
}

// ensureSpace fails if the snapshot would leave less than a tenth of a disk free. While a snapshot is sealed, it's there twice.
func ensureSpace(env *step.Env, o Options, size uint64) error {
	needs := []preflight.Need{{Dir: o.plainDir(), What: "the snapshot of etcd", Bytes: size}}
	if len(o.Recipients) > 0 {
		needs = append(needs, preflight.Need{Dir: o.Dir, What: "the sealed snapshot", Bytes: size + snapshots.MaxFiles})
	}
	for i, need := range needs {
		for _, f := range preflight.Room(env.Host, need, slices.Delete(slices.Clone(needs), i, i+1)...) {
			if f.Severity == fault.Error {
				return fault.New(f.Message, f.Remedy+"; `slipway etcd snapshot prune` removes old snapshots in "+o.Dir)
			}
			env.UI.Warn(f.Message, f.Remedy)
		}
	}
	return nil
}

func memberOf(m etcd.Member) snapshots.Member {
	return snapshots.Member{ID: backup.EtcdID(m.ID), Name: m.Name, PeerURL: m.PeerURL}
}
