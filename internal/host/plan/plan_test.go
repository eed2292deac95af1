// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestPlanAsksNoDiskAndNoNetwork(t *testing.T) {
	o := NewOverlay(linux.NewAt(t.TempDir()), func(a host.Action) { t.Errorf("recorded %v", a) })
	_, times := o.SyncTimes(t.Context(), "/")
	_, names := o.LookupHost(t.Context(), "localhost")
	_, date := o.Date(t.Context(), host.Probe{URL: "https://127.0.0.1:1"})
	_, body := o.Fetch(t.Context(), host.Probe{URL: "https://127.0.0.1:1"})
	program := o.RunProgram(t.Context(), []string{"false"})
	for _, err := range []error{o.ProbeWrite("/"), times, names, date, body, program} {
		if !errors.Is(err, host.ErrNotInPlan) {
			t.Errorf("the plan asked: %v", err)
		}
	}
}

// TestNothingIsInherited: a wrapper of a host implements each method of Remote and Writer itself. If it embedded one of them, a
// method added later would act on the real host.
func TestNothingIsInherited(t *testing.T) {
	for _, wrapper := range []reflect.Type{reflect.TypeFor[overlay](), reflect.TypeFor[recorder]()} {
		for i := range wrapper.NumField() {
			field := wrapper.Field(i)
			if !field.Anonymous {
				continue
			}
			for _, acts := range []reflect.Type{reflect.TypeFor[host.Remote](), reflect.TypeFor[host.Writer]()} {
				for m := range acts.NumMethod() {
					if name := acts.Method(m).Name; hasMethod(field.Type, name) {
						t.Errorf("%s embeds %s, and with it %s", wrapper, field.Type, name)
					}
				}
			}
		}
	}
	if base, _ := reflect.TypeFor[overlay]().FieldByName("base"); base.Type != reflect.TypeFor[host.Reader]() {
		t.Errorf("the host of a dry run wraps a %s, want a Reader", base.Type)
	}
}

func hasMethod(t reflect.Type, name string) bool {
	_, found := t.MethodByName(name)
	return found
}

var own = host.Owner{UID: os.Getuid(), GID: os.Getgid()}

// other is another user, if the test may change owners.
func other() host.Owner {
	if os.Geteuid() != 0 {
		return own
	}
	return host.Owner{UID: 12345, GID: 23456}
}

func second[T any](_ T, err error) error { return err }

// script works like phases do, on any host.
func script(h host.Host, dir string) error {
	ctx := context.Background()
	p := func(name string) string { return filepath.Join(dir, name) }
	_, err1 := h.WriteFile(p("etc/kept"), []byte("kept"), 0o644)
	_, err2 := h.WriteFile(p("etc/kept"), []byte("new"), 0o644)
	_, err3 := h.WriteSecret(p("etc/pki/ca.key"), []byte("key"))
	_, err4 := h.WriteSecret(p("etc/pki/ca.key"), []byte("key"))
	return errors.Join(
		h.EnsureDir(p("etc"), 0o755),
		err1, err2,
		h.EnsureDir(p("etc/pki/etcd"), 0o700),
		h.Remove(p("etc/gone")), h.Remove(p("etc/gone")),
		err3, err4,
		h.SetOwner(p("etc/kept"), other(), 0o640), h.SetOwner(p("etc/kept"), other(), 0o640),
		second(h.WriteOwned(p("etc/owned.key"), []byte("key"), 0o600, other())), second(h.WriteOwned(p("etc/owned.key"), []byte("key"), 0o600, other())),
		second(h.SetTreeOwner(p("etc/pki"), other())), second(h.SetTreeOwner(p("etc/pki"), other())),
		h.OrderUnit(ctx, host.StopUnit, "kubelet"),
	)
}

func prepare(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "etc/pki"), 0o755); err != nil {
		t.Fatal(err)
	}
	fixture.PutMode(t, filepath.Join(dir, "etc/kept"), "kept", 0o644)
	fixture.PutMode(t, filepath.Join(dir, "etc/gone"), "gone", 0o644)
	return dir
}

