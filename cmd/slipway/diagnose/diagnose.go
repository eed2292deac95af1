// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package diagnose has the commands that examine this node: `diagnose` finds out why it doesn't work, `support-bundle` collects
// everything that others need to help, and `check cis` compares it with the CIS benchmark. internal/diagnose, internal/support and
// internal/benchmark do the work.
package diagnose

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/support"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// diagnosis is the output of `diagnose`; docs/diagnose.md describes it.
type diagnosis struct {
	metav1.TypeMeta `json:",inline"`

	Findings []fault.Finding `json:"findings"`
}

func (d *diagnosis) DeepCopyObject() runtime.Object { return new(*d) }

// causeFound is the exit code if the node has a problem, not the command.
const causeFound = 2

func New(g *cli.Globals) *cobra.Command {
	o, out := &nodeOptions{}, &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "diagnose",
		Short: "Find out what is wrong with this node and how to fix it",
		Long: "Find out what is wrong with this node and how to fix it.\n\n" +
			"It looks at the kubelet, the container runtime, the static Pods, certificates, ports, names, disks and etcd's members.\n" +
			"It changes nothing and works without a cluster. The exit code is 0 if the node is fine, 2 if something is wrong, and 1 if\n" +
			"some checks couldn't run. It knows these causes:\n" + causeList(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			real, err := rootHost()
			if err != nil {
				return err
			}
			defer real.Close()
			d := &diagnosis{TypeMeta: metav1.TypeMeta{APIVersion: "slipway.diagnose/v1", Kind: "Diagnosis"}}
			var unseen error
			d.Findings, unseen = diagnose.Run(cmd.Context(), real, o.target(cmd.Context(), g, real))
			return d.report(g, out, unseen)
		},
	}
	config.Bind(cmd.Flags(), "diagnose", &o.DiagnoseFlags)
	out.Bind(cmd.Flags())
	return cmd
}

// report prints the diagnosis, and returns the verdict. People aren't told that nothing is wrong if it couldn't look everywhere.
func (d *diagnosis) report(g *cli.Globals, out *cli.OutputOptions, unseen error) error {
	text := d.text
	if unseen != nil && len(d.Findings) == 0 {
		text = func(io.Writer) error { return nil }
	}
	if err := out.Print(g, d, text); err != nil {
		return err
	}
	return d.verdict(unseen)
}

