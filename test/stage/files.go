// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (h *Host) ReadFile(path string) ([]byte, error) {
	if err := h.fails("ReadFile " + path); err != nil {
		return nil, err
	}
	return h.Real.ReadFile(path)
}

func (h *Host) ReadDir(path string) ([]fs.DirEntry, error) {
	if err := h.fails("ReadDir " + path); err != nil {
		return nil, err
	}
	return h.Real.ReadDir(path)
}

func (h *Host) AwaitFile(ctx context.Context, path string, accept func([]byte) error) error {
	if h.On.AwaitFile != nil {
		return h.On.AwaitFile(ctx, path, accept)
	}
	return h.Real.AwaitFile(ctx, path, accept)
}

func (h *Host) Space(path string) (host.Space, error) {
	space, known := h.Has.Space[path]
	if !known {
		space = h.Has.Space["/"]
	}
	return space, h.fails("Space")
}

func (h *Host) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	if err := h.before(context.Background(), "write "+path); err != nil {
		return false, err
	}
	changed, err := h.Real.WriteFile(path, data, mode)
	return h.wrote(path, changed, err)
}

func (h *Host) WriteSecret(path string, data []byte) (bool, error) {
	return h.WriteFile(path, data, 0o600)
}

// WriteStream fails in the middle if it's refused.
func (h *Host) WriteStream(path string, fill func(io.Writer) error) error {
	if failure := h.before(context.Background(), "write "+path); failure != nil {
		fill = func(w io.Writer) error {
			_, _ = io.WriteString(w, "half a snapshot")
			return failure
		}
	}
	_, err := h.wrote(path, true, h.Real.WriteStream(path, fill))
	return err
}

func (h *Host) WriteTree(path string, fill func(dir string) error) error {
	if err := h.before(context.Background(), "create directory "+path); err != nil {
		return err
	}
	return h.Real.WriteTree(path, fill)
}

func (h *Host) WriteSet(files []host.SetFile, fill func(put func(path string, content io.Reader) error) error) error {
	for _, f := range files {
		if err := h.before(context.Background(), "write "+f.Path); err != nil {
			return err
		}
	}
	err := h.Real.WriteSet(files, fill)
	for _, f := range files {
		_, err = h.wrote(f.Path, true, err)
	}
	return err
}

func (h *Host) Rename(from, to string) (bool, error) {
	if err := h.before(context.Background(), "rename "+from); err != nil {
		return false, err
	}
	return h.Real.Rename(from, to)
}

func (h *Host) EnsureDir(path string, mode fs.FileMode) error {
	if err := h.before(context.Background(), "mkdir "+path); err != nil {
		return err
	}
	return h.Real.EnsureDir(path, mode)
}

func (h *Host) Remove(path string) error {
	if err := h.before(context.Background(), "remove "+path); err != nil {
		return err
	}
	return h.Real.Remove(path)
}

func (h *Host) RemoveEmpty(path string) (bool, error) {
	if err := h.before(context.Background(), "remove empty "+path); err != nil {
		return false, err
	}
	return h.Real.RemoveEmpty(path)
}

func (h *Host) RemoveTree(path string) (host.Removal, error) {
	if err := h.before(context.Background(), "remove directory "+path); err != nil {
		return host.Removal{}, err
	}
	if h.On.RemoveTree != nil {
		return h.On.RemoveTree(path)
	}
	return h.Real.RemoveTree(path)
}

// SyncFiles is no job: nothing changes.
func (h *Host) SyncFiles(path string) error {
	if err := h.before(context.Background(), "sync "+path); err != nil {
		return err
	}
	return h.Real.SyncFiles(path)
}

func (h *Host) Unmount(path string, flags []string) error {
	if err := h.ordered(context.Background(), "unmount "+path); err != nil {
		return err
	}
	if h.On.Unmount != nil {
		return h.On.Unmount(path, flags)
	}
	return nil
}

// Own is the owner of a test's files, so giving them away doesn't need root.
var Own = host.Owner{UID: os.Getuid(), GID: os.Getgid()}

func (h *Host) gave(path string, owner host.Owner) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Owned = append(h.Owned, fmt.Sprintf("%s %d:%d", path, owner.UID, owner.GID))
	return h.Fail["chown "+path]
}

func (h *Host) WriteOwned(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
	if err := h.before(context.Background(), "write "+path); err != nil {
		return false, err
	}
	if h.On.WriteOwned != nil {
		return h.On.WriteOwned(path, data, mode, owner)
	}
	if owner != Own {
		if err := h.gave(path, owner); err != nil {
			return false, err
		}
	}
	changed, err := h.Real.WriteFile(path, data, mode)
	return h.wrote(path, changed, err)
}

func (h *Host) SetOwner(path string, owner host.Owner, mode fs.FileMode) error {
	if err := h.before(context.Background(), "chown "+path); err != nil {
		return err
	}
	if h.On.Give != nil {
		return h.On.Give(path, owner, mode)
	}
	if err := h.Real.SetOwner(path, Own, mode); err != nil {
		return err
	}
	return h.gave(path, owner)
}

func (h *Host) SetTreeOwner(path string, owner host.Owner) ([]string, error) {
	if err := h.before(context.Background(), "chown "+path); err != nil {
		return nil, err
	}
	if h.On.GiveTree != nil {
		return h.On.GiveTree(path, owner)
	}
	if _, err := h.Real.SetTreeOwner(path, Own); err != nil {
		return nil, err
	}
	return nil, h.gave(path, owner)
}

func (h *Host) LockAccounts() (func(), error) {
	if err := h.ordered(context.Background(), "lock accounts"); err != nil {
		return nil, err
	}
	if h.On.LockAccounts != nil {
		return h.On.LockAccounts()
	}
	return func() {}, nil
}

func (h *Host) ProbeWrite(dir string) error {
	if err := h.fails("ProbeWrite " + dir); err != nil {
		return err
	}
	return h.Real.ProbeWrite(dir)
}

// SyncTimes doesn't measure, which would cost each run a second.
func (h *Host) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return h.Has.Syncs, h.fails("SyncTimes")
}
