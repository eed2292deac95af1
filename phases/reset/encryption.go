// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// keepEncryptionKeys leaves the keys that Secrets are encrypted with on the host, because snapshots of etcd may need them. They get
// other names: a later join must not take them for its cluster's.
func (c *cleanup) keepEncryptionKeys() {
	names := []string{filepath.Base(config.EncryptionFile), filepath.Base(config.EncryptionKeyring)}
	kept := ".before-reset-" + c.Host.Now().UTC().Format(host.FileTime)
	c.removeLeftovers(config.EncryptionDir, names)
	for _, name := range names {
		path := filepath.Join(config.EncryptionDir, name)
		if !slices.Contains(c.entries(config.EncryptionDir), name) {
			continue
		}
		changed, err := c.Host.Rename(path, path+kept)
		c.record(changed, host.IgnoreForbidden(err))
	}
	c.removeEmpty(config.EncryptionDir)
	if len(c.entries(config.EncryptionDir)) > 0 {
		c.UI.Printf("%s stays: snapshots of etcd may need its keys", config.EncryptionDir)
	}
}
