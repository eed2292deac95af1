// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// withParameter is a host with one kernel parameter.
func withParameter(t *testing.T, name, value string) (*Host, string) {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, host.ProcSys, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	fixture.PutMode(t, path, value, 0o644)
	return NewAt(root), path
}

func TestSetParameter(t *testing.T) {
	const name = "net/ipv4/ip_forward"
	for label, test := range map[string]struct {
		before, after string
		changed       bool
	}{
		"other":     {"0\n", "1\n", true},
		"longer":    {"100\n", "1\n", true},
		"unchanged": {"1\n", "1\n", false},
	} {
		t.Run(label, func(t *testing.T) {
			r, path := withParameter(t, name, test.before)
			planned, add := fixture.Records()
			o := plan.NewOverlay(r, add)
			if changed, err := o.SetParameter(name, "1"); changed != test.changed || err != nil {
				t.Errorf("the plan: changed %v, error %v", changed, err)
			}
			if got, err := o.ReadFile(host.ProcSys + name); string(got) != "1\n" {
				t.Errorf("the plan shows %q, error %v", got, err)
			}
			if got, _ := os.ReadFile(path); string(got) != test.before {
				t.Fatalf("a plan wrote %q", got)
			}
			did, record := fixture.Records()
			if changed, err := plan.NewRecorder(r, record).SetParameter(name, "1"); changed != test.changed || err != nil {
				t.Errorf("changed %v, error %v", changed, err)
			}
			if got, _ := os.ReadFile(path); string(got) != test.after {
				t.Errorf("it is %q now", got)
			}
			var want []host.Action
			if test.changed {
				want = []host.Action{{Verb: host.Set, Name: "net.ipv4.ip_forward=1"}}
			}
			if diff := cmp.Diff([][]host.Action{want, want}, [][]host.Action{*planned, *did}); diff != "" {
				t.Errorf("actions of plan and run (-want +got):\n%s", diff)
			}
		})
	}
}

// A kernel without the parameter is an error, unless a planned module may bring it.
func TestSetParameterMissing(t *testing.T) {
	const name = "net/bridge/bridge-nf-call-iptables"
	r, _ := withParameter(t, "net/ipv4/ip_forward", "1\n")
	list, record := fixture.Records()
	o := plan.NewOverlay(r, record)
	for label, h := range map[string]host.Host{"real": r, "recorder": plan.NewRecorder(r, record), "plan": o} {
		changed, err := h.SetParameter(name, "1")
		if changed || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "kernel parameter /") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: changed %v, error %v", label, changed, err)
		}
	}
	if err := o.LoadModule(t.Context(), "br_netfilter"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := o.SetParameter(name, "1"); changed != want || err != nil {
			t.Errorf("with the module: changed %v, error %v", changed, err)
		}
	}
	want := []host.Action{{Verb: host.LoadModule, Name: "br_netfilter"}, {Verb: host.Set, Name: "net.bridge.bridge-nf-call-iptables=1"}}
	if diff := cmp.Diff(want, *list); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// ran are calls that run a program, with their records.
var ran = map[string]struct {
	call   func(context.Context, host.Host) error
	args   string
	verb   host.Verb
	tried  []string // facts of any error
	remedy string   // if the program fails
	lacks  string   // if there is no program
}{
	"modprobe": {
		func(ctx context.Context, h host.Host) error { return h.LoadModule(ctx, "br_netfilter") }, "-- br_netfilter", host.LoadModule,
		[]string{"kernel module br_netfilter", "modprobe"}, "uname -r", "install kmod",
	},
	"restorecon": {
		func(ctx context.Context, h host.Host) error {
			return h.RestoreContexts(ctx, []string{"/opt/cni", "-x"})
		}, "-R -- /opt/cni -x", host.Relabel,
		[]string{"SELinux contexts", "restorecon"}, "`restorecon -R`", "install policycoreutils",
	},
}

// TestLoadModuleAfterUpgrade: some distributions delete the running kernel's modules when they install another kernel.
func TestLoadModuleAfterUpgrade(t *testing.T) {
	release, err := New().KernelRelease()
	if err != nil {
		t.Fatal(err)
	}
	other, own := "lib/modules/"+release+"-newer/modules.dep", "lib/modules/"+release+"/modules.dep"
	for name, test := range map[string]struct {
		files  []string
		remedy string
	}{
		"upgraded":              {[]string{other}, "/lib/modules"},
		"both are installed":    {[]string{other, own}, "kernel-modules-extra-$(uname -r)"},
		"no modules at all":     {nil, "kernel-modules-extra-$(uname -r)"},
		"a container's modules": {[]string{other, "run/systemd/container"}, "kernel-modules-extra-$(uname -r)"},
	} {
		t.Run(name, func(t *testing.T) {
			fixture.FakeProgram(t, "modprobe", "exit 1")
			root := t.TempDir()
			for _, path := range test.files {
				fixture.Put(t, root, path, "")
			}
			fact.Error(t, NewAt(root).LoadModule(t.Context(), "br_netfilter"), "br_netfilter", test.remedy)
		})
	}
}

