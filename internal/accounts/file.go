// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// The account files, in the formats of passwd(5) and group(5).
const (
	PasswdFile = "/etc/passwd"
	GroupFile  = "/etc/group"
)

// Distributions give system accounts these numbers (SYS_UID_MIN and SYS_UID_MAX of login.defs(5)).
const (
	minSystemID = 100
	maxSystemID = 999
)

// file is one of the two files, with its numbers by name.
type file struct {
	path string
	mode fs.FileMode
	text string
	ids  map[string]int
	// changed reports that text differs from the file on the host.
	changed bool
}

func read(h host.Host, path string) (*file, error) {
	data, err := h.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := h.Lstat(path)
	if err != nil {
		return nil, err
	}
	f := &file{path: path, mode: info.Mode().Perm(), text: string(data), ids: map[string]int{}}
	for line := range strings.Lines(f.text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 3 || strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			continue // empty, or a NIS entry
		}
		id, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, errors.Errorf("%s: the account %q has no number in its third field; fix the file first", path, fields[0])
		}
		f.ids[fields[0]] = id
	}
	return f, nil
}

// add appends a missing account's line, with the highest free number, as useradd(8) does for system accounts.
func (f *file) add(name string, line func(id int) string) error {
	if _, exists := f.ids[name]; exists {
		return nil
	}
	taken := map[int]bool{}
	for _, id := range f.ids {
		taken[id] = true
	}
	for id := maxSystemID; id >= minSystemID; id-- {
		if taken[id] {
			continue
		}
		f.ids[name], f.changed = id, true
		if f.text != "" && !strings.HasSuffix(f.text, "\n") {
			f.text += "\n"
		}
		f.text += line(id) + "\n"
		return nil
	}
	return errors.Errorf("%s: no number from %d to %d is free for the system account %q", f.path, minSystemID, maxSystemID, name)
}
