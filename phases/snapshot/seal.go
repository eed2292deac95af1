// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	stderrors "errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/step"
)

// sealedPath returns the path of the sealed snapshot made from the one at path.
func sealedPath(path string) string {
	return strings.TrimSuffix(path, snapshots.Extension) + snapshots.SealedExtension
}

// unsealed is a verified snapshot to seal.
type unsealed struct {
	record      snapshots.Record
	contents    etcd.Contents
	path, draft string // the name that it'd have, and its file
}

// files returns this control plane's files and the cluster's configuration, and names those it couldn't read.
func (u unsealed) files(ctx context.Context, env *step.Env) (files []snapshots.File, missed []string) {
	files, missed = filesHere(env)
	for _, m := range missed {
		env.UI.Warnf("the snapshot will lack %s", m)
	}
	configuration, err := configurationToSeal(ctx, env, u.contents)
	if err != nil {
		env.UI.Warn(fmt.Sprintf("the snapshot will lack the cluster's configuration: %v", err), "keep the configuration that the cluster was made with: a bare host needs it")
		return files, append(missed, "the cluster's configuration: "+err.Error())
	}
	return append([]snapshots.File{{Path: snapshots.Configuration, Data: configuration}}, files...), missed
}

// seal encrypts the snapshot together with this control plane's files, and returns the path.
func (u unsealed) seal(ctx context.Context, env *step.Env, to snapshots.Recipients) (path string, err error) {
	files, missed := u.files(ctx, env)
	inner := u.record
	inner.Unknown = append(inner.Unknown, missed...)
	path = sealedPath(u.path)
	draft := draftOf(path)
	env.UI.Printf("Encrypting it to %s, with %s of this control plane", path, count(len(files), "file"))
	written := sha256.New()
	err = env.Host.WriteStream(draft, func(w io.Writer) error {
		in, err := env.Host.Open(u.draft)
		if err != nil {
			return err
		}
		defer in.Close()
		content := snapshots.Content{Name: filepath.Base(u.path), Record: inner, Files: files, Snapshot: in}
		return content.Seal(io.MultiWriter(w, written), to)
	})
	outer := inner
	outer.Sealed = &snapshots.Sealed{OpensWith: to.Names()}
	if err == nil {
		outer.Size, outer.SHA256, err = sumOf(env.Host, draft)
	}
	if err == nil && outer.SHA256 != hex.EncodeToString(written.Sum(nil)) {
		err = errors.Errorf("the disk returned different data for %s than Slipway wrote: see the kernel log (dmesg)", draft)
	}
	if err == nil {
		err = publish(env, outer, draft, path)
	}
	if err != nil {
		left := env.Host.Remove(draft)
		return "", stderrors.Join(err, left)
	}
	return path, nil
}
