// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"io/fs"
	"strings"

	"github.com/pkg/errors"
)

// RemoveUsers removes the users nobody has changed. It comes before RemoveGroups: a user without its group is broken.
func (r Rootless) RemoveUsers() (changed bool, err error) { return r.removeLines(PasswdFile, isUser) }

// RemoveGroups removes the groups.
func (r Rootless) RemoveGroups() (changed bool, err error) { return r.removeLines(GroupFile, isGroup) }

func (r Rootless) removeLines(path string, ours func(fields []string) bool) (changed bool, err error) {
	info, err := r.Host.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	text, kept, err := r.linesWithout(path, ours)
	if err != nil || kept == text {
		return false, err
	}
	release, err := r.Host.LockAccounts()
	if err != nil {
		return false, err
	}
	defer release()
	// Another program may have changed the file before it was locked.
	if _, kept, err = r.linesWithout(path, ours); err != nil {
		return false, err
	}
	if changed, err = r.Host.WriteFile(path, []byte(kept), info.Mode().Perm()); changed {
		r.UI.Printf("Removed the accounts of a rootless control plane from %s", path)
	}
	return changed, err
}

func (r Rootless) linesWithout(path string, ours func(fields []string) bool) (text, kept string, err error) {
	data, err := r.Host.ReadFile(path)
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
