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
			check.Checks = append(check.Checks, found...)
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
			check.Checks = append(check.Checks, found...)
			return check.report(g, out)
		},
	}
	config.Bind(cmd.Flags(), "preflight join", &o.JoinFlags)
	out.Bind(cmd.Flags())
	return cmd
}

// discoveryTimeout is shorter than a join's timeout: preflight asks once and doesn't wait.
const discoveryTimeout = 3 * time.Second

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
		check.Checks = []preflight.Result{{Check: "Discovery", Findings: []fault.Finding{{Severity: fault.Skipped, Message: "no cluster is named"}}}}
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
	self.Timeouts.Discovery.Duration = min(self.Timeouts.Discovery.Duration, discoveryTimeout)
	node, warnings, err := env.NewDiscovery(in.Host, said, discoveryTimeout, in.Options).Node(ctx, self)
	asked := preflight.Result{Check: "Discovery", Took: time.Since(start)}
	if err != nil {
		node, asked.Findings = nil, []fault.Finding{fault.Of(err)}
	}
	check.Checks = []preflight.Result{asked}
	return node, warnings
}

// checkup is the output of `preflight`; see docs/preflight.md.
type checkup struct {
	metav1.TypeMeta `json:",inline"`

	// Before is the command that runs these checks first: init or join.
	Before string `json:"before"`
	Node   string `json:"node"`
	// Result is the worst result of all checks that weren't skipped: ok, warning or error.
	Result  fault.Severity     `json:"result"`
	Seconds float64            `json:"seconds"`
	Checks  []preflight.Result `json:"checks"`

	start time.Time
}

func (c *checkup) DeepCopyObject() runtime.Object { return new(*c) }

func newCheckup(before string) *checkup {
	return &checkup{
		TypeMeta: metav1.TypeMeta{APIVersion: "slipway.preflight/v1", Kind: "PreflightResult"},
		Before:   before, Result: preflight.OK, start: time.Now(),
	}
}

// report prints all checks. It returns an error if any check found an error.
func (c *checkup) report(g *cli.Globals, out *cli.OutputOptions) error {
	failed := c.named(fault.Error)
	switch {
	case failed != nil:
		c.Result = fault.Error
	case c.named(fault.Warning) != nil:
		c.Result = fault.Warning
	}
	c.Seconds = float64(time.Since(c.start).Milliseconds()) / 1000
	if err := out.Print(g, c, c.text); err != nil || failed == nil {
		return err
	}
	return cli.ExitError{Code: 1, Message: fmt.Sprintf("%s would refuse to start because of %s", c.Before, strings.Join(failed, ", "))}
}

// named are the names of the checks with this outcome.
func (c *checkup) named(outcome fault.Severity) (names []string) {
	for _, r := range c.Checks {
		if r.Outcome() == outcome {
			names = append(names, r.Check)
		}
	}
	return names
}

func (c *checkup) text(w io.Writer) error {
	var b strings.Builder
	for _, r := range c.Checks {
		fmt.Fprintf(&b, "%-8s %s (%.3fs)\n", r.Outcome(), r.Check, r.Took.Seconds())
		message, remedy := r.Text()
		for line := range strings.Lines(message) {
			fmt.Fprintf(&b, "         %s\n", strings.TrimSpace(line))
		}
		for line := range strings.Lines(remedy) {
			fmt.Fprintf(&b, "           %s\n", strings.TrimSpace(line))
		}
	}
	fmt.Fprintf(&b, "%d checks in %.3fs: %d errors, %d warnings, %d skipped\n", len(c.Checks), c.Seconds,
		len(c.named(fault.Error)), len(c.named(fault.Warning)), len(c.named(fault.Skipped)))
	_, err := io.WriteString(w, b.String())
	return err
}
