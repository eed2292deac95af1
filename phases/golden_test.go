// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fixture"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

var goldenNodes = fixture.Path("testdata/golden/node")

// newDirHost has the directories for CA certificates that the reference host had.
func newDirHost(t *testing.T) (*teststage.Host, string) {
	t.Helper()
	root := teststage.Dir(t)
	for _, dir := range []string{"/etc/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/ca-certificates", "/etc/kubernetes", "/var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return teststage.At(root), root
}

// filePhases are the phases of init that write files.
func filePhases() []Phase {
	return []Phase{certificates(), kubeconfigs(), localEtcd(), controlPlane(), kubeletStart()}
}

// TestGoldenFiles compares what init writes with the reference, file by file: contents, and modes with the differences
// that the reference lists.
func TestGoldenFiles(t *testing.T) {
	cases, err := os.ReadDir(goldenNodes)
	if err != nil || len(cases) < 4 {
		t.Fatalf("%d reference cases: %v", len(cases), err)
	}
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) {
			h, root := newDirHost(t)
			env := &Env{Config: fixture.GoldenNode(t, filepath.Join(goldenNodes, c.Name(), "input.yaml")), Host: h, UI: quietUI()}
			if err := Run(t.Context(), env, filePhases(), Options{}); err != nil {
				t.Fatal(err)
			}
			compareContents(t, filepath.Join(goldenNodes, c.Name(), "files"), root)
			compareModes(t, filepath.Join(goldenNodes, c.Name(), "modes.tsv"), root)
			wantJobs := []string{"stop kubelet.service", "reload", "start kubelet.service"}
			if diff := cmp.Diff(wantJobs, h.Orders()); diff != "" {
				t.Errorf("unit actions (-want +got):\n%s", diff)
			}
			runAgainChangesNothing(t, env, h, root)
		})
	}
}

func quietUI() ui.UI {
	var out bytes.Buffer
	return ui.NewLines(&out, &out)
}

// onHost is the path on the host for a path of the reference.
func onHost(path string) string {
	path = strings.TrimPrefix(path, "/")
	if rest, ok := strings.CutPrefix(path, "kubelet/"); ok {
		return "/var/lib/kubelet/" + rest
	}
	return "/etc/" + path
}

func compareContents(t *testing.T, want, root string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(want, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		rel, _ := filepath.Rel(want, path)
		wanted, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(root, onHost(rel)))
		if err != nil {
			t.Error(err)
			return nil
		}
		if diff := cmp.Diff(string(wanted), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", rel, diff)
		}
		return nil
	})
	if err != nil || found < 6 {
		t.Errorf("compared %d files: %v", found, err)
	}
}

// compareModes checks that the files are exactly those of the table, with their modes.
func compareModes(t *testing.T, table, root string) {
	t.Helper()
	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// What the kubelet creates at its first start if it is missing.
	want := []string{"/var/lib/kubelet/pki drwxr-xr-x", "/var/lib/kubelet/pki/kubelet.crt -rw-r--r--", "/var/lib/kubelet/pki/kubelet.key -rw-------"}
	for rows := bufio.NewScanner(f); rows.Scan(); {
		path, mode, _ := strings.Cut(rows.Text(), "\t")
		if _, ours, differs := strings.Cut(mode, "(Slipway: "); differs {
			mode = strings.TrimSuffix(ours, ")")
		}
		want = append(want, onHost(path)+" "+mode)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, listing(t, root)); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
}

// listing lists our files and directories below root.
func listing(t *testing.T, root string) []string {
	t.Helper()
	var got []string
	for _, top := range []string{"/etc/kubernetes", "/var/lib/kubelet"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if rel := strings.TrimPrefix(path, root); rel != top {
				got = append(got, rel+" "+info.Mode().String())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	return got
}

// runAgainChangesNothing runs the same phases once more and compares contents, modes and times.
func runAgainChangesNothing(t *testing.T, env *Env, h *teststage.Host, root string) {
	t.Helper()
	before, jobs := stamps(t, root), len(h.Jobs)
	time.Sleep(10 * time.Millisecond) // more than the clock tick of file times
	if err := Run(t.Context(), env, filePhases(), Options{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, stamps(t, root)); diff != "" {
		t.Errorf("the second run changed files (-before +after):\n%s", diff)
	}
	if len(h.Jobs) != jobs {
		t.Errorf("the second run did %v", h.Jobs[jobs:])
	}
}

func stamps(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out[strings.TrimPrefix(path, root)] = info.Mode().String() + " " + info.ModTime().Format(time.RFC3339Nano)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
