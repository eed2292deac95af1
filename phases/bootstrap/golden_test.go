// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

var goldenNodes = fixture.Path("testdata/golden/node")

func filePhases() []step.Phase {
	return []step.Phase{certificates(), kubeconfigs(), localEtcd(), controlPlane(), kubelet.Start()}
}

// TestGoldenFiles compares init's files with the reference, one by one: contents, and modes with the differences listed in the
// reference.
func TestGoldenFiles(t *testing.T) {
	cases, err := os.ReadDir(goldenNodes)
	if err != nil || len(cases) < 4 {
		t.Fatalf("%d reference cases: %v", len(cases), err)
	}
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) {
			h, root := phasetest.NewDirHost(t)
			env := &step.Env{Config: fixture.GoldenNode(t, filepath.Join(goldenNodes, c.Name(), "input.yaml")), Host: h, UI: phasetest.QuietUI()}
			if err := step.Run(t.Context(), env, filePhases(), step.Options{}); err != nil {
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

// onHost returns the path on the host for a path in the reference.
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

func compareModes(t *testing.T, table, root string) {
	t.Helper()
	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The kubelet creates these at its first start if they're missing.
	want := []string{"/var/lib/kubelet/pki drwxr-xr-x", "/var/lib/kubelet/pki/kubelet.crt -rw-r--r--", "/var/lib/kubelet/pki/kubelet.key -rw-------"}
	for rows := bufio.NewScanner(f); rows.Scan(); {
		path, mode, _ := strings.Cut(rows.Text(), "\t")
		if _, ours, differs := strings.Cut(mode, "(Slipway: "); differs {
			mode = strings.TrimSuffix(ours, ")")
		}
		want = append(want, onHost(path)+" "+mode)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, phasetest.Listing(t, root)); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
}

func runAgainChangesNothing(t *testing.T, env *step.Env, h *teststage.Host, root string) {
	t.Helper()
	phasetest.Age(t, root)
	before, jobs := phasetest.Stamps(t, root), len(h.Jobs)
	if err := step.Run(t.Context(), env, filePhases(), step.Options{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, phasetest.Stamps(t, root)); diff != "" {
		t.Errorf("the second run changed files (-before +after):\n%s", diff)
	}
	if len(h.Jobs) != jobs {
		t.Errorf("the second run did %v", h.Jobs[jobs:])
	}
}
