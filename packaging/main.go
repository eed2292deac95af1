// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Packaging makes the packages of Slipway: a deb and an rpm for each architecture, and an SBOM. The same commit always gives the
// same bytes. It runs in its own directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/pkg/errors"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r := release{source: ".."}
	architectures := flag.String("architectures", "amd64,arm64", "as Go calls them, with commas between several")
	flag.StringVar(&r.version, "version", "", "version of Slipway, such as v0.9.0")
	flag.StringVar(&r.commit, "commit", "", "commit that it is built from")
	date := flag.String("date", "", "date of the commit (RFC 3339)")
	flag.StringVar(&r.out, "out", "../dist", "directory for the packages; earlier ones in it are removed")
	flag.Parse()
	r.architectures = strings.Split(*architectures, ",")
	var err error
	if r.date, err = time.Parse(time.RFC3339, *date); err != nil {
		return errors.Wrap(err, "-date")
	}
	if r.work, err = os.MkdirTemp("", "slipway-packages-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	return r.make(ctx)
}
