// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases"
)

// diagnosis is what `diagnose` prints, as docs/diagnose.md describes it.
type diagnosis struct {
	metav1.TypeMeta `json:",inline"`

	Findings []diagnose.Finding `json:"findings"`
}

// DeepCopyObject makes it an object for the printers.
func (d *diagnosis) DeepCopyObject() runtime.Object { return new(*d) }

// causeFound is the exit code if something is wrong with the node, not with the command.
const causeFound = 2

func newDiagnose(g *globals) *cobra.Command {
	o, out := &nodeOptions{}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Find out what is wrong with this node and how to fix it",
		Long: "Find out what is wrong with this node and how to fix it.\n\n" +
			"It looks at the kubelet, the container runtime, the static Pods, certificates, ports, names and disks. It changes\n" +
			"nothing and works without a cluster. The exit code is 0 if it finds nothing wrong, and 2 if it does. It knows\n" +
			"these causes:\n" + causeList(),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			real, err := rootHost()
			if err != nil {
				return err
			}
			defer real.Close()
			d := &diagnosis{
				TypeMeta: metav1.TypeMeta{APIVersion: "slipway.diagnose/v1", Kind: "Diagnosis"},
				Findings: diagnose.Run(cmd.Context(), real, o.target(cmd.Context(), real)),
			}
			if err := out.print(g, d, func(_ runtime.Object, w io.Writer) error { return d.text(w) }); err != nil || len(d.Findings) == 0 {
				return err
			}
			return exitError{causeFound, "something is wrong with this node: " + d.names()}
		},
	}
	o.bind(cmd.Flags())
	out.bind(cmd.Flags())
	return cmd
}

func causeList() string {
	var b strings.Builder
	for _, c := range diagnose.Causes() {
		fmt.Fprintf(&b, "  %-20s %s\n", c.Name, c.Summary)
	}
	return b.String()
}

func (d *diagnosis) names() string {
	var names []string
	for _, f := range d.Findings {
		if !slices.Contains(names, f.Cause) {
			names = append(names, f.Cause)
		}
	}
	return strings.Join(names, ", ")
}

func (d *diagnosis) text(w io.Writer) error {
	if len(d.Findings) == 0 {
		_, err := fmt.Fprintln(w, "Nothing wrong was found.")
		return err
	}
	for _, f := range d.Findings {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	return nil
}

// nodeOptions are the flags of commands that inspect this node as it is.
type nodeOptions struct{ socket string }

func (o *nodeOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.socket, "cri-socket", "", "`socket` of the container runtime; by default the kubelet's")
}

// rootHost is this host for commands that need to see all of it.
func rootHost() (*host.Real, error) {
	real := host.New()
	if real.EffectiveUID() != 0 {
		return nil, errors.New("run this as root: other users cannot read the journal or ask the container runtime")
	}
	return real, nil
}

// target is where to look for this node's files and services.
func (o *nodeOptions) target(ctx context.Context, real *host.Real) diagnose.Target {
	socket := cmp.Or(o.socket, phases.ThisNode(real).NodeRegistration.CRISocket)
	if found := existing(real, config.KnownSockets()); socket == "" && len(found) > 0 {
		socket = "unix://" + found[0]
	}
	return diagnose.Target{
		Socket: cmp.Or(socket, "unix://"+config.KnownSockets()[0]), Kubelet: config.DefaultKubeletDir,
		Kubeconfigs: config.DefaultKubernetesDir, Manifests: filepath.Join(config.DefaultKubernetesDir, "manifests"),
		Since: journalSince(ctx, real),
	}
}

// recent limits how far back the journal of a running kubelet is read.
const recent = 15 * time.Minute

// journalSince is the time from which the journal matters: the last start of the kubelet, or recently if it has been
// running for longer.
func journalSince(ctx context.Context, real *host.Real) time.Time {
	lately := real.Now().Add(-recent)
	unit, err := real.Unit(ctx, "kubelet.service")
	if err != nil || unit.ActiveState == "active" && unit.ActiveSince.Before(lately) || unit.ActiveSince.IsZero() {
		return lately
	}
	return unit.ActiveSince
}
