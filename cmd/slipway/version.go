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
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
)

// versionInfo has fields for scripts. GitVersion is the default Kubernetes version, because scripts compare it with the
// kubelet's; the program's own version has its own field.
type versionInfo struct {
	version.Info   `json:",inline"`
	SlipwayVersion string `json:"slipwayVersion,omitempty"`
}

func newVersion(g *cli.Globals) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		RunE: func(*cobra.Command, []string) error {
			return printVersion(g.Streams.Out, g.Program, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output `format`: short, json or yaml")
	cli.Offer(cmd.Flags(), "output", "short", "json", "yaml")
	return cmd
}

func printVersion(w io.Writer, program, output string) error {
	v := currentVersion()
	text := fmt.Sprintf("%s (Kubernetes %s, %s, %s)", v.SlipwayVersion, v.GitVersion, v.GoVersion, v.Platform)
	if program == cli.PeerName {
		text, v.SlipwayVersion = fmt.Sprintf("%#v", &v.Info), ""
	}
	wrapped := map[string]versionInfo{"clientVersion": v}
	var data []byte
	var err error
	switch output {
	case "":
		data = fmt.Appendf(nil, "%s version: %s", program, text)
	case "short":
		data = []byte(v.GitVersion)
	case "json":
		data, err = json.MarshalIndent(wrapped, "", "  ")
	case "yaml":
		data, err = yaml.Marshal(wrapped)
	default:
		return errors.Errorf("unknown --output %q: expected short, json or yaml", output)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

func currentVersion() versionInfo {
	major, rest, _ := strings.Cut(strings.TrimPrefix(config.DefaultKubernetesVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	b := thisBuild()
	return versionInfo{
		Info: version.Info{
			Major: major, Minor: minor, GitVersion: config.DefaultKubernetesVersion,
			GitCommit: b.commit, GitTreeState: b.treeState(), BuildDate: b.date,
			GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		},
		SlipwayVersion: b.version,
	}
}
