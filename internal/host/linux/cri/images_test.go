// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestImageDirOfAnOldRuntime(t *testing.T) {
	h := onlyRuntimes()
	defer h.Close()
	dir, err := h.ImageDir(t.Context(), (&fakeCRI{}).serve(t))
	if dir != "" || err != nil {
		t.Errorf("%q, %v", dir, err)
	}
}

const pauseImage = "registry.k8s.io/pause:3.10.2"

func (f *fakeCRI) ListImages(ctx context.Context, _ *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{Images: []*cri.Image{
		{Id: "sha256:1", RepoTags: []string{pauseImage, "mine/pause:1"}, Pinned: true},
		{Id: "sha256:2", RepoDigests: []string{"a@sha256:3"}},
	}}, f.wait(ctx)
}

func (f *fakeCRI) RemoveImage(ctx context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removed = append(f.removed, r.GetImage().GetImage())
	return &cri.RemoveImageResponse{}, f.wait(ctx)
}

func TestImageList(t *testing.T) {
	f := &fakeCRI{}
	socket := f.serve(t)
	got, err := newRuntimes(t).Images(t.Context(), "unix://"+socket)
	want := []host.Image{{ID: "sha256:1", Names: []string{pauseImage, "mine/pause:1"}, Pinned: true}, {ID: "sha256:2"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, images (-want +got):\n%s", err, diff)
	}
}

func TestRemoveImage(t *testing.T) {
	f := &fakeCRI{}
	socket := f.serve(t)
	list, record := fixture.Records()
	if err := plan.NewRecorder(newRuntimes(t), record).RemoveImage(t.Context(), socket, pauseImage); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{pauseImage}, f.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]host.Action{{Verb: host.RemoveImage, Image: pauseImage}}, *list); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

