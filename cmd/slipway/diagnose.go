// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
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

// causeFound is the exit code where something is wrong with the node, as
// opposed to the command.
const causeFound = 2

func newDiagnose(g *globals) *cobra.Command {
	o, out := &nodeOptions{}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Say what is wrong with this node, and what to do about it",
		Long: "Say what is wrong with this node, and what to do about it.\n\n" +
			"It looks at the kubelet, the container runtime, the static Pods, certificates, ports, names and disks. It changes\n" +
			"nothing and needs no cluster. It exits with 0 if it finds nothing, and with 2 if it does. The causes it knows:\n" + causeList(),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			real, target, err := o.thisNode()
			if err != nil {
				return err
			}
			defer real.Close()
			target.Since = saidSince(cmd, real)
			d := &diagnosis{TypeMeta: metav1.TypeMeta{APIVersion: "slipway.diagnose/v1", Kind: "Diagnosis"}, Findings: diagnose.Run(cmd.Context(), real, target)}
			if err := out.print(g, d, func(_ runtime.Object, w io.Writer) error { return d.text(w) }); err != nil || len(d.Findings) == 0 {
				return err
			}
			return exitError{causeFound, "something is wrong with this node: " + d.names()}
		},
	}
	o.Bind(cmd.Flags(), "diagnose")
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

// nodeOptions are the flags of commands that look at this node as it is.
type nodeOptions struct{ config.Flags }

// thisNode is this host, and where a node's files are.
func (o *nodeOptions) thisNode() (*host.Real, diagnose.Target, error) {
	real := host.New()
	if real.EffectiveUID() != 0 {
		return nil, diagnose.Target{}, errors.New("run as root: others may see neither the journal nor the container runtime")
	}
	socket := cmp.Or(o.CRISocket, phases.ThisNode(real).NodeRegistration.CRISocket)
	if found := existing(real, config.KnownSockets()); socket == "" && len(found) > 0 {
		socket = "unix://" + found[0]
	}
	return real, diagnose.Target{
		Socket: cmp.Or(socket, "unix://"+config.KnownSockets()[0]), Kubelet: config.DefaultKubeletDir,
		Kubeconfigs: config.DefaultKubernetesDir, Manifests: filepath.Join(config.DefaultKubernetesDir, "manifests"),
	}, nil
}

// stillMatters is how old what a kubelet says may be that runs on.
const stillMatters = 15 * time.Minute

// saidSince is from when on the journal counts: since the kubelet was started
// for the last time.
func saidSince(cmd *cobra.Command, h *host.Real) time.Time {
	lately := h.Now().Add(-stillMatters)
	unit, err := h.Unit(cmd.Context(), "kubelet.service")
	if err != nil || unit.ActiveState == "active" && unit.ActiveSince.Before(lately) || unit.ActiveSince.IsZero() {
		return lately
	}
	return unit.ActiveSince
}
