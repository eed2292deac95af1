// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package trial saves a node's files before a change that might not work, and puts them back if it doesn't. Begin saves them and
// installs the systemd units, Record.MarkCompleted makes the change permanent, and Record.RollBack undoes it. The record is on disk
// before anything changes, so another run can undo the change as well. phases/reconfigure makes the changes.
// docs/design/way-back.md has the reasons.
//
//   - trial.go: Record, its files and ConfigMaps, and the State of a change from OnTrial to Completed or Reverted
//   - records.go: finds records on this node: Last, Unfinished, LastCompleted
//   - units.go: the two systemd units that put files back without the run
//   - confirmation.go: --confirm and its refusal, and the time until which a change waits for them
//   - roll_back.go, judge.go: put files back, and keep a copy of what somebody else has written meanwhile
//   - written.go: when a file got its content, leaving out changes that were put back
//   - unfinished.go: refuses other commands while a change is unfinished
package trial

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// State is how far a change got.
type State string

// The states of a change. One on trial is put back unless it proves itself, or is confirmed: then it's stored, and counts.
const (
	OnTrial   State = "on trial"
	Storing   State = "being stored"
	Completed State = "counts"
	Reverting State = "being put back"
	Reverted  State = "reverted"
)

// Record is a change of this node, with everything that another run needs to store it or to put it back.
type Record struct {
	Began time.Time `json:"began"`
	State State     `json:"state"`
	// Until is when an unconfirmed change is put back; nil if it needs no confirmation.
	Until *time.Time `json:"until,omitempty"`
	// Cause is why the change was put back, or why one that counts isn't stored.
	Cause string `json:"cause,omitempty"`
	Files []File `json:"files"`
	// ConfigMaps are the cluster's configuration; none if this node only follows it.
	ConfigMaps []ConfigMap `json:"configMaps,omitempty"`
	// Addons is set before the add-ons change.
	Addons bool `json:"addons,omitempty"`
	// CoreDNS is what becomes of CoreDNS; nil if the change doesn't concern it, or the cluster has none, and in earlier releases' records.
	CoreDNS *addon.CoreDNSChange `json:"coreDNS,omitempty"`
	// FilesRestored is set once the files are back for good, and only add-ons are left.
	FilesRestored bool `json:"filesBack,omitempty"`
	// RevertOf is when the change to take back began; nil for any other.
	RevertOf *time.Time `json:"takesBack,omitempty"`

	dir string
}

// File is a file of the change.
type File struct {
	Path string      `json:"path"`
	Mode fs.FileMode `json:"mode"`
	// UID and GID are the file's owner: a component of a rootless control plane may have to read it.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// BackupName is the copy's name in the record's directory; empty if the file didn't exist.
	BackupName string `json:"kept,omitempty"`
	// Server is the host:port that a kubeconfig file led to. Nothing else in it changes, and no copy of its credentials is kept.
	Server string `json:"server,omitempty"`
	// Written is when the file was written (WrittenAt). Earlier releases didn't keep it.
	Written time.Time `json:"written,omitzero"`
	// Wanted is the hash of the content that the change is about to give it; empty if it's unknown, or if the file goes.
	Wanted string `json:"wanted,omitempty"`
	// Edited says somebody had edited the file before the change. It's still an edit once it's put back.
	Edited bool `json:"edited,omitempty"`
	// WantedIsEdit says that what the change writes is somebody's edit, which the change that it takes back had overwritten.
	WantedIsEdit bool `json:"writesEdit,omitempty"`
	// After is the hash of its content after the change; empty on trial.
	After string `json:"after,omitempty"`
}