// verdict returns an error if the diagnosis found a problem, or couldn't look everywhere.
func (d *diagnosis) verdict(unseen error) error {
	if unseen != nil || len(d.Findings) == 0 {
		return unseen
	}
	return cli.ExitError{Code: causeFound, Message: "something is wrong with this node: " + d.names()}
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
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (d *diagnosis) text(w io.Writer) error {
	if len(d.Findings) == 0 {
		_, err := fmt.Fprintln(w, "Found nothing wrong.")
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
type nodeOptions struct{ config.DiagnoseFlags }

// rootHost is this host for commands that need to see all of it.
func rootHost() (*linux.Host, error) {
	real := linux.New()
	if real.EffectiveUID() != 0 {
		return nil, errors.New("run this as root: other users cannot read the journal or ask the container runtime")
	}
	return real, nil
}

func (o *nodeOptions) target(ctx context.Context, g *cli.Globals, real *linux.Host) diagnose.Target {
	socket := cmp.Or(o.CRISocket, thisnode.Current(real).NodeRegistration.CRISocket)
	if found := env.Existing(real, config.KnownSockets()); socket == "" && len(found) > 0 {
		socket = "unix://" + found[0]
	}
	node, err := env.NodeFromFiles(real, thisnode.Current(real))
	if err != nil {
		node = nil // files that can't be read are findings
	}
	target := diagnose.Target{
		Socket: cmp.Or(socket, "unix://"+config.KnownSockets()[0]), Kubelet: config.DefaultKubeletDir,
		Kubeconfigs: config.DefaultKubernetesDir, Manifests: filepath.Join(config.DefaultKubernetesDir, "manifests"),
		Since: journalSince(ctx, real), Etcd: askEtcd(g, real, node),
	}
	if node != nil {
		target.Serving, target.ClientCA = kubeletFiles(real, node)
	}
	return target
}

// askEtcd returns a function that asks the members of a control plane's etcd for their health; nil on other hosts.
func askEtcd(g *cli.Globals, real *linux.Host, node *config.Node) func(context.Context) ([]etcd.Health, error) {
	if node == nil || !thisnode.IsControlPlane(real) || node.Cluster.Etcd.External != nil {
		return nil
	}
	members := env.NewEtcd(node, real, cluster.New(env.ClusterOptions(node, real)), cli.NewUI(g))
	return func(ctx context.Context) ([]etcd.Health, error) { return etcd.AskHealth(ctx, members) }
}

// kubeletFiles returns the path of the serving certificate that the kubelet has from the cluster, empty if it signs its own; and that of
// the CAs whose clients it accepts, empty if only systemd knows it.
func kubeletFiles(real *linux.Host, node *config.Node) (serving, clientCA string) {
	settings, err := thisnode.KubeletSettings(real, &node.Machine)
	if err != nil {
		return "", ""
	}
	if settings.ServerTLSBootstrap {
		serving = thisnode.KubeletServingPEM(real, &node.Machine)
	}
	clientCA = settings.Authentication.X509.ClientCAFile
	if len(thisnode.ExpandedFlags(real, &node.Machine, "client-ca-file", "config-dir")) > 0 {
		clientCA = ""
	}
	if clientCA != "" && !filepath.IsAbs(clientCA) { // as the kubelet resolves it
		clientCA = filepath.Join(node.Paths.Kubelet, clientCA)
	}
	return serving, clientCA
}

// recent limits how far back the journal of a running kubelet is read.
const recent = 15 * time.Minute

// journalSince is where the relevant journal begins: at the kubelet's last start, or recently if it has been running longer.
func journalSince(ctx context.Context, real *linux.Host) time.Time {
	lately := real.Now().Add(-recent)
	unit, err := real.Unit(ctx, "kubelet.service")
	if err != nil || unit.ActiveState == "active" && unit.ActiveSince.Before(lately) || unit.ActiveSince.IsZero() {
		return lately
	}
	return unit.ActiveSince
}

type supportOptions struct {
	nodeOptions
	file          string
	allNamespaces bool
}

func NewSupportBundle(g *cli.Globals) *cobra.Command {
	o := &supportOptions{}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect diagnostics into an archive, without secrets",
		Long: "Collect diagnostics of this node into an archive, without secrets.\n\n" +
			"The tar.gz holds the static Pod manifests, the kubelet's configuration, the states and journals of units, the logs\n" +
			"of containers in kube-system, certificates without their keys, kubeconfigs without credentials, facts about this\n" +
			"host, and the output of `diagnose`. Keys, tokens, passwords, and the values of environment variables that are not\n" +
			"known to be harmless are removed. Review the archive before you share it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			real, err := rootHost()
			if err != nil {
				return err
			}
			defer real.Close()
			path, err := o.write(cmd.Context(), g, real)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Streams.Out, path)
			return err
		},
	}
	config.Bind(cmd.Flags(), "support-bundle", &o.DiagnoseFlags)
	cmd.Flags().StringVar(&o.file, "file", "", "output `file`; by default one in the current directory, named after the host and the time")
	cmd.Flags().BoolVar(&o.allNamespaces, "all-namespaces", false, "include container logs of all namespaces, not only of kube-system")
	return cmd
}

// write returns the path of the archive, which only its owner can read.
func (o *supportOptions) write(ctx context.Context, g *cli.Globals, real *linux.Host) (string, error) {
	path, err := o.path(real)
	if err != nil {
		return "", err
	}
	data, err := support.Collect(ctx, real, support.Node{
		Target: o.target(ctx, g, real), PKI: thisnode.CertificatesDir(real), Kubernetes: config.DefaultKubernetesDir,
		Version: g.Version(), AllNamespaces: o.allNamespaces,
	})
	if err != nil {
		return "", err
	}
	_, err = real.WriteSecret(path, data)
	return path, err
}

func (o *supportOptions) path(real *linux.Host) (string, error) {
	if o.file != "" {
		return filepath.Abs(o.file)
	}
	name, err := real.Hostname()
	if err != nil {
		return "", err
	}
	return filepath.Abs(fmt.Sprintf("slipway-support-%s-%s.tar.gz", name, real.Now().UTC().Format(host.FileTime)))
}
