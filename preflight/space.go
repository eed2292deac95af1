// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// need is the free space that a directory's file system must and should have.
type need struct {
	least, good uint64 // bytes
	// signal is the kubelet's name for the file system in its eviction thresholds; empty if it doesn't watch the file system.
	signal string
	what   string
}

// minInodes is about how many a control plane's images and directories take.
const minInodes = 5000

var (
	// etcd starts by allocating two segments of its log, 64 MB each; the default quota of its data is 2 GiB:
	// https://etcd.io/docs/v3.5/op-guide/maintenance/#space-quota
	etcdNeed       = need{least: 200 << 20, good: 2 << 30, what: "etcd's data"}
	kubeletNeed    = need{least: 100 << 20, good: 1 << 30, signal: "nodefs", what: "volumes and logs of Pods"}
	runtimeNeed    = need{least: 500 << 20, good: 2 << 30, signal: "imagefs", what: "images and containers"}
	kubernetesNeed = need{least: 10 << 20, good: 50 << 20, what: "certificates, kubeconfigs and static Pods"}
)

func space(m *config.Machine, dir string, needs need) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding { return spaceOf(m, h, dir, needs) }
}

// ImageSpace checks the space for images, like DiskSpace-runtime in other commands.
func ImageSpace(ctx context.Context, m *config.Machine, h View) []fault.Finding {
	found := runtimeSpace(ctx, h, m)
	for i := range found {
		found[i].Name = "DiskSpace-runtime"
	}
	return found
}

// runtimeSpace asks the runtime where it keeps images. The check CRI reports a runtime that doesn't answer.
func runtimeSpace(ctx context.Context, h View, m *config.Machine) []fault.Finding {
	dir, err := h.ImageDir(ctx, m.CRISocket)
	if err != nil || dir == "" {
		return skip("the container runtime does not say where it keeps images; see CRI")
	}
	return spaceOf(m, h, dir, runtimeNeed)
}

func spaceOf(m *config.Machine, h View, dir string, needs need) []fault.Finding {
	at := existingDir(h, dir)
	s, err := h.Space(at)
	if err != nil {
		return warn("cannot read the free space of %s: %v", at, err).remedy("check it with `df %s`", at)
	}
	const moreSpace, moreInodes = "free some space, or mount a larger disk there", "remove small files, or mount another disk there"
	where := fmt.Sprintf("the file system of %s, for %s, has %s free", at, needs.what, size(s.Free))
	inodes := fmt.Sprintf("the file system of %s, for %s, has %d inodes free", at, needs.what, s.FreeInodes)
	reserve, from := evicts(m, needs.signal+".available", s.Total)
	reservedInodes, fromInodes := evicts(m, needs.signal+".inodesFree", s.TotalInodes)
	switch {
	case s.Free < needs.least:
		return fail("%s; at least %s are needed", where, size(needs.least)).remedy(moreSpace)
	case s.TotalInodes > 0 && s.FreeInodes < minInodes:
		return fail("%s; at least %d are needed", inodes, minInodes).remedy(moreInodes)
	case needs.signal != "" && s.Free < reserve:
		return warn("%s, less than the %s at which the kubelet evicts Pods (%s)", where, size(reserve), from).remedy(moreSpace)
	case s.Free < needs.good:
		return warn("%s; %s are recommended", where, size(needs.good)).remedy(moreSpace)
	case needs.signal != "" && s.FreeInodes < reservedInodes:
		return warn("%s, less than the %d at which the kubelet evicts Pods (%s)", inodes, reservedInodes, fromInodes).remedy(moreInodes)
	}
	return nil
}

// evicts returns the kubelet's hard threshold for a signal of a file system with total bytes or inodes, and its origin:
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#hard-eviction-thresholds
func evicts(m *config.Machine, signal string, total uint64) (limit uint64, from string) {
	text, given := m.Kubelet.EvictionHard[signal]
	from = "evictionHard " + signal
	switch {
	case given:
	case len(m.Kubelet.EvictionHard) > 0 && (m.Kubelet.MergeDefaultEvictionSettings == nil || !*m.Kubelet.MergeDefaultEvictionSettings):
		return 0, "" // setting any of them replaces all defaults
	case signal == "nodefs.available":
		text = "10%"
	case signal == "imagefs.available":
		text = "15%"
	default:
		text = "5%"
	}
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		f, _ := strconv.ParseFloat(percent, 64)
		return uint64(float64(total) * f / 100), from + " " + text
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() < 0 {
		return 0, "" // the kubelet reports it
	}
	return uint64(q.Value()), from + " " + text
}

