// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Packaging makes the packages of Slipway: a deb and an rpm for each architecture, with an SBOM and the checksums of all.
// Made twice from the same commit, the bytes are equal. It runs in its own directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/pkg/errors"
)

func main() {
	r := release{}
	flag.StringVar(&r.version, "version", "", "version of Slipway, such as v0.9.0")
	flag.StringVar(&r.commit, "commit", "", "commit that it is built from")
	date := flag.String("date", "", "date of the commit (RFC 3339)")
	flag.StringVar(&r.out, "out", "../dist", "directory for what is made; what is in it is removed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if r.date, err = time.Parse(time.RFC3339, *date); err != nil {
		err = errors.Wrap(err, "-date")
	} else {
		err = r.make(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}
