// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
)

// Draft is a text that a person edits, in a file of a directory that nobody else may enter.
type Draft struct {
	Path string
	// Editor is the program, with its arguments. In, Out and Err are the person's terminal.
	Editor   []string
	In       io.Reader
	Out, Err io.Writer
}

// NewDraft makes the directory of a file with this name.
func NewDraft(name string) (*Draft, error) {
	dir, err := os.MkdirTemp("", "slipway-")
	if err != nil {
		return nil, errors.WithStack(err)
	}
	return &Draft{Path: filepath.Join(dir, name)}, nil
}

// Edit shows text in the editor, and returns it as it was saved. The editor decides what the terminal's signals mean; the run looks at
// its own afterwards.
func (d *Draft) Edit(ctx context.Context, text []byte) ([]byte, error) {
	if err := os.WriteFile(d.Path, text, 0o600); err != nil {
		return nil, errors.WithStack(err)
	}
	words := append(slices.Clone(d.Editor), d.Path)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = d.In, d.Out, d.Err
	if err := cmd.Run(); err != nil {
		return nil, errors.Wrapf(err, "the editor %s", words[0])
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	edited, err := os.ReadFile(d.Path)
	return edited, errors.WithStack(err)
}

// Remove removes the file and its directory.
func (d *Draft) Remove() error { return errors.WithStack(os.RemoveAll(filepath.Dir(d.Path))) }
