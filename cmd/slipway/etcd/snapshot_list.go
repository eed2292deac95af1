// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/snapshot"
	"github.com/slipway-k8s/slipway/phases/step"
)

// runAnywhere is run for commands that only read files, on any host.
func runAnywhere(g *cli.Globals, dir string, do func(e *step.Env, dir string) error) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	p := env.NewAPIParts(g, nil, env.AskTimeout)
	defer p.Close()
	return do(p.Env, dir)
}

func newList(g *cli.Globals) *cobra.Command {
	dir, out := "", &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the snapshots in a directory, the oldest first",
		RunE: func(*cobra.Command, []string) error {
			return runAnywhere(g, dir, func(e *step.Env, dir string) error {
				list, unrecorded, err := snapshots.List(e.Host, dir)
				if err != nil {
					return err
				}
				for _, u := range unrecorded {
					e.UI.Warnf("%v is not listed", u)
				}
				l := &snapshotList{TypeMeta: metav1.TypeMeta{APIVersion: snapshots.APIVersion, Kind: snapshots.Kind + "List"}, Items: append([]snapshots.Snapshot{}, list...)}
				return out.Print(g, l, l.table)
			})
		},
	}
	bindDir(cmd.Flags(), &dir)
	out.Bind(cmd.Flags())
	return cmd
}

// snapshotList is the output of `etcd snapshot list`; docs/etcd.md describes it.
type snapshotList struct {
	metav1.TypeMeta `json:",inline"`

	Items []snapshots.Snapshot `json:"items"`
}

func (l *snapshotList) DeepCopyObject() runtime.Object { return new(*l) }

func (l *snapshotList) table(w io.Writer) error {
	var rows [][]string
	for _, s := range l.Items {
		rows = append(rows, []string{
			taken(s), fmt.Sprint(s.Revision), fmt.Sprint(s.Keys), size(s.Size), cmp.Or(s.Kubernetes, unknown), s.Etcd, s.Path})
	}
	return ui.Table(w, "TAKEN\tREVISION\tKEYS\tSIZE\tKUBERNETES\tETCD\tFILE", rows)
}

// taken is when a snapshot was taken, for people.
func taken(s snapshots.Snapshot) string { return s.Taken.UTC().Format(time.DateTime + "Z") }

// verifyAll verifies files, or else all snapshots in a directory, and prints a line for each that's whole.
func verifyAll(g *cli.Globals, e *step.Env, dir string, files []string, with snapshots.Identities) error {
	paths, err := named(e, dir, files)
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range paths {
		v, err := snapshot.Verify(e, path, with)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if err := g.Result(fmt.Sprintf("%s: whole, revision %d, %d keys%s\n", path, v.Revision, v.Keys, notes(v))); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// notes says what is special about a verified snapshot.
func notes(v snapshot.Verified) (text string) {
	switch {
	case v.Opened:
		text = fmt.Sprintf(", encrypted, with %d files of its control plane", v.Files)
	case v.Sealed:
		text = ", encrypted, not opened"
	}
	if !v.Recorded {
		text += ", without a record"
	}
	return text
}

// named makes the files' paths absolute; without files, it returns those of all snapshots in the directory.
func named(e *step.Env, dir string, files []string) (paths []string, err error) {
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	if len(files) > 0 {
		return paths, nil
	}
	list, unrecorded, err := snapshots.List(e.Host, dir)
	for _, s := range list {
		paths = append(paths, s.Path)
	}
	if err == nil && len(paths)+len(unrecorded) == 0 {
		err = fault.New("there are no snapshots in "+dir, "`slipway etcd snapshot save` takes one; --dir names another directory")
	}
	for _, u := range unrecorded {
		paths = append(paths, u.Path)
	}
	return paths, err
}
