// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testLintian: lintian may report only the findings in lintian-overrides. It also reports unneeded rows there.
func (p *packages) testLintian(t *testing.T) {
	said, err := combined(exec.Command("lintian", "--allow-root", "--fail-on=error,warning", p.of(t, p.release, "deb")))
	if err != nil || strings.TrimSpace(said) != "" {
		t.Errorf("%v\n%s", err, said)
	}
}

// exempt maps the findings that rpmlint may report to the reasons. The test fails if a row isn't needed.
var exempt = map[string]string{
	"W: summary-not-capitalized":           "the description is that of the deb, where a synopsis begins with a small letter",
	"W: only-non-binary-in-usr-lib":        "units belong below /usr/lib/systemd on every architecture",
	"E: no-binary":                         "nfpm writes absolute paths into the archive, where rpmlint does not find the program",
	"W: no-manual-page-for-binary slipway": "there is one; rpmlint 2.4 compares the program's name with that of the manual's section",
	"W: no-manual-page-for-binary kubeadm": "as above",
	"E: no-signature":                      "those who publish the packages sign them",
	"E: no-changelogname-tag":              "the changes are listed where the packages are published",
	"W: dangerous-command-in-%postun rm":   "it removes the links of the package's timers, whose units are gone by then",
	"E: no-group-tag":                      "RPM gave up groups long ago",
}

var rpmlintFinding = regexp.MustCompile(`(?m)^slipway\S*: ([EW]: .*)$`)

// testRpmlint runs rpmlint in its own root, because it unpacks the archive's absolute paths.
func (p *packages) testRpmlint(t *testing.T) {
	r := newRoot(t, "/")
	r.write("/packages/rpmlint.toml", "CompressExtension = 'gz'\nValidLicenses = ['Apache-2.0']\n")
	rpm := r.bring(p.of(t, p.release, "rpm"))[0]
	r.run("rpm", "--checksig", "--verbose", rpm)
	said, _ := r.try("rpmlint", "--config=/packages/rpmlint.toml", rpm) // exempt findings make it fail too
	if !strings.Contains(said, " 1 packages and 0 specfiles checked") {
		t.Fatal(said)
	}
	needed := map[string]bool{}
	for _, finding := range rpmlintFinding.FindAllStringSubmatch(said, -1) {
		explained := false
		for row := range exempt {
			if strings.HasPrefix(finding[1], row) {
				explained, needed[row] = true, true
			}
		}
		if !explained {
			t.Error(finding[1])
		}
	}
	for row := range exempt {
		if !needed[row] {
			t.Errorf("no longer needed: %q", row)
		}
	}
}

// testReproducible makes the packages once more, from a copy elsewhere, without git, and with other times, modes, time zone and
// language.
func (p *packages) testReproducible(t *testing.T) {
	again := testRelease(t)
	again.source = t.TempDir()
	copySource(t, p.release.source, again.source)
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("LC_ALL", "C.UTF-8")
	must(t, again.make(t.Context()))
	if diff := cmp.Diff(sums(t, p.release.out), sums(t, again.out)); diff != "" {
		t.Error(diff)
	}
}

// copySource copies the packages' sources.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	long := time.Unix(1e9, 0)
	must(t, filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{".git", "bin", "dist"}, rel):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil // in a worktree, .git is a file
		case rel == ".":
			return nil
		case entry.IsDir():
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, rel), data, 0o600); err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(to, rel), long, long)
	}))
}

func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	r := &root{t: t, dir: dir}
	found := r.files(false, "/")
	if len(found) != 4 { // the directory, a deb, an rpm and an SBOM
		t.Errorf("made: %v", found)
	}
	return found
}
