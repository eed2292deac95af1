// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build man

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

// main writes the man pages into a directory: DIRECTORY VERSION DATE. Only the packages are built with this tag.
func main() {
	if err := writeManPages(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "man pages:", err)
		os.Exit(1)
	}
}

func writeManPages(directory, version, date string) error {
	day, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return err
	}
	root := newRoot("slipway", cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, nil)
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "8", Date: &day, Source: "Slipway " + version, Manual: "Slipway"}, directory)
}
