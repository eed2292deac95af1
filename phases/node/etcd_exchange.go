// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EtcdExchange replaces the data of this host's etcd. The caller goes through these steps:
//
//  1. Build makes the new data beside the old, while everything still runs.
//  2. The caller writes a journal with Aside, and with etcd's manifest, because the next step removes it.
//  3. Stop removes etcd's static Pod, so that neither the kubelet nor a boot starts etcd, and stops the control plane.
//  4. Exchange puts the new data in place with two renames. The old data stays, as Aside.
//  5. Swap writes etcd's static Pod again, and starts the control plane.
//
// A run that was interrupted may have changed something once Begun: then the same steps, with the journal's Aside, finish it. No
// etcd ever starts without data, or with half of it.
type EtcdExchange struct {
	// Data is the directory with etcd's data, Fresh the directory with the new data, Aside the later name of the old data.
	Data, Fresh, Aside string
}

// Names beside the directory `member`. Aside is made of asideInfix, the workflow and the time. In EtcdReplayDir, an etcd adds to a
// copy of the database what's only in the log.
const (
	EtcdReplayDir = EtcdMemberDir + ".replay"
	freshSuffix   = ".new"
	asideInfix    = ".before-"
)

// NewEtcdExchange is for the etcd of a static Pod. Without Aside, it's incomplete.
func NewEtcdExchange(manifest []byte) (EtcdExchange, error) {
	dir := EtcdDataDir(manifest)
	if !filepath.IsAbs(dir) {
		return EtcdExchange{}, errors.New("it does not say where etcd's data is")
	}
	if pod, err := DecodePod(manifest); err == nil {
		if member, _ := manifests.ReadEtcd(pod); member.WALDir != "" {
			return EtcdExchange{}, errors.Errorf("etcd keeps its log in a directory of its own (--wal-dir=%s), which cannot be restored; see https://etcd.io/docs/v3.6/op-guide/recovery/", member.WALDir)
		}
	}
	data := filepath.Join(dir, EtcdMemberDir)
	return EtcdExchange{Data: data, Fresh: data + freshSuffix}, nil
}

// AsideAt returns a name for the old data, for a workflow such as rollback. EtcdAside recognizes it.
func (x EtcdExchange) AsideAt(workflow string, now time.Time) string {
	return x.Data + asideInfix + workflow + "-" + now.UTC().Format(upgrading.BackupTime)
}

// EtcdAside reports whether an EtcdExchange has given this name to something beside etcd's data: to old data, of a time, or, with
// the zero time, to new data that isn't in place yet.
func EtcdAside(name string) (at time.Time, found bool) {
	if of, partial := host.LeftoverOf(name); partial {
		name = of
	}
	if name == EtcdMemberDir+freshSuffix || name == EtcdReplayDir {
		return time.Time{}, true
	}
	rest, found := strings.CutPrefix(name, EtcdMemberDir+asideInfix)
	workflow, stamp, _ := strings.Cut(rest, "-")
	at, err := time.Parse(upgrading.BackupTime, stamp)
	return at, found && workflow != "" && err == nil
}

// Begun reports whether an earlier run may have stopped etcd, or has moved its data. Before a journal with Aside, none has.
func (x EtcdExchange) Begun(env *step.Env) (bool, error) {
	if moved, err := x.moved(env); err != nil || moved || x.Aside == "" {
		return moved, err
	}
	runs, err := host.Exists(env.Host, thisnode.StaticPodPath(env.Config, manifests.EtcdName))
	return !runs && err == nil, err
}

func (x EtcdExchange) moved(env *step.Env) (bool, error) {
	if x.Aside == "" {
		return false, nil
	}
	return host.Exists(env.Host, x.Aside)
}

// Build makes the new data with fill, as WriteTree does, after ready agrees. It starts over unless an earlier run has begun the
// exchange.
func (x EtcdExchange) Build(env *step.Env, ready func() error, fill func(dir string) error) error {
	if moved, err := x.moved(env); err != nil || moved {
		return err
	}
	if _, err := env.Host.RemoveTree(x.Fresh); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	if err := env.Host.WriteTree(x.Fresh, fill); err != nil {
		return err
	}
	return x.giveAsBefore(env)
}

// giveAsBefore gives the new data to the owner of the old, or of its directory: etcd may run as its own user.
func (x EtcdExchange) giveAsBefore(env *step.Env) error {
	info, err := env.Host.Lstat(x.Data)
	if errors.Is(err, fs.ErrNotExist) { // lost with its disk
		info, err = env.Host.Lstat(filepath.Dir(x.Data))
	}
	if err != nil {
		return err
	}
	if owner, known := host.OwnerIn(info); known && owner != (host.Owner{}) {
		_, err = env.Host.GiveTree(x.Fresh, owner)
	}
	return err
}

// Stop stops etcd and its clients. Without its static Pod, etcd starts neither with the kubelet nor after a reboot.
func (x EtcdExchange) Stop(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Stopping the kubelet and the control plane")
	if err := env.Host.Remove(thisnode.StaticPodPath(env.Config, manifests.EtcdName)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	if err := env.Host.OrderUnit(limited, host.StopUnit, KubeletUnit); err != nil {
		return err
	}
	for _, component := range slices.Backward(manifests.Components(env.Config)) { // the API server before etcd
		if err := StopContainers(ctx, env, component, GraceOf(env, component)); err != nil {
			return err
		}
	}
	return nil
}

// Exchange puts the new data in place of the old. No etcd runs.
func (x EtcdExchange) Exchange(env *step.Env) error {
	moved, err := x.moved(env)
	if err != nil {
		return err
	}
	if !moved {
		env.UI.Printf("Keeping etcd's present data in %s", x.Aside)
		if _, err := env.Host.Rename(x.Data, x.Aside); err != nil && !errors.Is(err, fs.ErrNotExist) { // lost with its disk
			return err
		}
	}
	_, err = env.Host.Rename(x.Fresh, x.Data)
	return err
}
