// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/test/fact"
)

const stored = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 17\npodPidsLimit: 99\n"

// TestEditing: the text comes back with its faults until it's right, unchanged or empty. Only a failure keeps it.
func TestEditing(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "saved.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	faulty := config.Faults{{File: editorName, Line: 3, Field: "maxPods", Message: "17"}}
	for name, test := range map[string]struct {
		editor []string
		faults error
		want   string // the documents
		keeps  []string
	}{
		"a change":  {editor: []string{"cp", file(strings.Replace(stored, "17", "55", 1))}, want: "maxPods: 55"},
		"unchanged": {editor: []string{"true"}},
		"reordered": {editor: []string{"cp", file("# a comment\n" + stored + "# and another\n")}},
		"empty":     {editor: []string{"truncate", "--size=0"}},
		"given up": {
			editor: []string{"cp", file(strings.Replace(stored, "17", "1", 1))}, faults: faulty, want: "maxPods: 1",
			keeps: []string{"maxPods: 17"},
		},
		"no YAML":        {editor: []string{"cp", file("a: [")}, keeps: []string{"yaml"}},
		"no such editor": {editor: []string{"/none/vi"}, keeps: []string{"/none/vi"}},
	} {
		t.Run(name, func(t *testing.T) {
			draft, err := linux.NewDraft("configuration.yaml")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = draft.Remove() })
			draft.Editor = test.editor
			var loaded string
			e := &editing{draft: draft, base: []byte(stored), load: func(documents []byte) (*reconfiguring.Change, []string, error) {
				loaded = string(documents)
				return nil, nil, test.faults
			}}
			_, _, err = e.change(t.Context())
			g := &cli.Globals{}
			g.Streams.Err, g.Streams.Out = &bytes.Buffer{}, &bytes.Buffer{}
			err = e.end(g, err)
			if !strings.Contains(loaded, test.want) || test.want == "" && loaded != "" {
				t.Errorf("loads %q", loaded)
			}
			info, gone := os.Stat(draft.Path)
			if test.keeps == nil {
				if err != nil || !errors.Is(gone, os.ErrNotExist) {
					t.Errorf("%v, and the file: %v", err, gone)
				}
				return
			}
			fact.Error(t, err, append(test.keeps, draft.Path)...)
			if gone != nil || info.Mode() != 0o600 {
				t.Errorf("the file: %v, %v", info, gone)
			}
		})
	}
}

// TestFaultsShown: the text comes back below its faults.
func TestFaultsShown(t *testing.T) {
	fact.In(t, string(comments(config.Faults{{Field: "maxPods", Message: "17"}})), "#   maxPods: 17\n")
	if got := withoutComments([]byte("# a\n#\n" + stored)); string(got) != stored {
		t.Errorf("%s", got)
	}
}

func TestEditor(t *testing.T) {
	for _, test := range []struct {
		kube, general string
		want          []string
	}{
		{"", "", []string{"vi"}},
		{"", "emacs -nw", []string{"emacs", "-nw"}},
		{" code  --wait ", "emacs", []string{"code", "--wait"}},
	} {
		got := editor(func(name string) string {
			return map[string]string{"KUBE_EDITOR": test.kube, "EDITOR": test.general}[name]
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
