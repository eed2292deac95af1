// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	stderrors "errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/step"
)

// sealed encrypts a verified snapshot together with this control plane's files, and returns the path. The snapshot itself is removed.
func sealed(env *step.Env, o Options, inner snapshots.Record, plainPath, plain string) (path string, err error) {
	defer func() { err = stderrors.Join(err, env.Host.Remove(plain)) }()
	files, missed := filesHere(env)
	for _, m := range missed {
		env.UI.Warnf("the snapshot will lack %s", m)
	}
	inner.Unknown = append(inner.Unknown, missed...)
	path = strings.TrimSuffix(plainPath, snapshots.Extension) + snapshots.SealedExtension
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