func TestOverlayOrder(t *testing.T) {
	dir := prepare(t)
	list, record := fixture.Records()
	if err := script(NewOverlay(linux.New(), record), dir); err != nil {
		t.Fatal(err)
	}
	gave := func(path string) host.Action {
		return host.Action{Verb: host.Chown, Path: dir + path, UID: other().UID, GID: other().GID}
	}
	want := []host.Action{
		{Verb: host.Write, Path: dir + "/etc/kept", Mode: 0o644, Data: []byte("new")},
		{Verb: host.Write, Path: dir + "/etc/pki/ca.key", Mode: 0o600, Secret: true, Created: true},
		{Verb: host.Mkdir, Path: dir + "/etc/pki/etcd", Mode: 0o700},
		{Verb: host.Remove, Path: dir + "/etc/gone"},
		gave("/etc/kept"),
		{Verb: host.Chmod, Path: dir + "/etc/kept", Mode: 0o640},
		{Verb: host.Write, Path: dir + "/etc/owned.key", Mode: 0o600, Data: []byte("key"), Created: true},
		gave("/etc/owned.key"),
		gave("/etc/pki"),
		{Verb: host.Stop, Unit: "kubelet.service"},
	}
	if other() == own { // existing files keep their owner then; the plan's files belong to root
		want = slices.DeleteFunc(want, func(a host.Action) bool { return a.Verb == host.Chown && a.Path == dir+"/etc/pki" })
	}
	if diff := cmp.Diff(want, *list); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if got, _ := os.ReadFile(dir + "/etc/kept"); string(got) != "kept" {
		t.Errorf("a dry run wrote %q", got)
	}
	if diff := cmp.Diff([]string{"gone", "kept", "pki"}, fixture.Entries(t, dir+"/etc")); diff != "" {
		t.Errorf("a dry run changed the directory (-want +got):\n%s", diff)
	}
}

// fakeUnits lets a test run on a machine without systemd.
type fakeUnits struct{ *linux.Host }

func (fakeUnits) OrderUnit(context.Context, host.UnitOrder, string) error { return nil }

// A plan's files match a real run's.
func TestOverlayMatchesReal(t *testing.T) {
	planned, done := prepare(t), prepare(t)
	overlay := NewOverlay(linux.New(), func(host.Action) {})
	if err := script(overlay, planned); err != nil {
		t.Fatal(err)
	}
	real := fakeUnits{linux.New()}
	if err := script(real, done); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, real, done), tree(t, overlay, planned)); diff != "" {
		t.Errorf("real and planned (-real +planned):\n%s", diff)
	}
	// A second run finds everything done.
	if err := script(NewOverlay(real, func(a host.Action) {
		if a.Verb == host.Mkdir || a.Verb == host.Remove || a.Secret {
			t.Errorf("a second run would %v", a)
		}
	}), done); err != nil {
		t.Fatal(err)
	}
}

// tree describes a directory as a host shows it.
func tree(t *testing.T, h host.Host, dir string) []string {
	t.Helper()
	var out []string
	var walk func(path string)
	walk = func(path string) {
		info, err := h.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %v", strings.TrimPrefix(path, dir), info.Mode())
		if !info.IsDir() {
			data, err := h.ReadFile(path)
			if err != nil || info.Size() != int64(len(data)) {
				t.Fatalf("read %s: size %d, %d bytes, error %v", path, info.Size(), len(data), err)
			}
			out = append(out, line+" "+string(data))
			return
		}
		out = append(out, line)
		entries, err := h.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			walk(filepath.Join(path, e.Name()))
		}
	}
	walk(dir)
	return out
}

func TestOverlayReads(t *testing.T) {
	dir := prepare(t)
	o := NewOverlay(linux.New(), func(host.Action) {})
	data := []byte("mine")
	if _, err := o.WriteFile(dir+"/etc/a", data, 0o644); err != nil {
		t.Fatal(err)
	}
	data[0] = 'x' // the overlay has a copy
	if got, err := o.ReadFile(dir + "/etc/../etc/a"); string(got) != "mine" {
		t.Errorf("read %q, error %v", got, err)
	}
	if err := o.Remove(dir + "/etc/kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := o.ReadFile(dir + "/etc/kept"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: error %v", err)
	}
	if _, err := o.Lstat(dir + "/etc/kept"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: error %v", err)
	}
	if err := o.EnsureDir(dir+"/var/lib/etcd", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := o.ReadFile(dir + "/var/lib"); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a directory: error %v", err)
	}
	if entries, err := o.ReadDir(dir + "/var/lib/etcd"); len(entries) != 0 || err != nil {
		t.Errorf("a new directory: %v, error %v", entries, err)
	}
	if _, err := o.ReadDir(dir + "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: error %v", err)
	}
	if err := o.Remove(dir + "/var/lib"); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("a directory that is not empty: error %v", err)
	}
	if err := errors.Join(o.Remove(dir+"/var/lib/etcd"), o.Remove(dir+"/var/lib"), o.Remove(dir+"/etc/gone")); err != nil {
		t.Error(err)
	}
	if _, err := o.ReadDir(dir + "/var/lib"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed directory: error %v", err)
	}
	if _, err := o.WriteFile(dir+"/var/lib/f", nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a removed directory: error %v", err)
	}
}