func size(bytes uint64) string {
	if bytes < 10<<30 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d GiB", bytes>>30)
}

// Need is space a run takes on a directory's file system.
type Need struct {
	Dir, What string
	Bytes     uint64
}

// ImageNeed is the space for missing images; nothing if the runtime doesn't say where it keeps them, see the check CRI.
func ImageNeed(ctx context.Context, m *config.Machine, h View) []Need {
	dir, err := h.ImageDir(ctx, m.CRISocket)
	if err != nil || dir == "" {
		return nil
	}
	return []Need{{Dir: dir, What: runtimeNeed.what, Bytes: runtimeNeed.least}}
}

// kept is how much of a file system stays free: a tenth. With less, the kubelet evicts Pods by default.
const kept = 10

// Room checks the first need's file system: it must have room for all needs on it, and keep a tenth of its size free.
func Room(h View, first Need, others ...Need) []fault.Finding {
	at := existingDir(h, first.Dir)
	s, err := h.Space(at)
	if err != nil {
		return unasked("the space for %s was not checked: %v", first.What, err).remedy("check it with `df %s`", at)
	}
	sum, parts := first.Bytes, []string{first.part()}
	for _, o := range others {
		on, err := h.Space(existingDir(h, o.Dir))
		if err == nil && on.Device == s.Device {
			sum += o.Bytes
			parts = append(parts, o.part())
		}
	}
	if reserve := s.Total / kept; s.Free < sum+reserve {
		return fail("the file system of %s has %s free; needed are %s, and %s have to stay free (%d %%)",
			at, size(s.Free), strings.Join(parts, " and "), size(reserve), 100/kept).remedy("free some space, or mount a larger disk there")
	}
	return nil
}

func (n Need) part() string { return fmt.Sprintf("%s for %s", size(n.Bytes), n.What) }

// existingDir returns path, or the nearest existing directory above it: where path will be created.
func existingDir(h View, path string) string {
	for {
		info, err := h.Stat(path)
		if above := filepath.Dir(path); err == nil && info.IsDir() || above == path {
			return path
		}
		path = filepath.Dir(path)
	}
}

// content lists a directory without lost+found.
func content(h View, dir string) ([]fs.DirEntry, error) {
	entries, err := h.ReadDir(dir)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == host.LostAndFound }), err
}

// writtenDirs lists the directories a run writes to, but static Pods': a running kubelet would take the probe for a Pod.
func writtenDirs(n *config.Node) []string {
	dirs := []string{n.Paths.Kubernetes, n.Paths.Kubeconfigs, n.Paths.PKI, n.Paths.Kubelet}
	if n.Join != nil {
		dirs = append(dirs, filepath.Dir(n.Join.CAPath))
	}
	if n.ControlPlane && n.Cluster.Etcd.Local != nil {
		dirs = append(dirs, n.Cluster.Etcd.Local.DataDir)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// writable creates a file in each directory a run will write to, or in the nearest existing directory above it: permissions don't
// show read-only mounts, quotas or failing disks.
func writable(ctx context.Context, h View, n *config.Node) []fault.Finding {
	return writableIn(ctx, h, writtenDirs(n))
}

func writableIn(_ context.Context, h View, dirs []string) []fault.Finding {
	if h.EffectiveUID() != 0 {
		return skip("writing to these directories needs root; see IsPrivilegedUser")
	}
	var tried []string
	var found []fault.Finding
	for _, dir := range dirs {
		dir = existingDir(h, dir)
		if slices.Contains(tried, dir) {
			continue
		}
		tried = append(tried, dir)
		err := h.ProbeWrite(dir)
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("whether directories can be written to")
		case err != nil:
			found = append(found, unwritable(dir, err)...)
		}
	}
	return found
}

// unwritable explains why a directory can't be written to. Below /usr are only a bundle's files, and some systems never mount /usr
// writable.
func unwritable(dir string, err error) findings {
	if errors.Is(err, unix.EROFS) && strings.HasPrefix(dir+"/", "/usr/") {
		return fail("%s is on a read-only file system, and the bundle's programs go to /usr/local", dir).
			remedy("mount a writable file system at /usr/local; or, if this system keeps /usr read-only, as Flatcar does, " +
				"install containerd and the kubelet as this system does, such as from a systemd-sysext image, and leave out --bundle")
	}
	return fail("%v", err).remedy("make sure that %s is a directory on a file system that is mounted writable and has free space", dir)
}
