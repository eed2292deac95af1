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

// sealed encrypts a verified snapshot together with this control plane's files, and returns the path. The snapshot itself is removed.
func sealed(ctx context.Context, env *step.Env, o Options, inner snapshots.Record, contents etcd.Contents, plainPath, plain string) (path string, err error) {
	defer func() { err = stderrors.Join(err, env.Host.Remove(plain)) }()
	files, missed := filesHere(env)
	for _, m := range missed {
		env.UI.Warnf("the snapshot will lack %s", m)
	}
	inner.Unknown = append(inner.Unknown, missed...)
	if configuration, err := configurationToSeal(ctx, env, contents); err != nil {
		inner.Unknown = append(inner.Unknown, "the cluster's configuration: "+err.Error())
		env.UI.Warn(fmt.Sprintf("the snapshot will lack the cluster's configuration: %v", err), "keep the configuration that the cluster was made with: a bare host needs it")
	} else {
		files = append([]snapshots.File{{Path: snapshots.Configuration, Data: configuration}}, files...)
	}
	path = sealedPath(plainPath)
	draft := draftOf(path)
	env.UI.Printf("Encrypting it to %s, with %s of this control plane", path, count(len(files), "file"))
	written := sha256.New()
	err = env.Host.WriteStream(draft, func(w io.Writer) error {
		in, err := env.Host.Open(plain)
		if err != nil {
			return err
		}
		defer in.Close()
		return snapshots.Seal(io.MultiWriter(w, written), o.Recipients, filepath.Base(plainPath), inner, files, in)
	})
	outer := inner
	outer.Sealed = &snapshots.Sealed{OpensWith: o.Recipients.Names()}
	if err == nil {
		outer.Size, outer.SHA256, err = sumOf(env.Host, draft)
	}
	if err == nil && outer.SHA256 != hex.EncodeToString(written.Sum(nil)) {
		err = errors.Errorf("%s is not on the disk as it was written: see the kernel log (dmesg)", draft)
	}
	if err == nil {
		err = publish(env, outer, draft, path)
	}
	if err != nil {
		return "", stderrors.Join(err, env.Host.Remove(draft))
	}
	return path, nil
}
