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

// verdict says what becomes of a file whose change goes back.
type verdict struct {
	// former is the content from before the change; nil if the file didn't exist.
	former []byte
	// stays is why the file stays as it is; empty if it gets its former content.
	stays string
	// others is what somebody else has written since the change, which would be lost; nil for nothing.
	others []byte
}

// judge compares a file with its former content. Somebody else may have written the file since, and nobody may be there to ask. It
// stays if the former one could do harm: a static Pod of another version over newer data, or a certificate for a former key.
func (r *Record) judge(env *step.Env, f File) (v verdict, err error) {
	v.former, err = r.OriginalContent(env, f)
	if err != nil && f.Server != "" { // all other files go back nevertheless
		v.stays, err = "not a kubeconfig file that can be read", nil
	}
	if err != nil || IsKubeconfig(env, f.Path) { // only its server goes back
		return v, err
	}
	now, err := host.ReadIfExists(env.Host, f.Path)
	if err != nil || now == nil || bytes.Equal(now, v.former) || host.HashOf(now) == f.Wanted {
		return v, err
	}
	switch image := manifests.ImageOf(now); {
	case f.IsCertificate() && certs.SameKey(keyOf(now), keyOf(v.former)): // the run has issued it, and anybody can issue it again
	case f.IsCertificate() && keyOf(now) != nil:
		v.stays = "a certificate for another key"
	case ComponentAt(env, f.Path) != "" && image != "" && v.former != nil && image != manifests.ImageOf(v.former):
		v.stays = "a static Pod with the image " + image
	default:
		v.others = now
	}
	return v, nil
}

// eachFormer calls back with each file that goes back and its former content, once it has kept a copy of what somebody else has
// written there. It names the files it leaves.
func (r *Record) eachFormer(env *step.Env, back func(f File, former []byte) error) error {
	server, err := r.keptServer(env)
	if err != nil {
		return err
	}
	for _, f := range r.Files {
		if server != "" && f.isNew() {
			env.UI.Printf("Keeping %s, which %s may name", f.Path, server)
			continue
		}
		v, err := r.judge(env, f)
		if err != nil {
			return err
		}
		if v.stays != "" {
			remedy := "the file from before the change is " + filepath.Join(r.dir, f.BackupName)
			if f.Server != "" {
				remedy = "its server before the change was https://" + f.Server
			}
			env.UI.Warn("keeping "+f.Path+", which somebody else has written since the change: it is "+v.stays, remedy)
			continue
		}
		if v.others != nil {
			if err := r.keepFound(env, f, v.others); err != nil {
				return err
			}
		}
		if err := back(f, v.former); err != nil {
			return err
		}
	}
	return nil
}

// keptServer is the API server's static Pod if that stays: it may name files that the change has added, and can't start without them.
func (r *Record) keptServer(env *step.Env) (string, error) {
	path := env.Config.Paths.StaticPod(manifests.APIServerName)
	for _, f := range r.Files {
		if f.Path != path {
			continue
		}
		v, err := r.judge(env, f)
		if err != nil || v.stays == "" {
			return "", err
		}
		return path, nil
	}
	return "", nil
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
