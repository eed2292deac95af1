// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// NewDirHost returns a host with the reference host's directories for CA certificates.
func NewDirHost(t *testing.T) (*teststage.Host, string) {
	t.Helper()
	root := teststage.Dir(t)
	for _, dir := range []string{"/etc/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/ca-certificates", "/etc/kubernetes", "/var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return teststage.At(root), root
}

func QuietUI() ui.UI {
	var out bytes.Buffer
	return ui.NewLines(&out, &out)
}

// Listing lists Slipway's files and directories below root.
func Listing(t *testing.T, root string) []string {
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

// Age makes all files and directories below root an hour old, so that Stamps shows each later write.
func Age(t *testing.T, root string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, then, then))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Stamps returns the mode and the time of the last change of everything below root.
func Stamps(t *testing.T, root string) map[string]string {
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

// Cramped is a host without free space for as long as By exists.
type Cramped struct {
	host.Host
	By string
}

// Space is the free space of a path's file system.
func (c Cramped) Space(path string) (host.Space, error) {
	space, err := c.Host.Space(path)
	if there, _ := host.Exists(c.Host, c.By); there {
		space.Free = 0
	}
	return space, err
}

// HalfBuilt is the path of a copy of etcd's data that a killed run has left.
const HalfBuilt = "/var/lib/etcd/.member.new.slipway-ABCDEFGH"
