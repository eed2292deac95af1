// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// tooLittle (bytes) and minFreeInodes (files) aren't enough for any component: etcd alone preallocates 64 MB for its log.
const (
	tooLittle     = 64 << 20
	minFreeInodes = 16
)

var (
	noSpace = lazyregexp.New(`no space left on device|disk quota exceeded|had condition: \[DiskPressure\]`)
	// watching is about inotify: the kernel gives the same error when all watches are in use.
	watching = lazyregexp.New(`inotify|fsnotify`)
)

// fillsUp is how long a file system must stay full to count: when one fills up, the kubelet removes images from it.
const fillsUp = 4 * time.Second

// diskFull checks the file systems a node writes to. During a wait, a full file system counts only if a log complains.
func diskFull(o *observation) []symptom {
	var complaints []source
	for _, src := range o.sources {
		lines := slices.DeleteFunc(matching(src.lines, noSpace), watching().MatchString)
		if len(lines) > 0 {
			complaints = append(complaints, source{subject: src.subject, lines: last(lines, 1)})
		}
	}
	if o.t.Waiting && len(complaints) == 0 {
		return nil
	}
	var found []symptom
	for _, dir := range o.directories() {
		space, err := o.h.Space(dir)
		if err != nil || !full(space, o.need(dir, space)) {
			continue
		}
		f := symptom{minDuration: fillsUp, Finding: fault.Finding{
			Subject: dir,
			Message: fmt.Sprintf("its file system is full: %d MiB of %d MiB and %d of %d inodes are left",
				space.Free>>20, space.Total>>20, space.FreeInodes, space.TotalInodes),
			Remedy: "free some space there (`du -xh --max-depth=2 " + dir + "`), or move the directory to a larger file system; then run the same command again",
		}}
		for _, c := range complaints {
			f.Evidence = append(f.Evidence, c.subject+": "+unpacked(c.lines[0]))
		}
		found = append(found, f)
	}
	return found
}

func full(s host.Space, need uint64) bool {
	return s.Free < need || s.TotalInodes > 0 && s.FreeInodes < minFreeInodes
}

// need returns how many bytes must be free for a directory. A small file system, such as /tmp, needs less, unless it's etcd's.
func (o *observation) need(dir string, space host.Space) uint64 {
	const share = 10
	if p := o.pod(etcdPod); p != nil && p.dataDir() == dir {
		return tooLittle
	}
	return min(tooLittle, space.Total/share)
}

// directories lists the directories a node writes to, etcd's first.
func (o *observation) directories() []string {
	var dirs []string
	if p := o.pod(etcdPod); p != nil && p.args["data-dir"] != "" {
		dirs = append(dirs, p.dataDir())
	}
	usual := []string{o.t.Kubelet, "/var/lib/containerd", "/var/lib/containers", "/var/log", o.t.Kubeconfigs, "/tmp"}
	if o.runtimeErr == nil { // it may have a directory of its own
		images, err := o.h.ImageDir(o.ctx, o.t.Socket)
		if err == nil && images != "" && !slices.ContainsFunc(usual, func(dir string) bool { return strings.HasPrefix(images, dir) }) {
			dirs = append(dirs, images)
		}
	}
	dirs = append(dirs, usual...)
	var there []string
	for _, dir := range dirs {
		if _, err := o.h.Lstat(filepath.Clean(dir)); err == nil {
			there = append(there, dir)
		}
	}
	return there
}
