// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io/fs"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/manifests"
)

// removeAccounts removes the users and groups of a rootless control plane. An account that someone has changed stays.
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
	info, err := c.Host.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		c.did(false, ignoreMissing(err))
		return
	}
	text, kept, err := c.linesWithout(path, ours)
	if err != nil || kept == text {
		c.did(false, err)
		return
	}
	changed, err := c.replaceLines(path, info.Mode().Perm(), ours)
	if changed {
		c.UI.Printf("Removed the accounts of a rootless control plane from %s", path)
	}
	c.did(changed, err)
}

// replaceLines reads the file again under the lock: another program may have changed it before.
func (c *cleanup) replaceLines(path string, mode fs.FileMode, ours func(fields []string) bool) (bool, error) {
	release, err := c.Host.LockAccounts()
	if err != nil {
		return false, err
	}
	defer release()
	_, kept, err := c.linesWithout(path, ours)
	if err != nil {
		return false, err
	}
	return c.Host.WriteFile(path, []byte(kept), mode)
}

// linesWithout returns a file's text, and the text without some of its lines.
func (c *cleanup) linesWithout(path string, ours func(fields []string) bool) (text, kept string, err error) {
	data, err := c.Host.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if !ours(strings.Split(strings.TrimSuffix(line, "\n"), ":")) {
			b.WriteString(line)
		}
	}
	return string(data), b.String(), nil
}
