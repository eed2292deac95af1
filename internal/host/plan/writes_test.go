// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/stage"
)

// write is a method of host.Writer: how it's called, and the actions it stands for, in the overlay and the recorder.
type write struct {
	do func(ctx context.Context, h host.Host, filled func()) error
	// actions are none if nothing lasts of it.
	actions []host.Action
	// again: a second call does and records it again. exists: that's an error.
	again, exists bool
	// unasked: a plan returns ErrNotInPlan.
	unasked bool
	// seen reads the result afterwards.
	seen func(ctx context.Context, h host.Host) (any, error)
}

const (
	socket    = "unix:///run/x.sock"
	parameter = "net/ipv4/ip_forward"
)

var (
	someone = host.Owner{UID: 4711, GID: 4712}
	pod     = host.Pod{ID: "1", Namespace: "ns", Name: "web"}
	cni0    = host.Leftover{Kind: host.Link, Name: "cni0"}
	binary  = host.SetFile{Path: "/opt/a", Mode: 0o755, Size: 3, SHA256: [32]byte{0x98, 0x34, 0x87, 0x6d, 0xcf, 0xb0, 0x5c, 0xb1, 0x67, 0xa5, 0xc2, 0x49, 0x53, 0xeb, 0xa5, 0x8c, 0x4a, 0xc8, 0x9b, 0x1a, 0xdf, 0x57, 0xf2, 0x8f, 0x2f, 0x9d, 0x09, 0xaf, 0x10, 0x7e, 0xe8, 0xf0}}
	library = host.SetFile{Path: "/etc/kept", Mode: 0o600, Size: 3, SHA256: [32]byte{0x3e, 0x74, 0x4b, 0x9d, 0xc3, 0x93, 0x89, 0xba, 0xf0, 0xc5, 0xa0, 0x66, 0x05, 0x89, 0xb8, 0x40, 0x2f, 0x3d, 0xbb, 0x49, 0xb8, 0x9b, 0x3e, 0x75, 0xf2, 0xc9, 0x35, 0x58, 0x52, 0xa3, 0xc6, 0x77}}
)

func content(path string) func(context.Context, host.Host) (any, error) {
	return func(_ context.Context, h host.Host) (any, error) {
		data, err := h.ReadFile(path)
		return string(data), err
	}
}

func imagePresent(name string) func(context.Context, host.Host) (any, error) {
	return func(ctx context.Context, h host.Host) (any, error) { return h.ImagePresent(ctx, socket, name) }
}

func mode(path string) func(context.Context, host.Host) (any, error) {
	return func(_ context.Context, h host.Host) (any, error) {
		info, err := h.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "none", nil
		}
		if err != nil {
			return nil, err
		}
		return info.Mode().String(), nil
	}
}

// unit is an order about a unit: its action in a plan, and the states afterwards.
func unit(order host.UnitOrder, verb host.Verb, name string, again bool) write {
	return write{
		do:      func(ctx context.Context, h host.Host, _ func()) error { return h.OrderUnit(ctx, order, name) },
		actions: []host.Action{{Verb: verb, Unit: name}}, again: again,
		seen: func(ctx context.Context, h host.Host) (any, error) {
			state, err := h.Unit(ctx, name)
			return state.ActiveState + " " + state.UnitFileState, err
		},
	}
}

// passing is an order without a lasting effect.
func passing(order func(ctx context.Context, h host.Host) error) write {
	return write{do: func(ctx context.Context, h host.Host, _ func()) error { return order(ctx, h) }}
}

