// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"

	"github.com/pkg/errors"
)

// ReadIfExists returns nil for a file that does not exist. A dangling symlink and a directory do exist: they are a
// *KindError.
func ReadIfExists(h Host, path string) ([]byte, error) {
	data, err := h.ReadFile(path)
	if err == nil {
		return data, nil
	}
	if info, statErr := h.Lstat(path); statErr == nil && (info.IsDir() || info.Mode().Type() == fs.ModeSymlink) {
		return nil, &KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, err
}
