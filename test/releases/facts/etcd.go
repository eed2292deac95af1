// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// The flags of etcd, in the form of facts.go. It has a main of its own, because etcd's module has no Kubernetes.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/server/v3/embed"
)

// ofMain are the flags that etcd's main package adds, and does not export.
var ofMain = []string{"config-file", "discovery-fallback", "initial-cluster-state", "v2-deprecation", "version"}

func main() {
	fs := flag.NewFlagSet("etcd", flag.ContinueOnError)
	embed.NewConfig().AddFlags(fs)
	known := map[string]string{}
	for _, name := range ofMain {
		known[name] = "ok"
	}
	fs.VisitAll(func(f *flag.Flag) {
		known[f.Name] = "ok"
		if strings.Contains(strings.ToLower(f.Usage), "deprecated") {
			known[f.Name] = "deprecated"
		}
	})
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"flag": known}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
