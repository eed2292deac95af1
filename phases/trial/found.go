// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bytes"
	"crypto"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// former is a file's content from before the change, to be put back; nil if it didn't exist. Somebody else may have written the file
// since. Nobody may be there to ask, so such a file is copied into the record's directory first, or stays if the former one could do
// harm: a static Pod of another version over newer data, or a certificate for a former key.
func (r *Record) former(env *step.Env, f File) (data []byte, stays bool, err error) {
	data, err = r.Kept(env, f)
	if err != nil || IsKubeconfig(env, f.Path) { // only its server goes back
		return data, false, err
	}
	now, err := host.ReadIfExists(env.Host, f.Path)
	if err != nil || now == nil || bytes.Equal(now, data) || host.HashOf(now) == f.Wanted {
		return data, false, err
	}
	why := ""
	switch image := manifests.ImageOf(now); {
	case f.IsCertificate() && certs.SameKey(keyOf(now), keyOf(data)): // the run has issued it, and anybody can issue it again
		return data, false, nil
	case f.IsCertificate() && keyOf(now) != nil:
		why = "a certificate for another key"
	case ComponentAt(env, f.Path) != "" && image != "" && data != nil && image != manifests.ImageOf(data):
		why = "a static Pod with the image " + image
	default:
		return data, false, r.keepFound(env, f, now)
	}
	env.UI.Warn("keeping "+f.Path+", which somebody else has written since the change: it's "+why, "the file from before the change is "+filepath.Join(r.dir, f.Kept))
	return data, true, nil
}

// keepFound keeps a copy of a file that's about to be overwritten. Each content has its own name.
func (r *Record) keepFound(env *step.Env, f File, now []byte) error {
	path := filepath.Join(r.dir, "found-"+host.HashOf(now)[:8]+"-"+nameOf(f.Path))
	if _, err := (ownership.File{Path: path, Data: now, Mode: 0o600}).Write(env.Host); err != nil {
		return err
	}
	env.UI.Warn(f.Path+" was changed by someone else during the change, and gets its former content back", "its present content is in "+path)
	return nil
}

// nameOf is the name of a file's copy.
func nameOf(path string) string { return strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-") }

// IsCertificate reports whether the file is a certificate, by its name.
func (f File) IsCertificate() bool { return filepath.Ext(f.Path) == ".crt" }

// keyOf is the public key of the first certificate in a file; nil without any.
func keyOf(file []byte) crypto.PublicKey {
	leaf, err := certs.FirstCert(file)
	if err != nil {
		return nil
	}
	return leaf.PublicKey
}