func TestProgramsOfTheKernel(t *testing.T) {
	for name, p := range ran {
		t.Run(name, func(t *testing.T) {
			note := fixture.FakeProgram(t, name, `echo "$*" >>"$notes"; echo "$HOME$LC_ALL" >>"$notes"; echo talk`)
			planned, add := fixture.Records()
			did, record := fixture.Records()
			if err := p.call(t.Context(), plan.NewOverlay(New(), add)); err != nil || note() != "" {
				t.Fatalf("the plan: error %v, ran with %q", err, note())
			}
			if err := p.call(t.Context(), plan.NewRecorder(New(), record)); err != nil {
				t.Fatal(err)
			}
			if want := p.args + "\nC\n"; note() != want {
				t.Errorf("ran with %q, want %q", note(), want)
			}
			if diff := cmp.Diff(*planned, *did); diff != "" || len(*did) == 0 || (*did)[0].Verb != p.verb {
				t.Errorf("%v, done (-planned +done):\n%s", *did, diff)
			}
		})
	}
}

func TestProgramsOfTheKernelFail(t *testing.T) {
	for name, p := range ran {
		for script, want := range map[string]string{
			"echo FATAL: Module not found >&2; echo more >&2; exit 1": name + ": FATAL: Module not found: exit status 1",
			"exit 3": name + ": exit status 3",
		} {
			t.Run(name+" "+script, func(t *testing.T) {
				fixture.FakeProgram(t, name, script)
				list, record := fixture.Records()
				err := p.call(t.Context(), plan.NewRecorder(New(), record))
				if err == nil {
					t.Fatal("no error")
				}
				fact.In(t, fixture.Told(err), append(p.tried, p.remedy)...)
				if !strings.HasSuffix(err.Error(), want) {
					t.Errorf("error\n%v, want\n%s", err, want)
				}
				if len(*list) > 0 {
					t.Errorf("recorded %v", *list)
				}
			})
		}
		t.Run(name+" is missing", func(t *testing.T) {
			fixture.NoPrograms(t)
			err := p.call(t.Context(), New())
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, err.Error(), p.tried...)
			fact.In(t, fixture.Told(err), p.lacks)
		})
		t.Run(name+" hangs", func(t *testing.T) {
			fixture.FakeProgram(t, name, "exec /bin/sleep 60")
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := p.call(ctx, New())
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			fact.Error(t, err, p.tried...)
		})
	}
}

func TestRestoreContextsOfNothing(t *testing.T) {
	fixture.NoPrograms(t)
	if err := New().RestoreContexts(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestSELinux(t *testing.T) {
	r, path := withParameter(t, "../../sys/fs/selinux/enforce", "0")
	if !r.SELinux() {
		t.Error("SELinux is not seen")
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if r.SELinux() {
		t.Error("SELinux is seen where there is none")
	}
}

// TestNewDirectoriesAreLabelled, with missing parents, before another caller finds them. Without restorecon, they're made all the same.
func TestNewDirectoriesAreLabelled(t *testing.T) {
	h, path := withParameter(t, "../../sys/fs/selinux/enforce", "1")
	root := strings.TrimSuffix(path, "/sys/fs/selinux/enforce")
	note := fixture.FakeProgram(t, "restorecon", `echo "$*" >>"$notes"`)
	for range 2 {
		if err := h.EnsureDir("/opt/cni/bin", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if want := "-R -- " + root + "/opt\n"; note() != want {
		t.Errorf("ran with %q, want %q", note(), want)
	}
	fixture.NoPrograms(t)
	if err := h.EnsureDir("/opt/other", 0o755); err != nil {
		t.Error(err)
	}
	if info, err := h.Lstat("/opt/other"); err != nil || !info.IsDir() {
		t.Error(err)
	}
}

// swapping has two swap areas, and takes every order.
type swapping struct {
	host.Host
	refuse error
}

func (swapping) Swap() ([]string, error) { return []string{"/dev/sda2", "/swapfile"}, nil }

func (s swapping) SwapOff(string) error { return s.refuse }

func (s swapping) SwapOn(string) error { return s.refuse }

func TestSwapPlanned(t *testing.T) {
	planned, add := fixture.Records()
	o := plan.NewOverlay(swapping{Host: New()}, add)
	check := func(want ...string) {
		t.Helper()
		if got, err := o.Swap(); err != nil || !cmp.Equal(want, got) {
			t.Errorf("the plan has swap on %q, error %v; want %q", got, err, want)
		}
	}
	orders := func(h host.Host) error {
		return errors.Join(h.SwapOff("/dev/sda2"), h.SwapOff("/swapfile"), h.SwapOn("/dev/sda2"))
	}
	check("/dev/sda2", "/swapfile")
	if err := orders(o); err != nil {
		t.Fatal(err)
	}
	check("/dev/sda2")
	did, record := fixture.Records()
	if err := orders(plan.NewRecorder(swapping{Host: New()}, record)); err != nil {
		t.Fatal(err)
	}
	want := []host.Action{{Verb: host.SwapOff, Name: "/dev/sda2"}, {Verb: host.SwapOff, Name: "/swapfile"}, {Verb: host.SwapOn, Name: "/dev/sda2"}}
	if diff := cmp.Diff([][]host.Action{want, want}, [][]host.Action{*planned, *did}); diff != "" {
		t.Errorf("actions of plan and run (-want +got):\n%s", diff)
	}
	refused := errors.New("no")
	if err := orders(plan.NewRecorder(swapping{New(), refused}, func(a host.Action) { t.Errorf("recorded %v", a) })); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
}
