// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/kill"
	"github.com/slipway-k8s/slipway/test/tier"
)

// diskErrors are the disk's errors, in turn.
var diskErrors = []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS}

// TestDiskFailsAtEveryFileOperation makes each of Slipway's system calls that change or sync a file fail once. The run must
// report it and leave no partial file, and the same command must finish when run again.
func TestDiskFailsAtEveryFileOperation(t *testing.T) {
	beside(t)
	if !kill.CanFail {
		t.Skip("calls cannot be made to fail on this kind of machine")
	}
	v := victim{T: t, program: filesProgram(t), dir: t.TempDir()}
	for i, args := range filePhases {
		before, after := v.around(i)
		whole := v.run(after, args, 0, syscall.EIO) // counts fsync as well
		if !whole.Status.Exited() || whole.Status.ExitStatus() != 0 {
			t.Fatalf("%s: %v", args, whole.Status)
		}
		var group errgroup.Group
		group.SetLimit(4)
		for _, i := range tier.Sample(t, 4, whole.Changes) {
			group.Go(func() error { v.failedAt(before, after, args, i+1); return nil })
		}
		_ = group.Wait()
		t.Logf("%s makes %d calls", args[0], whole.Changes)
	}
}

func (v victim) failedAt(before, after string, args []string, at int) {
	root := filepath.Join(v.dir, fmt.Sprintf("%s-%d", args[0], at))
	v.copy(before, root)
	defer os.RemoveAll(root)
	var said bytes.Buffer
	v.said = &said
	errno := diskErrors[at%len(diskErrors)]
	failed := v.run(root, args, at, errno)
	if failed.Changes < at {
		return // this run took fewer steps
	}
	where := fmt.Sprintf("%s, call %d fails with %q", args, at, errno)
	if failed.Status.ExitStatus() != 1 || !strings.Contains(said.String(), errno.Error()) || strings.Contains(said.String(), "goroutine ") {
		v.Errorf("%s: %v\n%s", where, failed.Status, said.String())
	}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".slipway-") {
			v.Errorf("%s: %s is left", where, path)
		}
		return nil
	})
	out, err := v.again(root, args)
	if err == nil {
		err = intact.Check(root)
	}
	if err == nil {
		err = same(after, root)
	}
	if err != nil {
		v.Errorf("%s, the same command again: %v\n%s", where, err, out)
	}
}