// writes has each method of host.Writer, and each order of OrderUnit.
var writes = map[string]write{
	"WriteFile": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, err := h.WriteFile("/etc/kept", []byte("new"), 0o640)
			return err
		},
		actions: []host.Action{{Verb: host.Write, Path: "/etc/kept", Mode: 0o640, Data: []byte("new")}},
		seen:    content("/etc/kept"),
	},
	"WriteSecret": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, err := h.WriteSecret("/etc/ca.key", []byte("key"))
			return err
		},
		actions: []host.Action{{Verb: host.Write, Path: "/etc/ca.key", Mode: 0o600, Secret: true, Created: true}},
		seen:    content("/etc/ca.key"),
	},
	"WriteStream": {
		do: func(_ context.Context, h host.Host, filled func()) error {
			return h.WriteStream("/etc/snapshot.db", func(w io.Writer) error {
				filled()
				_, err := io.WriteString(w, "data")
				return err
			})
		},
		actions: []host.Action{{Verb: host.Write, Path: "/etc/snapshot.db", Mode: 0o600, Secret: true, Created: true}}, again: true,
		seen: mode("/etc/snapshot.db"),
	},
	"WriteTree": {
		do: func(_ context.Context, h host.Host, filled func()) error {
			return h.WriteTree("/etc/tree", func(string) error { filled(); return nil })
		},
		actions: []host.Action{{Verb: host.Mkdir, Path: "/etc/tree", Mode: 0o700}}, exists: true,
		seen: mode("/etc/tree"),
	},
	"WriteSet": {
		do: func(_ context.Context, h host.Host, filled func()) error {
			return h.WriteSet([]host.SetFile{binary, library}, func(put func(string, io.Reader) error) error {
				filled()
				return errors.Join(put(binary.Path, strings.NewReader("aaa")), put(library.Path, strings.NewReader("bbb")))
			})
		},
		actions: []host.Action{
			{Verb: host.Write, Path: binary.Path, Mode: 0o755, Created: true, Opaque: true, Data: []byte("(3 bytes, sha256:9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0)\n")},
			{Verb: host.Write, Path: library.Path, Mode: 0o600, Opaque: true, Data: []byte("(3 bytes, sha256:3e744b9dc39389baf0c5a0660589b8402f3dbb49b89b3e75f2c9355852a3c677)\n")},
		},
		again: true, // callers skip existing files
		seen:  func(_ context.Context, h host.Host) (any, error) { return h.HasFile(library) },
	},
	"Rename": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, err := h.Rename("/etc/kept", "/etc/moved")
			return err
		},
		actions: []host.Action{{Verb: host.Rename, Path: "/etc/kept", NewPath: "/etc/moved"}},
		seen:    mode("/etc/moved"),
	},
	"EnsureDir": {
		do: func(_ context.Context, h host.Host, _ func()) error { return h.EnsureDir("/etc/a/b", 0o700) },
		actions: []host.Action{
			{Verb: host.Mkdir, Path: "/etc/a", Mode: 0o755},
			{Verb: host.Mkdir, Path: "/etc/a/b", Mode: 0o700},
		},
		seen: mode("/etc/a/b"),
	},
	"Remove": {
		do:      func(_ context.Context, h host.Host, _ func()) error { return h.Remove("/etc/kept") },
		actions: []host.Action{{Verb: host.Remove, Path: "/etc/kept"}},
		seen:    mode("/etc/kept"),
	},
	"RemoveEmpty": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, full := h.RemoveEmpty("/etc/full")
			_, err := h.RemoveEmpty("/etc/empty")
			return errors.Join(full, err)
		},
		actions: []host.Action{{Verb: host.Remove, Path: "/etc/empty"}},
		seen:    mode("/etc/empty"),
	},
	"RemoveTree": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, err := h.RemoveTree("/etc/full")
			return err
		},
		actions: []host.Action{{Verb: host.RemoveTree, Path: "/etc/full", Entries: []string{"file"}}},
		seen:    mode("/etc/full/file"),
	},
	"Unmount": {
		do:      func(_ context.Context, h host.Host, _ func()) error { return h.Unmount("/mnt/disk", nil) },
		actions: []host.Action{{Verb: host.Unmount, Path: "/mnt/disk"}}, again: true,
		seen: func(_ context.Context, h host.Host) (any, error) {
			mounts, err := h.Mounts("/mnt")
			return len(mounts), err
		},
	},
	"WriteOwned": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, err := h.WriteOwned("/etc/owned", []byte("text"), 0o640, someone)
			return err
		},
		actions: []host.Action{
			{Verb: host.Write, Path: "/etc/owned", Mode: 0o640, Data: []byte("text"), Created: true},
			{Verb: host.Chown, Path: "/etc/owned", UID: someone.UID, GID: someone.GID},
		},
		seen: content("/etc/owned"),
	},
	"SetOwner": {
		do: func(_ context.Context, h host.Host, _ func()) error { return h.SetOwner("/etc/kept", someone, 0o640) },
		actions: []host.Action{
			{Verb: host.Chown, Path: "/etc/kept", UID: someone.UID, GID: someone.GID},
			{Verb: host.Chmod, Path: "/etc/kept", Mode: 0o640},
		},
		seen: mode("/etc/kept"),
	},
	"SetTreeOwner": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, err := h.SetTreeOwner("/etc/full", someone)
			return err
		},
		actions: []host.Action{{Verb: host.Chown, Path: "/etc/full", UID: someone.UID, GID: someone.GID}},
		seen:    mode("/etc/full"),
	},
	"LockAccounts": passing(func(_ context.Context, h host.Host) error {
		release, err := h.LockAccounts()
		if err == nil {
			release()
		}
		return err
	}),
	"ReloadUnits": {
		do:      func(ctx context.Context, h host.Host, _ func()) error { return h.ReloadUnits(ctx) },
		actions: []host.Action{{Verb: host.Reload}}, again: true,
	},
	"OrderUnit enable":  unit(host.EnableUnit, host.Enable, "kubelet.service", false),
	"OrderUnit disable": unit(host.DisableUnit, host.Disable, "running.service", false),
	"OrderUnit mask":    unit(host.MaskUnit, host.Mask, "kubelet.service", false),
	"OrderUnit unmask":  unit(host.UnmaskUnit, host.Unmask, "masked.service", false),
	"OrderUnit start":   unit(host.StartUnit, host.Start, "kubelet.service", true),
	"OrderUnit stop":    unit(host.StopUnit, host.Stop, "running.service", true),
	"OrderUnit restart": unit(host.RestartUnit, host.Restart, "kubelet.service", true),
	"OrderUnit suspend": passing(func(ctx context.Context, h host.Host) error {
		return h.OrderUnit(ctx, host.SuspendUnit, "running.service")
	}),
	"OrderUnit kill": passing(func(ctx context.Context, h host.Host) error {
		return h.OrderUnit(ctx, host.KillUnit, "running.service")
	}),
	"SyncFiles":                passing(func(_ context.Context, h host.Host) error { return h.SyncFiles("/etc") }),
	"RepairInterruptedFetches": passing(func(ctx context.Context, h host.Host) error { return h.RepairInterruptedFetches(ctx, socket) }),
	"PullImage": {
		do:      func(ctx context.Context, h host.Host, _ func()) error { return h.PullImage(ctx, socket, "new:1") },
		actions: []host.Action{{Verb: host.Pull, Image: "new:1"}}, again: true,
		seen: imagePresent("new:1"),
	},
	"ImportImages": {
		do: func(ctx context.Context, h host.Host, filled func()) error {
			return h.ImportImages(ctx, socket, []string{"new:1", "new:2"}, func(io.Writer) error { filled(); return nil })
		},
		actions: []host.Action{{Verb: host.Import, Image: "new:1"}, {Verb: host.Import, Image: "new:2"}}, again: true,
		seen: imagePresent("new:2"),
	},
	"PinImage": {
		do: func(ctx context.Context, h host.Host, _ func()) error {
			return errors.Join(h.PinImage(ctx, socket, "old:1", true), h.PinImage(ctx, socket, "old:1", false))
		},
		actions: []host.Action{{Verb: host.Pin, Image: "old:1"}, {Verb: host.Unpin, Image: "old:1"}}, again: true,
	},
	"RemoveImage": {
		do:      func(ctx context.Context, h host.Host, _ func()) error { return h.RemoveImage(ctx, socket, "old:1") },
		actions: []host.Action{{Verb: host.RemoveImage, Image: "old:1"}}, again: true,
		seen: imagePresent("old:1"),
	},
	"StopContainer": passing(func(ctx context.Context, h host.Host) error {
		return h.StopContainer(ctx, socket, "etcd", time.Second)
	}),
	"RemoveExited": passing(func(ctx context.Context, h host.Host) error {
		return h.RemoveExited(ctx, socket, "kube-system", "etcd")
	}),
	"RemovePods": {
		do: func(ctx context.Context, h host.Host, _ func()) error {
			_, err := h.RemovePods(ctx, socket, []host.Pod{pod})
			return err
		},
		actions: []host.Action{{Verb: host.RemovePod, Name: "ns/web"}}, again: true,
		seen: func(ctx context.Context, h host.Host) (any, error) {
			pods, err := h.Pods(ctx, socket)
			return len(pods), err
		},
	},
	"SetParameter": {
		do: func(_ context.Context, h host.Host, _ func()) error {
			_, err := h.SetParameter(parameter, "1")
			return err
		},
		actions: []host.Action{{Verb: host.Set, Name: "net.ipv4.ip_forward=1"}},
		seen:    content(host.ProcSys + parameter),
	},
	"LoadModule": {
		do:      func(ctx context.Context, h host.Host, _ func()) error { return h.LoadModule(ctx, "overlay") },
		actions: []host.Action{{Verb: host.LoadModule, Name: "overlay"}}, again: true,
	},
	"SwapOff": {
		do:      func(_ context.Context, h host.Host, _ func()) error { return h.SwapOff("/swapfile") },
		actions: []host.Action{{Verb: host.SwapOff, Name: "/swapfile"}}, again: true,
		seen: func(_ context.Context, h host.Host) (any, error) {
			areas, err := h.Swap()
			return len(areas), err
		},
	},
	"SwapOn": {
		do:      func(_ context.Context, h host.Host, _ func()) error { return h.SwapOn("/swapfile") },
		actions: []host.Action{{Verb: host.SwapOn, Name: "/swapfile"}}, again: true,
	},
	"RestoreContexts": {
		do: func(ctx context.Context, h host.Host, _ func()) error {
			return h.RestoreContexts(ctx, []string{"/opt", "/etc/kept"})
		},
		actions: []host.Action{{Verb: host.Relabel, Path: "/opt"}, {Verb: host.Relabel, Path: "/etc/kept"}}, again: true,
	},
	"RemoveLeftover": {
		do:      func(ctx context.Context, h host.Host, _ func()) error { return h.RemoveLeftover(ctx, cni0) },
		actions: []host.Action{{Verb: host.Remove, Name: cni0.String()}}, again: true,
	},
	"ProbeWrite": {
		do:      func(_ context.Context, h host.Host, _ func()) error { return h.ProbeWrite("/etc") },
		unasked: true,
	},
	"SyncTimes": {
		do: func(ctx context.Context, h host.Host, _ func()) error {
			_, err := h.SyncTimes(ctx, "/etc")
			return err
		},
		unasked: true,
	},
}