func TestImageServiceAnswersWrong(t *testing.T) {
	f := &fakeCRI{answer: status.Error(codes.Unknown, "the store is damaged")}
	socket := f.serve(t)
	r := newRuntimes(t)
	list := func(socket string) error { _, err := r.Images(t.Context(), socket); return err }
	remove := func(socket string) error { return r.RemoveImage(t.Context(), socket, pauseImage) }
	for op, ask := range map[string]func(string) error{"list": list, "image " + pauseImage: remove} {
		fact.Error(t, ask(socket), op, socket, "is damaged")
		if err := ask("tcp://192.0.2.1:1"); err == nil || !strings.Contains(fixture.Told(err), "unix:///run/containerd/containerd.sock") {
			t.Errorf("%s at an address: error %v", op, err)
		}
	}
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// fakeCtr makes a script containerd's client, which has flags for an import.
func fakeCtr(t *testing.T, flags, script string) (note func() string) {
	t.Helper()
	return fixture.FakeProgram(t, "ctr", `if [ "$7" = --help ]; then echo "`+flags+`"; exit; fi; `+script)
}

// The lines about flags in `ctr images import --help`.
const (
	flagsOf16 = "   --platform value           Imports content for specific platform"
	flagsOf17 = flagsOf16 + "\n   --local                    run import locally rather than through transfer API"
	flagsOf2  = flagsOf17 + "\n   --label value [ --label value ]  labels to attach to the image"
)

// TestImportImages: images are pinned by the import, or right after it if containerd's client can't do that.
func TestImportImages(t *testing.T) {
	socket := (&fakeCRI{dir: memory}).serve(t)
	to := "--address " + socket + " --namespace k8s.io images "
	for flags, want := range map[string]string{
		flagsOf2: to + "import --local --label=io.cri-containerd.pinned=pinned -\narchive",
		flagsOf17: to + "import --local -\narchive" +
			to + "label a io.cri-containerd.pinned=pinned\n" + to + "label b io.cri-containerd.pinned=pinned\n",
		flagsOf16: to + "import -\narchive" +
			to + "label a io.cri-containerd.pinned=pinned\n" + to + "label b io.cri-containerd.pinned=pinned\n",
	} {
		note := fakeCtr(t, flags, `echo "$*" >>"$notes"; /bin/cat >>"$notes"; echo talk; echo warning >&2`)
		list, record := fixture.Records()
		r := plan.NewRecorder(newRuntimes(t), record)
		if err := r.ImportImages(t.Context(), "unix://"+socket, []string{"a", "b"}, text("archive")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.PinImage(t.Context(), socket, "a", false), r.PinImage(t.Context(), socket, "c", true)); err != nil {
			t.Fatal(err)
		}
		want += to + "label a io.cri-containerd.pinned=\n" + to + "label c io.cri-containerd.pinned=pinned\n"
		if diff := cmp.Diff(want, note()); diff != "" {
			t.Errorf("ctr (-want +got):\n%s", diff)
		}
		actions := []host.Action{{Verb: host.Import, Image: "a"}, {Verb: host.Import, Image: "b"}, {Verb: host.Unpin, Image: "a"}, {Verb: host.Pin, Image: "c"}}
		if diff := cmp.Diff(actions, *list); diff != "" {
			t.Errorf("actions (-want +got):\n%s", diff)
		}
	}
}

// TestPinAfterImportFails: the error names the image, and no other is pinned after it.
func TestPinAfterImportFails(t *testing.T) {
	note := fakeCtr(t, flagsOf16, `if [ "$6" = label ]; then echo "$7" >>"$notes"; echo denied >&2; exit 1; fi; /bin/cat >/dev/null`)
	err := newRuntimes(t).ImportImages(t.Context(), (&fakeCRI{dir: memory}).serve(t), []string{"a", "b"}, text("archive"))
	fact.Error(t, err, "pin", "image a", "denied")
	if note() != "a\n" {
		t.Errorf("pinned %q", note())
	}
}

// The error has ctr's complaint, even if ctr ended before it had read the archive.
func TestImportImagesFails(t *testing.T) {
	large := string(bytes.Repeat([]byte("x"), 1<<20)) // more than a pipe holds
	for name, test := range map[string]struct {
		script, archive string
		want            []string
	}{
		"after the archive":  {"/bin/cat >/dev/null; echo ctr: bad digest >&2; echo more >&2; exit 1", large, []string{"import", "ctr: bad digest", "exit status 1"}},
		"before the archive": {"echo ctr: no socket >&2; exit 1", large, []string{"import", "ctr: no socket", "exit status 1"}},
		"without a word":     {"exit 2", "", []string{"import", "ctr", "exit status 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			fakeCtr(t, flagsOf2, test.script)
			r := plan.NewRecorder(newRuntimes(t), func(a host.Action) { t.Errorf("recorded %v", a) })
			err := r.ImportImages(t.Context(), "/run/x.sock", []string{"a"}, text(test.archive))
			fact.Error(t, err, test.want...)
			if err != nil {
				fact.NotIn(t, err.Error(), "more")
			}
		})
	}
}

// ctr doesn't get to the end of an incomplete archive.
func TestImportImagesOfHalfAnArchive(t *testing.T) {
	note := fakeCtr(t, flagsOf2, `read -r line; echo "$line" >>"$notes"; /bin/cat >/dev/null; echo complete >>"$notes"`)
	damaged := errors.New("the archive is damaged")
	archive := func(w io.Writer) error {
		if err := text("first\n")(w); err != nil {
			return err
		}
		for deadline := time.Now().Add(5 * time.Second); note() == "" && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // until ctr has begun
		}
		return damaged
	}
	err := newRuntimes(t).ImportImages(t.Context(), "/run/x.sock", []string{"a"}, archive)
	if !errors.Is(err, damaged) || !strings.HasSuffix(err.Error(), "ctr: "+damaged.Error()) {
		t.Errorf("error %v", err)
	}
	if note() != "first\n" { // ctr has ended
		t.Errorf("ctr noted %q", note())
	}
}

