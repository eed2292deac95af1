// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/preflight"
)

// File is the desired content of a path.
type File struct {
	Path string
	Data []byte
	Mode fs.FileMode
	// Secret keeps the content out of plans; its mode is 0600.
	Secret bool
}

// Write makes the host hold the file, and reports whether anything changed.
func (f File) Write(h host.Host) (changed bool, err error) {
	if f.Secret {
		return h.WriteSecret(f.Path, f.Data)
	}
	return h.WriteFile(f.Path, f.Data, f.Mode)
}

// ReadYAML fills into from a file of Slipway's own, which has no other fields; found is false without the file.
func ReadYAML(h host.Host, path string, into any) (found bool, err error) {
	data, err := host.ReadIfExists(h, path)
	if err != nil || data == nil {
		return false, err
	}
	return true, errors.Wrap(yaml.UnmarshalStrict(data, into), path)
}

// WriteYAML writes a file for ReadYAML, which only root may read.
func WriteYAML(h host.Host, path string, value any) error {
	data, err := yaml.Marshal(value)
	if err != nil {
		return errors.Wrap(err, path)
	}
	_, err = File{Path: path, Data: data, Mode: 0o600}.Write(h)
	return err
}

// secretMode is the mode of files with credentials, which may have other forms than host.LooksSecret knows.
const secretMode fs.FileMode = 0o600

// Rewrite gives a path another content and mode, and keeps the owner of the file there.
func Rewrite(h host.Host, path string, data []byte, mode fs.FileMode) error {
	info, err := h.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		if owner, known := host.OwnerIn(info); known && owner != (host.Owner{}) {
			_, err = h.WriteOwned(path, data, mode, owner)
			return err
		}
	}
	_, err = File{Path: path, Data: data, Mode: mode, Secret: mode == secretMode}.Write(h)
	return err
}

// Differing returns the files that are missing on the host, or have another content or mode there.
func Differing(h host.Host, files []File) ([]File, error) {
	var out []File
	for _, f := range files {
		data, err := host.ReadIfExists(h, f.Path)
		if err != nil {
			return nil, err
		}
		info, err := h.Lstat(f.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if info == nil || info.Mode() != f.Mode || !bytes.Equal(data, f.Data) {
			out = append(out, f)
		}
	}
	return out, nil
}

// Pending returns the files this run may write. On a former node, existing files stay, and the Keeper shows their differences
// once each. writer is the command that would overwrite them.
func (k Keeper) Pending(writer string, files ...File) ([]File, error) {
	if !k.Rerun {
		return files, nil
	}
	var out []File
	for _, f := range files {
		kept, err := k.keepFile(writer, f)
		if err != nil {
			return nil, err
		}
		if !kept {
			out = append(out, f)
		}
	}
	return out, nil
}

func (k Keeper) keepFile(writer string, f File) (kept bool, err error) {
	have, err := host.ReadIfExists(k.Host, f.Path)
	if err != nil || have == nil {
		return false, err
	}
	if k.Unfinished && k.Host.Unchanged(f.Path) { // an earlier run wrote it and didn't finish
		return false, nil
	}
	info, err := k.Host.Stat(f.Path)
	if err != nil {
		return false, err
	}
	var differs []string
	if !bytes.Equal(have, f.Data) {
		differs = append(differs, LineDifference(have, f.Data))
	}
	if mode := info.Mode().Perm(); mode != f.Mode {
		differs = append(differs, fmt.Sprintf("mode %04o instead of %04o", mode, f.Mode))
	}
	if len(differs) > 0 && !k.assumed() {
		reportKept(k.UI, f, have, strings.Join(differs, "; "), remedy(rewrite(writer)))
	}
	return true, nil
}

func reportKept(u ui.UI, f File, have []byte, summary, remedy string) {
	ui.SayKept(u, ui.Kept{Path: f.Path, Summary: summary, Remedy: remedy, Now: Shown(have), Ours: Shown(f.Data)})
}

// SayKept reports that a file stays as the operator has it, and what to do otherwise.
func (f File) SayKept(u ui.UI, have []byte, remedy string) {
	reportKept(u, f, have, LineDifference(have, f.Data), remedy)
}

// assumed reports whether this is a plan that hasn't asked the cluster: then nobody knows what a run would write.
func (k Keeper) assumed() bool { return k.Config.Join != nil && k.Config.Join.Assumed }

// Replace writes the files that differ, and says so.
func (k Keeper) Replace(files []File) error {
	for _, f := range files {
		have, err := host.ReadIfExists(k.Host, f.Path)
		if err != nil {
			return err
		}
		changed, err := f.Write(k.Host)
		switch {
		case err != nil:
			return err
		case changed && have != nil && !f.Secret && !bytes.Equal(have, f.Data):
			k.UI.Printf("Writing %s over another: %s", f.Path, LineDifference(have, f.Data))
		case changed:
			k.UI.Printf("Writing %s", f.Path)
		}
	}
	return nil
}

// Shown is a file an operator may have edited, without its secrets.
func Shown(data []byte) string { return redact.Text(redact.Document(string(data))) }

// LineDifference names the lines found in only one of two texts. It omits values no plan shows, such as environment variables'.
func LineDifference(have, wanted []byte) string {
	there, asked := Shown(have), Shown(wanted)
	if there == asked {
		return "values that are not shown, such as those of environment variables"
	}
	only := func(a, b string) string {
		var lines []string
		others := strings.Split(b, "\n")
		for line := range strings.Lines(a) {
			if line = strings.TrimRight(line, "\n"); !slices.Contains(others, line) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		const most = 5
		if len(lines) > most {
			lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
		}
		return strings.Join(lines, ", ")
	}
	var parts []string
	if text := only(there, asked); text != "" {
		parts = append(parts, preflight.OnlyThere+text)
	}
	if text := only(asked, there); text != "" {
		parts = append(parts, preflight.OnlyAsked+text)
	}
	if len(parts) == 0 {
		return "the same lines in another order"
	}
	return strings.Join(parts, "; ")
}
