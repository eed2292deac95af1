// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// tooLittle is what no component can go on with: etcd alone preallocates 64 MB
// for its log. Of files a handful has to be possible.
const (
	tooLittle  = 64 << 20
	tooFewMade = 16
)

var (
	noSpace = lazy(`no space left on device|disk quota exceeded|had condition: \[DiskPressure\]`)
	// watching is what the kernel says the same of: all its inotify watches
	// are taken.
	watching = lazy(`inotify|fsnotify`)
)

// fillsUp is for how long a file system has to be full: the kubelet removes
// images where one is.
const fillsUp = 4 * time.Second

// diskFull reads the file systems that the node works on. While something is
// waited for a full one counts only where somebody complained.
func diskFull(s *scene) []Finding {
	var complaints []source
	for _, src := range s.sources {
		lines := slices.DeleteFunc(matching(src.lines, noSpace), watching().MatchString)
		if len(lines) > 0 {
			complaints = append(complaints, source{subject: src.subject, lines: last(lines, 1)})
		}
	}
	if s.t.Waiting && len(complaints) == 0 {
		return nil
	}
	var found []Finding
	for _, dir := range s.folders() {
		space, err := s.h.Space(dir)
		if err != nil || !full(space, s.need(dir, space)) {
			continue
		}
		f := Finding{
			Subject: dir, lasts: fillsUp,
			Message: fmt.Sprintf("its file system is full: %d MiB of %d MiB and %d of %d files are left",
				space.Free>>20, space.Total>>20, space.FreeInodes, space.TotalInodes),
			Next: "free some space there (`du -xh --max-depth=2 " + dir + "`), or give the folder a bigger file system; then run the same command again",
		}
		for _, c := range complaints {
			f.Evidence = append(f.Evidence, c.subject+": "+unpacked(c.lines[0]))
		}
		found = append(found, f)
	}
	return found
}

func full(s host.Space, need uint64) bool {
	return s.Free < need || s.TotalInodes > 0 && s.FreeInodes < tooFewMade
}

// need is what has to be free in a folder. A small file system, as /tmp may be
// one, is not full by being small, unless it is etcd's.
func (s *scene) need(dir string, space host.Space) uint64 {
	const share = 10
	if p := s.pod(etcdPod); p != nil && p.args["data-dir"] == dir {
		return tooLittle
	}
	return min(tooLittle, space.Total/share)
}

// folders are those that a node writes to, etcd's first.
func (s *scene) folders() []string {
	var dirs []string
	if p := s.pod(etcdPod); p != nil && p.args["data-dir"] != "" {
		dirs = append(dirs, p.args["data-dir"])
	}
	dirs = append(dirs, s.t.Kubelet, "/var/lib/containerd", "/var/lib/containers", "/var/log", s.t.Kubeconfigs, "/tmp")
	var there []string
	for _, dir := range dirs {
		if _, err := s.h.Lstat(filepath.Clean(dir)); err == nil {
			there = append(there, dir)
		}
	}
	return there
}