func TestOverlayDirs(t *testing.T) {
	list, record := fixture.Records()
	o := NewOverlay(linux.New(), record)
	if err := o.EnsureDir("/tmp", 0o755); err != nil { // it exists, and keeps its mode
		t.Fatal(err)
	}
	makesDirs(t, o, list)
}

// No secret gets into an action, however it's written.
func TestOverlaySecrets(t *testing.T) {
	dir := t.TempDir()
	list, record := fixture.Records()
	o := NewOverlay(linux.New(), record)
	for name, write := range map[string]func(path string) (bool, error){
		"secret": func(p string) (bool, error) { return o.WriteSecret(p, []byte("hush")) },
		"pem": func(p string) (bool, error) {
			return o.WriteFile(p, []byte("-----BEGIN EC PRIVATE KEY-----\nhush\n"), 0o640)
		},
		"kubeconfig": func(p string) (bool, error) {
			return o.WriteFile(p, []byte("users:\n- user:\n    client-key-data: hush\n"), 0o600)
		},
		"again": func(p string) (bool, error) {
			_, err1 := o.WriteSecret(p, []byte("hush"))
			changed, err2 := o.WriteFile(p, []byte("hush"), 0o640)
			return changed, errors.Join(err1, err2)
		},
	} {
		if changed, err := write(filepath.Join(dir, name)); !changed || err != nil {
			t.Errorf("%s: changed %v, error %v", name, changed, err)
		}
	}
	if len(*list) != 5 {
		t.Errorf("%d actions", len(*list))
	}
	if text := fmt.Sprintf("%+v %s", *list, *list); strings.Contains(text, "hush") {
		t.Error(text)
	}
	for _, a := range *list {
		if !a.Secret || a.Data != nil {
			t.Errorf("%v shows %q", a, a.Data)
		}
	}
}

// faulty is a host on which the named calls fail.
type faulty struct {
	host.Host
	lstat, read, list, unit error
}

func (f faulty) Lstat(p string) (fs.FileInfo, error) {
	if f.lstat != nil {
		return nil, &fs.PathError{Op: "lstat", Path: p, Err: f.lstat}
	}
	return f.Host.Lstat(p)
}

func (f faulty) ReadFile(p string) ([]byte, error) {
	if f.read != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: f.read}
	}
	return f.Host.ReadFile(p)
}

func (f faulty) ReadDir(p string) ([]fs.DirEntry, error) {
	if f.list != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: f.list}
	}
	return f.Host.ReadDir(p)
}

func (f faulty) Unit(ctx context.Context, name string) (host.UnitState, error) {
	if f.unit != nil {
		return host.UnitState{}, f.unit
	}
	return host.UnitState{LoadState: "loaded", ActiveState: "failed", SubState: "failed", UnitFileState: "disabled", Result: "exit-code", MainPID: 7, Restarts: 3}, nil
}

