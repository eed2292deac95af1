// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// NewPreflight runs only the checks of init or join. Without a subcommand, it's init's.
func NewPreflight(g *cli.Globals) *cobra.Command {
	cmd := preflightInitCommand(g, "preflight", "Check whether this host is ready to become a node")
	cmd.Long = cmd.Short + ", and change nothing.\n\n" +
		"It runs the checks of init, and `preflight join` those of join. The exit code is 1 if init or join would refuse to start."
	cmd.AddCommand(
		preflightInitCommand(g, "init", "Check whether this host can become the first control plane"),
		preflightJoinCommand(g))
	return cmd
}

func preflightInitCommand(g *cli.Globals, use, short string) *cobra.Command {
	o, out := &env.InitOptions{}, &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			check := newCheckup("init")
			parts, err := env.LoadInit(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.Close()
			check.Node = parts.Env.Config.Name
			beginPhase(cmd.Context(), parts)
			found, err := bootstrap.CheckInit(cmd.Context(), parts.Env)
			if err != nil {
				return err
			}
			check.addAll(found)
			return check.report(g, out)
		},
	}
	config.Bind(cmd.Flags(), "preflight init", &o.InitFlags)
	out.Bind(cmd.Flags())
	return cmd
}

func preflightJoinCommand(g *cli.Globals) *cobra.Command {
	o, out := &joinOptions{}, &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "join [HOST:PORT]",
		Short: "Check whether this host can join a cluster, and reach it if HOST:PORT is given",
		Args:  cli.Takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			check := newCheckup("join")
			if err := o.take(cmd, g, args); err != nil {
				return err
			}
			in, err := env.ReadInput(cmd.Context(), g, env.Planning{G: g}, o.ConfigFile)
			if err != nil {
				return err
			}
			defer in.Host.Close()
			env, err := o.joiningHost(cmd.Context(), g, in, check)
			if err != nil {
				return err
			}
			found, err := bootstrap.CheckJoin(cmd.Context(), env)
			if err != nil {
				return err
			}
			check.addAll(found)
			return check.report(g, out)
		},
	}
	config.Bind(cmd.Flags(), "preflight join", &o.JoinFlags)
	out.Bind(cmd.Flags())
	return cmd
}

// discoveryLimit is shorter than a join's timeout: preflight asks once and doesn't wait.
const discoveryLimit = 3 * time.Second

// joiningHost is this host as it would join. A named cluster's answer is a check of its own; without it, the defaults apply.
func (o *joinOptions) joiningHost(ctx context.Context, g *cli.Globals, in *env.Input, check *checkup) (*step.Env, error) {
	named := in.File != nil || o.Endpoint != "" || o.DiscoveryFile != ""
	if !named { // the other flags need a cluster to be valid
		o.Endpoint, o.Token, o.SkipCAVerification = "127.0.0.1:6443", "abcdef.0123456789abcdef", true
		o.Given = append(o.Given, "token", "discovery-token-unsafe-skip-ca-verification")
	}
	in.Options.Placeholders = true
	self, warnings, err := config.LoadJoin(in.File, o.JoinFlags, in.Options)
	if err != nil {
		return nil, err
	}
	env := &step.Env{Host: in.Host, UI: cli.NewUI(g)}
	var more []string
	if named {
		env.Config, more = discovered(ctx, env.UI, self, in, check)
	} else {
		check.add("Discovery", "skipped", "no cluster is named", "", 0)
	}
	cli.Warn(env.UI, slices.Concat(warnings, more))
	if env.Config == nil {
		node, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, self, in.Options)
		if err != nil {
			return nil, err
		}
		env.Config = node.With(func(n *config.Node) { n.Join = &config.Join{CAPath: self.CACertPath} })
	}
	check.Node = env.Config.Name
	return env, nil
}

// discovered returns the node as part of self's cluster, or nil if discovery fails.
func discovered(ctx context.Context, said ui.UI, self *config.JoinConfiguration, in *env.Input, check *checkup) (*config.Node, []string) {
	start := time.Now()
	self.Timeouts.Discovery.Duration = min(self.Timeouts.Discovery.Duration, discoveryLimit)
	node, warnings, err := env.NewDiscovery(in.Host, said, discoveryLimit, in.Options).Node(ctx, self)
	if err != nil {
		check.add("Discovery", "error", err.Error(), fault.Remedy(err), time.Since(start))
		return nil, warnings
	}
	check.add("Discovery", "ok", "", "", time.Since(start))
	return node, warnings
}

// checkup is the output of `preflight`; see docs/preflight.md.
type checkup struct {
	metav1.TypeMeta `json:",inline"`

	// Before is the command that runs these checks first: init or join.
	Before string `json:"before"`
	Node   string `json:"node"`
	// Result is the worst result of all checks that weren't skipped: ok, warning or error.
	Result  string       `json:"result"`
	Seconds float64      `json:"seconds"`
	Checks  []checkEntry `json:"checks"`

	start time.Time
}

// checkEntry is a check's result: ok, warning, error or skipped. Message and remedy have a line for each finding, perhaps none.
type checkEntry struct {
	Name    string  `json:"name"`
	Result  string  `json:"result"`
	Message string  `json:"message,omitempty"`
	Remedy  string  `json:"remedy,omitempty"`
	Seconds float64 `json:"seconds"`
}

func (c *checkup) DeepCopyObject() runtime.Object { return new(*c) }

func newCheckup(before string) *checkup {
	return &checkup{
		TypeMeta: metav1.TypeMeta{APIVersion: "slipway.preflight/v1", Kind: "PreflightResult"},
		Before:   before, Result: "ok", start: time.Now(),
	}
}

func (c *checkup) add(name, result, message, remedy string, took time.Duration) {
	c.Checks = append(c.Checks, checkEntry{name, result, message, remedy, milli(took)})
	if result == "error" || result == "warning" && c.Result == "ok" {
		c.Result = result
	}
}

func (c *checkup) addAll(results []preflight.Result) {
	for _, r := range results {
		message, remedy := r.Text()
		c.add(r.Check, r.Outcome(), message, remedy, r.Took)
	}
}

// milli is a duration in seconds, to the millisecond.
func milli(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// report prints all checks. It returns an error if any check found an error.
func (c *checkup) report(g *cli.Globals, out *cli.OutputOptions) error {
	c.Seconds = milli(time.Since(c.start))
	if err := out.Print(g, c, c.text); err != nil {
		return err
	}
	names := c.named("error")
	if len(names) == 0 {
		return nil
	}
	return cli.ExitError{Code: 1, Message: fmt.Sprintf("%s would refuse to start because of %s", c.Before, strings.Join(names, ", "))}
}

func (c *checkup) named(result string) []string {
	var names []string
	for _, e := range c.Checks {
		if e.Result == result {
			names = append(names, e.Name)
		}
	}
	return names
}

func (c *checkup) text(w io.Writer) error {
	var b strings.Builder
	for _, e := range c.Checks {
		fmt.Fprintf(&b, "%-8s %s (%.3fs)\n", e.Result, e.Name, e.Seconds)
		for line := range strings.Lines(e.Message) {
			fmt.Fprintf(&b, "         %s\n", strings.TrimSpace(line))
		}
		for line := range strings.Lines(e.Remedy) {
			fmt.Fprintf(&b, "           %s\n", strings.TrimSpace(line))
		}
	}
	fmt.Fprintf(&b, "%d checks in %.3fs: %d errors, %d warnings, %d skipped\n", len(c.Checks), c.Seconds,
		len(c.named("error")), len(c.named("warning")), len(c.named("skipped")))
	_, err := io.WriteString(w, b.String())
	return err
}
