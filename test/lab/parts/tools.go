// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// tools are the files that images take from the nodes' Debian, with their libraries.
type tools struct {
	packet []imageFile // for kube-proxy and flanneld: iptables, nft and conntrack
	copy   []imageFile // cp, to install flannel's plugin
}

// The licenses of the tools and their libraries.
const (
	packetLicenses = "GPL-2.0-or-later AND LGPL-2.1-or-later"
	copyLicenses   = "GPL-3.0-or-later AND LGPL-2.1-or-later AND BSD-3-Clause"
)

func packetTools(t tools) []imageFile { return t.packet }
func copyTools(t tools) []imageFile   { return t.copy }

func debianTools(debian tree) (t tools, err error) {
	plugins := debian.glob("usr/lib/*/xtables/*.so")
	if len(plugins) == 0 {
		return t, errors.Errorf("the nodes' Debian has no iptables in %q", debian)
	}
	libraryDir := filepath.Dir(filepath.Dir(plugins[0]))
	packet := slices.Clone(plugins)
	for _, name := range []string{"xtables-nft-multi", "conntrack", "nft"} {
		packet = append(packet, filepath.Join("usr/sbin", name))
	}
	if t.packet, err = withLibraries(debian, libraryDir, packet); err != nil {
		return t, err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		t.packet = append(t.packet, imageFile{path: "usr/sbin/" + name, link: "xtables-nft-multi"})
	}
	slices.SortFunc(t.packet, byPath)
	t.copy, err = withLibraries(debian, libraryDir, []string{"usr/bin/cp"})
	return t, err
}

// withLibraries returns Debian's programs and all their libraries.
func withLibraries(debian tree, libraryDir string, programs []string) ([]imageFile, error) {
	found, err := libraries(debian, libraryDir, programs)
	if err != nil {
		return nil, err
	}
	var files []imageFile
	for path, source := range found {
		files = append(files, imageFile{path: path, source: source})
	}
	slices.SortFunc(files, byPath)
	return files, nil
}

func byPath(a, b imageFile) int { return strings.Compare(a.path, b.path) }

// tree is a file system as an overlay shows it: its layers, topmost first.
type tree []string

// find returns the path on this machine of a file, whether it exists or not.
func (t tree) find(path string) string {
	for _, layer := range t[:len(t)-1] {
		here := filepath.Join(layer, path)
		if _, err := os.Lstat(here); err == nil {
			return here
		}
	}
	return filepath.Join(t[len(t)-1], path)
}

// glob returns the paths of matching files, each once.
func (t tree) glob(pattern string) []string {
	var paths []string
	for _, layer := range t {
		found, _ := filepath.Glob(filepath.Join(layer, pattern)) // fails only for a bad pattern
		for _, here := range found {
			paths = append(paths, strings.TrimPrefix(here, layer+"/"))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
