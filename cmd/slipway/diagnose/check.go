// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/benchmark"
	"github.com/slipway-k8s/slipway/internal/config"
)

// cisCheck is the output of `check cis`; docs/hardening.md describes it.
type cisCheck struct {
	metav1.TypeMeta `json:",inline"`

	Benchmark string             `json:"benchmark"`
	Items     []benchmark.Result `json:"items"`
}

func (c *cisCheck) DeepCopyObject() runtime.Object { return new(*c) }

// NewCheck makes the command `check`.
func NewCheck(g *cli.Globals) *cobra.Command {
	return cli.Group("check", "Check this node against a benchmark", newCheckCIS(g))
}

func newCheckCIS(g *cli.Globals) *cobra.Command {
	out := &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "cis",
		Short: "Check this node against the automated items of the CIS Kubernetes Benchmark",
		Long: "Check this node against the automated items of the CIS Kubernetes Benchmark " + benchmark.Version + ", and those the profile cis sets.\n\n" +
			"It reads this host's files, changes nothing, and works without a cluster. An item is unknown if the check could not look.\n" +
			"The exit code is 0 if every item passes, and 2 if any fails or is unknown.",
		RunE: func(*cobra.Command, []string) error {
			real, err := rootHost()
			if err != nil {
				return err
			}
			defer real.Close()
			c := &cisCheck{
				TypeMeta:  metav1.TypeMeta{APIVersion: "slipway.check/v1", Kind: "CISCheck"},
				Benchmark: benchmark.Version, Items: benchmark.Run(real, config.DefaultMachine()),
			}
			if err := out.Print(g, c, c.text); err != nil {
				return err
			}
			return c.verdict()
		},
	}
	out.Bind(cmd.Flags())
	return cmd
}

func (c *cisCheck) text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ITEM\tSTATUS\tSUBJECT\tFOUND\tWANTED")
	for _, i := range c.Items {
		want := i.Want
		if i.Status == benchmark.Pass {
			want = ""
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", i.ID, i.Status, i.Subject, shortened(i.Found), want)
	}
	return t.Flush()
}

// shortened keeps a table readable. Other forms of output have the whole text.
func shortened(text string) string {
	const most = 70
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// verdict returns an error with exit code 2 unless every item passes.
func (c *cisCheck) verdict() error {
	var failed, unknown []string
	for _, i := range c.Items {
		switch i.Status {
		case benchmark.Pass:
		case benchmark.Fail:
			failed = append(failed, i.ID)
		default:
			unknown = append(unknown, i.ID)
		}
	}
	var parts []string
	if len(failed) > 0 {
		parts = append(parts, "failed: "+strings.Join(failed, ", "))
	}
	if len(unknown) > 0 {
		parts = append(parts, "unknown: "+strings.Join(unknown, ", "))
	}
	if len(parts) == 0 {
		return nil
	}
	return cli.ExitError{Code: causeFound, Message: strings.Join(parts, "; ") + "; `slipway config profile cis` prints settings that make most of them pass"}
}
