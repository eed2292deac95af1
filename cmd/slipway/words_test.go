// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// retired are words that read as if translated, with their replacements.
var retired = []struct {
	words   *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b[Ss]hall\b`), "must, is to, or the present tense"},
	{regexp.MustCompile(`\b[Mm]end(s|ed|ing)?\b`), "fix, repair"},
	{regexp.MustCompile(`\b[Aa]new\b`), "again"},
	{regexp.MustCompile(`\b[Ww]hoever\b`), "anyone who, a client that"},
	{regexp.MustCompile(`\b[Tt]ells whether\b`), "reports whether"},
	{regexp.MustCompile(`\b[Ff]olders?\b`), "directory"},
	{regexp.MustCompile(`\b[Gg]o(es|ing)? on where\b`), "continue where"},
	{regexp.MustCompile(`\b[Ww]hat is there\b`), "the thing's name: the file, the data"},
	{regexp.MustCompile(`\b[Tt]hose (that|which)\b`), "the thing's name, or any that"},
	{regexp.MustCompile(`\b[Tt]he ones? (that|which|who)\b`), "the thing's name"},
	{regexp.MustCompile(`\b[Tt]hat which\b`), "the thing's name"},
	{regexp.MustCompile(`\b([Ii]s|are) to be\b`), "must be or should be, or the actor first"},
}

// TestRetiredWords keeps them out of messages, comments and documents.
func TestRetiredWords(t *testing.T) {
	root := filepath.Join("..", "..")
	out, err := exec.Command("git", "-C", root, "ls-files", "*.go", "*.md", "*.txtar", "Makefile").Output()
	if err != nil {
		t.Skipf("no list of files without git: %v", err)
	}
	for path := range strings.Lines(string(out)) {
		if path = strings.TrimSpace(path); path != "cmd/slipway/words_test.go" {
			findRetired(t, root, path)
		}
	}
}

func findRetired(t *testing.T, root, path string) {
	t.Helper()
	file, err := os.Open(filepath.Join(root, path))
	if os.IsNotExist(err) {
		return // deleted, and not yet committed
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		for _, r := range retired {
			if found := r.words.FindString(lines.Text()); found != "" {
				t.Errorf("%s:%d: %q: write %s", path, number, found, r.instead)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}
