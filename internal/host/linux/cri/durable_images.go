// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/files"
)

// fetch is a note about images being fetched. containerd syncs its database, which says that an image is there, but not the
// image's files: docs/design/durable-images.md.
type fetch struct {
	Boot   string   `json:"boot"`
	Socket string   `json:"socket"`
	Images []string `json:"images"`
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), errors.Wrap(err, "read the ID of this boot")
}

// durably fetches images. A note is on disk before, and goes once the images' files are on disk, too.
func (r *Runtimes) durably(ctx context.Context, socket string, images []string, fetch func() error) error {
	note, err := r.note(socket, images)
	if err != nil {
		return err
	}
	err = fetch()
	if err != nil && ctx.Err() != nil { // the runtime may still be busy with it
		return err
	}
	if failure := r.finish(ctx, socket, note); err == nil {
		err = failure
	}
	return err
}

func (r *Runtimes) note(socket string, images []string) (path string, err error) {
	boot, err := bootID()
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(fetch{Boot: boot, Socket: socketPath(socket), Images: images})
	if err != nil {
		return "", err
	}
	path = filepath.Join(host.FetchNotes, rand.Text()+".json")
	r.noting.Lock()
	defer r.noting.Unlock()
	if err := r.Notes.EnsureDir(host.FetchNotes, host.ParentMode); err != nil {
		return "", err
	}
	_, err = r.Notes.WriteFile(path, data, 0o644)
	return path, err
}

// finish writes the runtime's images to the disk, and removes a note.
func (r *Runtimes) finish(ctx context.Context, socket, note string) error {
	dir, err := r.ImageDir(ctx, socket)
	if err != nil {
		return err
	}
	if err := syncImages(dir); err != nil {
		return errors.Wrapf(err, "write the images in %s to the disk", dir)
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	err = r.Notes.Remove(note)
	for dir := host.FetchNotes; err == nil && r.Notes.CreatedBySlipway(dir); dir = filepath.Dir(dir) {
		_, err = r.Notes.RemoveEmpty(dir)
	}
	return err
}

// syncImages writes the file system of a directory to the disk, or all file systems if the directory isn't known: an old runtime
// doesn't name it, and a runtime with a proxy plugin as its snapshotter may name a directory that doesn't exist.
func syncImages(dir string) error {
	if dir != "" {
		if err := files.Sync(dir); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	unix.Sync()
	return nil
}

func (r *Runtimes) RepairInterruptedFetches(ctx context.Context, socket string) error {
	entries, err := r.Notes.ReadDir(host.FetchNotes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	boot, bootErr := bootID()
	if err == nil {
		err = bootErr
	}
	for _, e := range entries {
		path := filepath.Join(host.FetchNotes, e.Name())
		if _, leftover := host.LeftoverOf(e.Name()); err == nil && !leftover {
			err = r.settle(ctx, socket, path, boot)
		}
	}
	return err
}

func (r *Runtimes) settle(ctx context.Context, socket, note, boot string) error {
	data, err := r.Notes.ReadFile(note)
	if err != nil {
		return host.IgnoreMissing(err) // another run has finished it
	}
	var f fetch
	if err := json.Unmarshal(data, &f); err != nil {
		return errors.Wrapf(err, "read %s", note)
	}
	if f.Socket != socketPath(socket) {
		return nil
	}
	if f.Boot != boot {
		if err := r.discard(ctx, socket, f.Images); err != nil {
			return err
		}
	}
	return r.finish(ctx, socket, note)
}

// discard removes images and, in containerd, all unpacked layers that no other image has: an interrupted fetch's lease would
// keep them for a day.
func (r *Runtimes) discard(ctx context.Context, socket string, images []string) error {
	for _, image := range images {
		if err := r.RemoveImage(ctx, socket, image); err != nil {
			return err
		}
	}
	info, err := r.RuntimeInfo(ctx, socket)
	if err != nil || info.Name != "containerd" {
		return err
	}
	list, err := askCtr(ctx, ctrAnswer, socket, "leases", "list")
	if err != nil {
		return err
	}
	booted, err := bootTime()
	if err != nil {
		return err
	}
	if interrupted := interruptedLeases(list, booted, time.Now()); len(interrupted) > 0 {
		_, err = runCtr(ctx, socket, append([]string{"leases", "delete", "--sync"}, interrupted...)...)
	}
	return err
}

// interruptedLeases returns the IDs of leases of fetches that a reboot interrupted, from the table of `ctr leases list`: ID, time,
// labels. Pods' leases don't expire. A time in the future, or none, is from before the clock was set.
func interruptedLeases(list string, booted, now time.Time) (ids []string) {
	for line := range strings.Lines(list) {
		columns := strings.Fields(line)
		if len(columns) < 3 || !strings.Contains(line, "containerd.io/gc.expire=") {
			continue
		}
		made, err := time.Parse(time.RFC3339, columns[1])
		if err != nil || made.Before(booted) || made.After(now) {
			ids = append(ids, columns[0])
		}
	}
	return ids
}

// bootTime is the time of this boot, by today's clock. A container's boot is later than its machine's, so it's the start of the first
// process.
func bootTime() (time.Time, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, errors.Wrap(err, "read the time since this boot")
	}
	stat, err := os.ReadFile("/proc/1/stat")
	if err != nil {
		return time.Time{}, errors.Wrap(err, "read the start of the first process")
	}
	started, err := startOf(string(stat))
	return time.Now().Add(started - time.Duration(up.Nano())), errors.Wrap(err, "/proc/1/stat")
}

// startOf reads when a process started, since its machine's boot: the 22nd field of proc_pid_stat(5), in hundredths of a second. The
// second field, the program's name in parentheses, may have spaces.
func startOf(stat string) (time.Duration, error) {
	const afterName = 22 - 3
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) <= afterName {
		return 0, errors.Errorf("it has only %d fields after the name", len(fields))
	}
	ticks, err := strconv.ParseInt(fields[afterName], 10, 64)
	return time.Duration(ticks) * 10 * time.Millisecond, errors.WithStack(err)
}