// furnished is a host on which each of the writes changes something.
func furnished(t *testing.T) *stage.Host {
	t.Helper()
	h := stage.New(t)
	mounts := "21 1 8:1 / / rw - ext4 /dev/sda rw\n"
	for path, text := range map[string]string{
		"/etc/kept": "kept", "/etc/full/file": "", host.ProcSys + parameter: "0\n", "/proc/self/mountinfo": mounts + "22 21 0:5 / /mnt/disk rw - tmpfs tmpfs rw\n",
	} {
		fixture.Put(t, h.Root, path, text)
	}
	for _, dir := range []string{"/etc/empty", "/mnt/disk", "/opt"} {
		if err := os.MkdirAll(filepath.Join(h.Root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.Has.Units["running.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"}
	h.Has.Units["masked.service"] = host.UnitState{LoadState: "masked", ActiveState: "inactive", UnitFileState: "masked"}
	h.Has.Images = []host.Image{{Names: []string{"old:1"}}}
	h.Has.Pods, h.Has.Leftovers, h.Has.Swap = []host.Pod{pod}, []host.Leftover{cni0}, []string{"/swapfile"}
	h.On.Unmount = func(string, []string) error {
		fixture.Put(t, h.Root, "/proc/self/mountinfo", mounts)
		return nil
	}
	if os.Getuid() == 0 {
		h.On.WriteOwned, h.On.Give, h.On.GiveTree = h.Real.WriteOwned, h.Real.SetOwner, h.Real.SetTreeOwner
	}
	return h
}

// files maps a host's paths to their modes and times.
func files(t *testing.T, h *stage.Host) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(h.Root, func(path string, info fs.FileInfo, err error) error {
		if err == nil {
			all[path] = info.Mode().String() + " " + info.ModTime().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryWriteHasARow: the tests of the overlay and the recorder cover each method of host.Writer.
func TestEveryWriteHasARow(t *testing.T) {
	methods := map[string]bool{}
	for m := range reflect.TypeFor[host.Writer]().Methods() {
		methods[m.Name] = true
	}
	rows := map[string]bool{}
	for name := range writes {
		name, _, _ = strings.Cut(name, " ")
		if rows[name] = true; !methods[name] {
			t.Errorf("host.Writer has no method %s", name)
		}
	}
	for name := range methods {
		if !rows[name] {
			t.Errorf("no row for %s: say what the overlay and the recorder make of it", name)
		}
	}
}

// TestPlannedWrites: the overlay records each write, gives no order, and shows the changes it would have made.
func TestPlannedWrites(t *testing.T) {
	for name, w := range writes {
		t.Run(name, func(t *testing.T) {
			ctx, h := t.Context(), furnished(t)
			before := files(t, h)
			h.Before = func(_ context.Context, order string) error { t.Errorf("a plan gave the order %s", order); return nil }
			var actions []host.Action
			o := plan.NewOverlay(h, func(a host.Action) { actions = append(actions, a) })
			filled := func() { t.Error("a plan wanted the content") }
			err := w.do(ctx, o, filled)
			if errors.Is(err, host.ErrNotInPlan) != w.unasked || err != nil && !w.unasked {
				t.Errorf("error %v", err)
			}
			w.check(t, actions, func() error { return w.do(ctx, o, filled) }, func() int { return len(actions) })
			if diff := cmp.Diff(before, files(t, h)); diff != "" || len(h.Jobs) > 0 {
				t.Errorf("a plan did %q (-before +after):\n%s", h.Jobs, diff)
			}
			if w.seen == nil {
				return
			}
			h.Before = nil
			planned, err := w.seen(ctx, o)
			if err := errors.Join(err, w.do(ctx, h, func() {})); err != nil {
				t.Fatal(err)
			}
			if done, err := w.seen(ctx, h); err != nil || done != planned {
				t.Errorf("the plan shows %v, and after a run there is %v (%v)", planned, done, err)
			}
		})
	}
}

// TestRecordedWrites: the recorder passes each write on, and records it as the plan did; a failed write isn't recorded.
func TestRecordedWrites(t *testing.T) {
	for name, w := range writes {
		t.Run(name, func(t *testing.T) {
			ctx, h := t.Context(), furnished(t)
			var actions []host.Action
			r := plan.NewRecorder(h, func(a host.Action) { actions = append(actions, a) })
			if !w.unasked { // otherwise it's a question
				refused := errors.New("no")
				h.Before = func(context.Context, string) error { return refused }
				if err := w.do(ctx, r, func() {}); !errors.Is(err, refused) || len(actions) > 0 {
					t.Errorf("refused: error %v, recorded %v", err, actions)
				}
				h.Before = nil
			}
			fills := 0
			filled := func() { fills++ }
			if err := w.do(ctx, r, filled); err != nil {
				t.Fatal(err)
			}
			w.check(t, actions, func() error { return w.do(ctx, r, filled) }, func() int { return len(actions) })
		})
	}
}

// check compares the actions of a write, and does it once more.
func (w write) check(t *testing.T, actions []host.Action, do func() error, count func() int) {
	t.Helper()
	if diff := cmp.Diff(w.actions, actions); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if w.unasked {
		return
	}
	if err := do(); w.exists != errors.Is(err, fs.ErrExist) || err != nil && !w.exists {
		t.Errorf("the second time: error %v", err)
	}
	if more := count() - len(actions); (more > 0) != w.again {
		t.Errorf("the second time: %d actions", more)
	}
}
