// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Stamped by the linker; see the Makefile.
var (
	slipwayVersion = "v0.0.0-unknown"
	gitCommit      = ""
	buildDate      = "1970-01-01T00:00:00Z"
)

// versionInfo has the fields that scripts read from such a tool. GitVersion is
// the Kubernetes version whose clusters this program makes, for it is compared
// with that of the kubelet; the program's own is apart.
type versionInfo struct {
	Major          string `json:"major"`
	Minor          string `json:"minor"`
	GitVersion     string `json:"gitVersion"`
	GitCommit      string `json:"gitCommit"`
	GitTreeState   string `json:"gitTreeState"`
	BuildDate      string `json:"buildDate"`
	GoVersion      string `json:"goVersion"`
	Compiler       string `json:"compiler"`
	Platform       string `json:"platform"`
	SlipwayVersion string `json:"slipwayVersion"`
}

func newVersion(g *globals) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return printVersion(g.streams.out, g.program, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`form` of the output: short, json or yaml")
	return cmd
}

func printVersion(w io.Writer, program, output string) error {
	v := currentVersion()
	wrapped := map[string]versionInfo{"clientVersion": v}
	var data []byte
	var err error
	switch output {
	case "":
		data = fmt.Appendf(nil, "%s version: %s (Kubernetes %s, %s, %s)", program, v.SlipwayVersion, v.GitVersion, v.GoVersion, v.Platform)
	case "short":
		data = []byte(v.GitVersion)
	case "json":
		data, err = json.MarshalIndent(wrapped, "", "  ")
	case "yaml":
		data, err = yaml.Marshal(wrapped)
	default:
		return errors.Errorf("--output %q: the forms are short, json and yaml", output)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, strings.TrimRight(string(data), "\n"))
	return err
}

func currentVersion() versionInfo {
	major, rest, _ := strings.Cut(strings.TrimPrefix(config.DefaultKubernetesVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	treeState := "clean"
	if strings.HasSuffix(slipwayVersion, "-dirty") {
		treeState = "dirty"
	}
	return versionInfo{
		Major: major, Minor: minor, GitVersion: config.DefaultKubernetesVersion,
		GitCommit: gitCommit, GitTreeState: treeState, BuildDate: buildDate,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		SlipwayVersion: slipwayVersion,
	}
}
