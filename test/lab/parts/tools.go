// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// tools are what images have of the nodes' Debian, with all that it loads.
type tools struct {
	packet []imageFile // what kube-proxy and flanneld run: iptables, nft and conntrack
	copy   []imageFile // cp, which installs flannel's plugin
}

// The licenses of the tools and of the libraries that they load.
const (
	packetLicenses = "GPL-2.0-or-later AND LGPL-2.1-or-later"
	copyLicenses   = "GPL-3.0-or-later AND LGPL-2.1-or-later AND BSD-3-Clause"
)

func debianTools(base string) (t tools, err error) {
	plugins, err := filepath.Glob(filepath.Join(base, "usr/lib/*/xtables/*.so"))
	if err != nil || len(plugins) == 0 {
		return t, errors.Errorf("the nodes' Debian has no iptables in %s", base)
	}
	libraryDir, err := filepath.Rel(base, filepath.Dir(filepath.Dir(plugins[0])))
	if err != nil {
		return t, errors.Wrap(err, "cannot find the nodes' libraries")
	}
	packet := slices.Clone(plugins)
	for _, name := range []string{"xtables-nft-multi", "conntrack", "nft"} {
		packet = append(packet, filepath.Join(base, "usr/sbin", name))
	}
	if t.packet, err = withLibraries(base, libraryDir, packet); err != nil {
		return t, err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		t.packet = append(t.packet, imageFile{path: "usr/sbin/" + name, link: "xtables-nft-multi"})
	}
	slices.SortFunc(t.packet, byPath)
	t.copy, err = withLibraries(base, libraryDir, []string{filepath.Join(base, "usr/bin/cp")})
	return t, err
}

// withLibraries are programs below base, and all libraries that they load.
func withLibraries(base, libraryDir string, programs []string) ([]imageFile, error) {
	found, err := libraries(base, libraryDir, programs)
	if err != nil {
		return nil, err
	}
	for _, file := range programs {
		found[strings.TrimPrefix(file, base+"/")] = file
	}
	var files []imageFile
	for path, source := range found {
		files = append(files, imageFile{path: path, source: source})
	}
	slices.SortFunc(files, byPath)
	return files, nil
}

func byPath(a, b imageFile) int { return strings.Compare(a.path, b.path) }