// ConfigMap is a text in a ConfigMap, before and after the change.
type ConfigMap struct {
	Namespace string `json:"namespace,omitempty"` // empty for kube-system
	Name      string `json:"name"`
	Key       string `json:"key"`
	// Version is the resourceVersion behind the change; empty if only the text counts.
	Version string `json:"version,omitempty"`
	Before  string `json:"before"`
	After   string `json:"after"`
	// Annotations are set along with the text; an empty value removes one.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Object is the ConfigMap, to be read.
func (c ConfigMap) Object() *corev1.ConfigMap {
	object := node.ConfigMap(c.Name)
	object.Namespace = cmp.Or(c.Namespace, object.Namespace)
	return object
}

// String is NAMESPACE/NAME.
func (c ConfigMap) String() string {
	object := c.Object()
	return object.Namespace + "/" + object.Name
}

const (
	dirPrefix  = "slipway-reconfigure-"
	recordFile = "change.yaml"
)

// Write is a file a change is about to write. Data is the content, or nil if the file goes, or if it's a certificate, which isn't
// issued yet. Edited says that somebody has edited the present file, and WantedIsEdit that Data is somebody's edit.
type Write struct {
	Path               string
	Data               []byte
	Edited, WritesEdit bool
}

// Begin keeps the files that a change writes, and the rest of what the caller knows about the change, and leaves the units that put the
// node back; program is this program's path. The record comes last: without it, nothing has changed yet, and the units only remove
// themselves.
func Begin(ctx context.Context, env *step.Env, program string, writes []Write, change Record) (*Record, error) {
	last, err := Last(env)
	if err != nil {
		return nil, err
	}
	if last != nil && !last.Finished() { // this run's units would put it back, too
		return nil, unfinishedError(last)
	}
	r := &change
	r.Began, r.State = env.Host.Now().UTC(), OnTrial
	if last != nil && !r.Began.After(last.Began) { // the clock was ahead then
		r.Began = last.Began.Add(time.Second)
	}
	for r.dir = r.path(env); exists(env, r.dir); r.dir = r.path(env) {
		r.Began = r.Began.Add(time.Second)
	}
	if err := env.Host.EnsureDir(r.dir, 0o700); err != nil {
		return nil, err
	}
	for _, w := range writes {
		if err := r.keep(env, w); err != nil {
			return nil, err
		}
	}
	if err := installUnits(ctx, env, program); err != nil {
		return nil, err
	}
	return r, r.Set(env, OnTrial)
}

func (r *Record) path(env *step.Env) string {
	return filepath.Join(node.BackupRoot(env), dirPrefix+r.Began.Format(host.BackupTime))
}

func exists(env *step.Env, path string) bool {
	_, err := env.Host.Lstat(path)
	return err == nil
}

func (r *Record) keep(env *step.Env, w Write) error {
	path := w.Path
	f := File{Path: path, Wanted: host.HashOf(w.Data), Edited: w.Edited, WantedIsEdit: w.WritesEdit}
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil {
		return err
	}
	if data != nil {
		info, err := env.Host.Stat(path)
		if err != nil {
			return err
		}
		if f.Written, err = WrittenAt(env, path); err != nil {
			return err
		}
		if owner, known := host.OwnerIn(info); known {
			f.UID, f.GID = owner.UID, owner.GID
		}
		f.Mode = info.Mode().Perm()
		if IsKubeconfig(env, path) {
			f.Server, err = kubeconfig.Endpoint(data)
			r.Files = append(r.Files, f)
			return errors.Wrap(err, path)
		}
		f.BackupName = nameOf(path)
		if _, err := (ownership.File{Path: filepath.Join(r.dir, f.BackupName), Data: data, Mode: 0o600}).Write(env.Host); err != nil {
			return err
		}
	}
	r.Files = append(r.Files, f)
	return nil
}

// Dir is where the files are kept.
func (r *Record) Dir() string { return r.dir }

// Set notes how far the change got.
func (r *Record) Set(env *step.Env, state State) error {
	r.State = state
	return ownership.WriteYAML(env.Host, filepath.Join(r.dir, recordFile), r)
}

// IsKubeconfig reports whether a path is one of this node's kubeconfig files.
func IsKubeconfig(env *step.Env, path string) bool {
	return filepath.Dir(path) == env.Settings().Paths.Kubeconfigs && filepath.Ext(path) == ".conf"
}

// ComponentAt returns the component whose static Pod is at path; empty for another file.
func ComponentAt(env *step.Env, path string) string {
	for _, name := range manifests.Components(env.Config) {
		if env.Config.Paths.StaticPod(name) == path {
			return name
		}
	}
	return ""
}