func TestPinImageFails(t *testing.T) {
	fixture.FakeProgram(t, "ctr", "echo image a: not found >&2; exit 1")
	r := plan.NewRecorder(onlyRuntimes(), func(a host.Action) { t.Errorf("recorded %v", a) })
	fact.Error(t, r.PinImage(t.Context(), "/run/x.sock", "a", true), "pin", "ctr", "image a: not found: exit status 1")
}

// TestCtrHangs: a client that waits for a dead containerd doesn't do so for ever.
func TestCtrHangs(t *testing.T) {
	fixture.FakeProgram(t, "ctr", "exec /bin/sleep 600")
	_, err := askCtr(t.Context(), time.Millisecond, "/run/x.sock", "images", "label", "a")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	fact.In(t, fixture.Told(err), "ctr", "1ms", "`ctr version`")
}

func TestNoCtr(t *testing.T) {
	fixture.NoPrograms(t)
	never := func(io.Writer) error { t.Error("the archive was read"); return nil }
	for _, err := range []error{
		newRuntimes(t).ImportImages(t.Context(), "/run/x.sock", nil, never), onlyRuntimes().PinImage(t.Context(), "/run/x.sock", "a", true),
	} {
		if err == nil {
			t.Fatal("no error without ctr")
		}
		fact.In(t, fixture.Told(err), "ctr", "containerd", "install", "PATH")
	}
}

// A plan has the images it imports, without those it removes, and asks a runtime only if there is one.
func TestImagesPlanned(t *testing.T) {
	ctx := t.Context()
	socket := (&fakeCRI{}).serve(t)
	list, record := fixture.Records()
	o := plan.NewOverlay(newRuntimes(t), record)
	never := func(io.Writer) error { t.Error("the archive was read"); return nil }
	if err := errors.Join(o.ImportImages(ctx, socket, []string{"a", "b"}, never), o.PinImage(ctx, socket, "a", false), o.RemoveImage(ctx, socket, "b")); err != nil {
		t.Fatal(err)
	}
	images, err := o.Images(ctx, socket)
	want := []host.Image{{Names: []string{"a"}}}
	if len(images) != 3 || !cmp.Equal(want, images[2:]) {
		t.Errorf("error %v, images %+v", err, images)
	}
	actions := []host.Action{{Verb: host.Import, Image: "a"}, {Verb: host.Import, Image: "b"}, {Verb: host.Unpin, Image: "a"}, {Verb: host.RemoveImage, Image: "b"}}
	if diff := cmp.Diff(actions, *list); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if _, err := o.Images(ctx, "/none/s"); err == nil {
		t.Error("no error without a runtime")
	}
	if err := o.OrderUnit(ctx, host.StartUnit, "containerd"); err != nil {
		t.Fatal(err)
	}
	images, err = o.Images(ctx, "/none/s")
	if err != nil || !cmp.Equal(want, images) {
		t.Errorf("a runtime that the plan starts: error %v, images %+v", err, images)
	}
	if info, err := o.RuntimeInfo(ctx, "/none/s"); err != nil || !info.Ready {
		t.Errorf("a runtime that the plan starts: error %v, %+v", err, info)
	}
}

func TestAwaitRuntime(t *testing.T) {
	f := &fakeCRI{status: &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: ready()}}}
	socket := f.serve(t)
	if err := newRuntimes(t).AwaitRuntime(t.Context(), socket); err != nil {
		t.Error(err)
	}
	unready := &fakeCRI{status: &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Reason: "Starting", Message: "not yet"},
	}}}}
	for socket, want := range map[string]string{unready.serve(t): "Starting: not yet", "/none/s": "--cri-socket"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := newRuntimes(t).AwaitRuntime(ctx, socket)
		cancel()
		if err == nil {
			t.Fatalf("%s: no error", socket)
		}
		fact.In(t, fixture.Told(err), want)
	}
}
