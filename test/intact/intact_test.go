// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package intact

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTorn(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
	root := t.TempDir()
	var want []string
	for _, file := range []struct {
		name, data string
		torn       bool
	}{
		{"pki/ca.crt", certificate, false},
		{"pki/ca.key", certificate[:40], true},
		{"pki/sa.pub", "", true},
		{"admin.conf", "kind: Config\n", false},
		{"kubelet.conf", "kind: Conf", true},
		{"scheduler.conf", "", true},
		{"manifests/.etcd.yaml.slipway-1", "", false},
	} {
		path := filepath.Join(root, "etc/kubernetes", file.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(file.data), 0o600); err != nil {
			t.Fatal(err)
		}
		if file.torn {
			want = append(want, filepath.Base(path))
		}
	}
	torn, err := Torn(root)
	var got []string
	for _, text := range torn {
		path, _, _ := strings.Cut(text, " ")
		got = append(got, filepath.Base(path))
	}
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("torn: %v, want %v (%v)", got, want, err)
	}
	if torn, err := Torn(t.TempDir()); err != nil || len(torn) > 0 {
		t.Errorf("a host without the directory: %v, %v", torn, err)
	}
}