// TestOverlayPartsOfFiles: the start and end of a file the run wrote come from the plan.
func TestOverlayPartsOfFiles(t *testing.T) {
	dir := prepare(t)
	_, record := fixture.Records()
	o := NewOverlay(linux.New(), record)
	parts := func(path string) string {
		head, headErr := host.ReadHead(o, path, 3)
		tail, tailErr := host.ReadTail(o, path, 3)
		all, allErr := host.ReadTail(o, path, 99)
		if headErr != nil || tailErr != nil || allErr != nil {
			return fmt.Sprint(headErr, tailErr, allErr)
		}
		return fmt.Sprintf("%s %s %s", head, tail, all)
	}
	if got := parts(dir + "/etc/kept"); got != "kep ept kept" {
		t.Errorf("of the host: %s", got)
	}
	if _, err := o.WriteFile(dir+"/etc/kept", []byte("planned"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := parts(dir + "/etc/kept"); got != "pla ned planned" {
		t.Errorf("of the plan: %s", got)
	}
	if err := o.Remove(dir + "/etc/kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := host.ReadHead(o, dir+"/etc/kept", 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a removed file: %v", err)
	}
}

// A dry run without the rights continues as far as it can, and then gives the remedy.
func TestOverlayForbidden(t *testing.T) {
	dir := prepare(t)
	list, record := fixture.Records()
	o := NewOverlay(faulty{Host: linux.New(), read: unix.EACCES}, record)
	if changed, err := o.WriteFile(dir+"/etc/kept", []byte("kept"), 0o644); !changed || err != nil {
		t.Errorf("changed %v, error %v", changed, err)
	}
	_, readErr := o.ReadFile(dir + "/etc/gone")
	if !errors.Is(readErr, fs.ErrPermission) {
		t.Errorf("error %v", readErr)
	}
	fact.Error(t, readErr, "as root", dir+"/etc/gone")

	o = NewOverlay(faulty{Host: linux.New(), lstat: unix.EACCES, read: unix.EACCES, list: unix.EACCES}, record)
	_, writeErr := o.WriteFile("/closed/f", []byte("x"), 0o644)
	if err := errors.Join(writeErr, o.EnsureDir("/closed/d", 0o755), o.Remove("/closed/g"), o.SetOwner("/closed/h", host.Owner{UID: 1, GID: 2}, 0o600)); err != nil {
		t.Error(err)
	}
	_, listErr := o.ReadDir("/closed")
	fact.Error(t, listErr, "as root")
	var got []string
	for _, a := range *list {
		got = append(got, strings.ReplaceAll(a.String(), dir, ""))
	}
	wantActions := []string{"write /etc/kept 0644", "write /closed/f 0644", "mkdir /closed/d 0755", "remove /closed/g", "chown /closed/h 1:2"}
	if diff := cmp.Diff(wantActions, got); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func TestOverlayBroken(t *testing.T) {
	o := NewOverlay(faulty{Host: linux.New(), lstat: unix.EIO}, func(a host.Action) { t.Errorf("recorded %v", a) })
	_, writeErr := o.WriteFile("/d/f", nil, 0o644)
	for _, err := range []error{writeErr, o.EnsureDir("/d", 0o755), o.Remove("/d/f"), o.SetOwner("/d/f", own, 0o600)} {
		if !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "dmesg") {
			t.Errorf("error %v", err)
		}
	}
}

func TestOverlayUnits(t *testing.T) {
	for label, base := range map[string]host.Host{
		"with systemd":    faulty{Host: linux.New()},
		"without systemd": faulty{Host: linux.New(), unit: errors.New("no bus")},
	} {
		t.Run(label, func(t *testing.T) {
			ctx := t.Context()
			list, record := fixture.Records()
			o := NewOverlay(base, record)
			state, err := o.Unit(ctx, "kubelet")
			baseState, baseErr := base.Unit(ctx, "kubelet")
			if state != baseState || !errors.Is(err, baseErr) {
				t.Errorf("before: %+v, error %v", state, err)
			}
			if err := errors.Join(o.OrderUnit(ctx, host.StopUnit, "kubelet"), o.ReloadUnits(ctx), o.OrderUnit(ctx, host.EnableUnit, "kubelet"), o.OrderUnit(ctx, host.EnableUnit, "kubelet.service")); err != nil {
				t.Fatal(err)
			}
			state, err = o.Unit(ctx, "kubelet.service")
			if err != nil || state.ActiveState != "inactive" || state.MainPID != 0 || state.UnitFileState != "enabled" || state.LoadState != "loaded" {
				t.Errorf("stopped: %+v, error %v", state, err)
			}
			if err := o.OrderUnit(ctx, host.StartUnit, "kubelet"); err != nil {
				t.Fatal(err)
			}
			state, err = o.Unit(ctx, "kubelet")
			if err != nil || state.ActiveState != "active" || state.SubState != "running" || state.Result != "success" || state.Restarts != 0 {
				t.Errorf("started: %+v, error %v", state, err)
			}
			if err := errors.Join(o.OrderUnit(ctx, host.RestartUnit, "kubelet"), o.PullImage(ctx, "unix:///none", "pause"), o.Probe(ctx, host.Probe{URL: "https://127.0.0.1:1"})); err != nil {
				t.Fatal(err)
			}
			const kubelet = "kubelet.service"
			want := []host.Action{{Verb: host.Stop, Unit: kubelet}, {Verb: host.Reload}, {Verb: host.Enable, Unit: kubelet}, {Verb: host.Start, Unit: kubelet}, {Verb: host.Restart, Unit: kubelet}, {Verb: host.Pull, Image: "pause"}}
			if diff := cmp.Diff(want, *list); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}
