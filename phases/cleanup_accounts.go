// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/manifests"
)

// removeAccounts removes the users and groups of a rootless control plane. One
// that somebody has changed stays.
func (c *cleanup) removeAccounts(context.Context) {
	// Users come first: a user whose group is missing is broken.
	c.removeLines(passwdFile, func(fields []string) bool {
		return len(fields) == 7 && slices.Contains(rootlessUsers, fields[0]) && fields[5] == "/nonexistent" && fields[6] == "/bin/false"
	})
	c.removeLines(groupFile, func(fields []string) bool {
		return len(fields) == 4 && (slices.Contains(rootlessUsers, fields[0]) || fields[0] == manifests.ServiceAccountKeyGroup)
	})
}

func (c *cleanup) removeLines(path string, ours func(fields []string) bool) {
	data, err := c.Host.ReadFile(path)
	if err != nil {
		c.did(false, ignoreMissing(err))
		return
	}
	info, err := c.Host.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		c.did(false, err)
		return
	}
	var kept strings.Builder
	for line := range strings.Lines(string(data)) {
		if !ours(strings.Split(strings.TrimSuffix(line, "\n"), ":")) {
			kept.WriteString(line)
		}
	}
	changed, err := c.Host.WriteFile(path, []byte(kept.String()), info.Mode().Perm())
	if changed {
		c.UI.Printf("Removed the accounts of a rootless control plane from %s", path)
	}
	c.did(changed, err)
}
