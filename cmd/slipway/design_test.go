// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var designLink = regexp.MustCompile(`\bdocs/design/([a-z0-9-]+)\.md\b`)

// TestDesignPagesAreLinked finds pages of docs/design that no Go file of the product names, and names of pages that don't exist.
func TestDesignPagesAreLinked(t *testing.T) {
	root := filepath.Join("..", "..")
	out, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.go").Output()
	if err != nil {
		t.Skipf("no list of files without git: %v", err)
	}
	linked := map[string]bool{"README": true} // the list of the pages
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if strings.HasSuffix(path, "_test.go") && path != "cmd/slipway/imports_test.go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range designLink.FindAllStringSubmatch(string(text), -1) {
			linked[link[1]] = true
			if _, err := os.Stat(filepath.Join(root, link[0])); err != nil {
				t.Errorf("%s: %s does not exist", path, link[0])
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "design", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); !linked[name] {
			t.Errorf("docs/design/%s.md: no Go file names it; name it in the comment of the code it explains", name)
		}
	}
}
