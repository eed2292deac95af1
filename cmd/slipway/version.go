// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	semantic "k8s.io/apimachinery/pkg/util/version"
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
	kubernetes := semantic.MustParseSemantic(config.DefaultKubernetesVersion)
	b := thisBuild()
	return versionInfo{
		Info: version.Info{
			Major: fmt.Sprint(kubernetes.Major()), Minor: fmt.Sprint(kubernetes.Minor()), GitVersion: config.DefaultKubernetesVersion,
			GitCommit: b.commit, GitTreeState: b.treeState(), BuildDate: b.date,
			GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		},
		SlipwayVersion: b.version,
	}
}

// Stamped by the linker; see the Makefile.
var (
	slipwayVersion string
	gitCommit      string
	buildDate      string
)

type build struct {
	version, commit, date string
	modified              bool
}

const (
	unknownVersion = "v0.0.0-unknown"
	unknownDate    = "1970-01-01T00:00:00Z"
)

// thisBuild reads the linker's stamp, or else Go's own record.
func thisBuild() build {
	if slipwayVersion != "" {
		return build{slipwayVersion, gitCommit, cmp.Or(buildDate, unknownDate), strings.HasSuffix(slipwayVersion, "-dirty")}
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

// pseudoVersion matches a version that ends with a commit's time and first digits.
const pseudoVersion = `[.-](\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)-([0-9a-f]{12})(?:\+.*)?$`

// buildOf reads the record of `go build` and `go install`: a checkout's commit, or a downloaded module's version, which is a tag
// or ends with a commit.
func buildOf(info *debug.BuildInfo) build {
	b := build{version: info.Main.Version, date: unknownDate}
	if found := regexp.MustCompile(pseudoVersion).FindStringSubmatch(b.version); found != nil {
		b.commit = found[7]
		b.date = found[1] + "-" + found[2] + "-" + found[3] + "T" + found[4] + ":" + found[5] + ":" + found[6] + "Z"
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.commit = setting.Value
		case "vcs.time":
			b.date = setting.Value
		case "vcs.modified":
			b.modified = setting.Value == "true"
		}
	}
	if b.version == "" || b.version == "(devel)" {
		b.version = unknownVersion
		if b.commit != "" {
			b.version = "v0.0.0-" + b.commit[:min(12, len(b.commit))]
		}
	}
	return b
}

func (b build) treeState() string {
	if b.modified {
		return "dirty"
	}
	return "clean"
}
