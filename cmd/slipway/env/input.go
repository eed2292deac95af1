// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"context"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
)

type Input struct {
	File    *config.Source // of --config; nil without
	Host    *linux.Host
	Options config.Options
}

// ReadInput reads the configuration file, if given, and this host's facts for defaults.
func ReadInput(ctx context.Context, g *cli.Globals, m Mode, file string) (*Input, error) {
	src, err := cli.ReadConfigFile(ctx, g, file)
	if err != nil {
		return nil, err
	}
	real := linux.New()
	facts, err := hostFacts(real)
	if err != nil {
		return nil, err
	}
	return &Input{src, real, m.Options(facts)}, nil
}

// AnyRuntime is for a command that doesn't use the node's container runtime: of several, it gets the kubelet's, or the first.
func (in *Input) AnyRuntime() {
	facts := &in.Options.Facts
	if len(facts.Sockets) > 1 {
		facts.Sockets = []string{cmp.Or(strings.TrimPrefix(thisnode.KubeletSocket(in.Host), "unix://"), facts.Sockets[0])}
	}
}

// hostFacts are this host's facts for defaults. Unknown facts stay empty: the configuration may have them.
func hostFacts(real *linux.Host) (config.HostFacts, error) {
	name, err := real.Hostname()
	if err != nil {
		return config.HostFacts{}, err
	}
	return config.HostFacts{
		Hostname: name,
		IPv4:     defaultAddress(real, false),
		IPv6:     defaultAddress(real, true),
		Sockets:  Existing(real, config.KnownSockets()),
	}, nil
}

func defaultAddress(real *linux.Host, ipv6 bool) netip.Addr {
	addr, err := real.DefaultAddress(ipv6)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// Existing returns the sockets among paths.
func Existing(real *linux.Host, paths []string) []string {
	var found []string
	for _, path := range paths {
		if info, err := real.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			found = append(found, path)
		}
	}
	return found
}

// AskTimeout limits the wait for a configuration a command can do without: people look at certificates when the cluster is down.
const AskTimeout = 5 * time.Second

// NodeOfCluster is this control plane as described by the cluster's configuration and this host's files.
func NodeOfCluster(ctx context.Context, env *step.Env, key config.Secret) (*config.Node, []string, error) {
	stored, err := joining.StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return nil, nil, err
	}
	self := thisnode.Current(env.Host)
	self.ControlPlane.CertificateKey = key.Reveal()
	return NodeFrom(stored, self)
}

// NodeFrom is this host as described by its cluster's stored configuration and its own files.
func NodeFrom(stored []byte, self *config.JoinConfiguration) (*config.Node, []string, error) {
	real := linux.New()
	defer real.Close()
	facts, err := hostFacts(real)
	if err != nil {
		return nil, nil, err
	}
	opts := Acting{}.Options(facts)
	opts.Placeholders, opts.AnyVersion = true, true
	return config.LoadCluster(stored, nil, nil, self, opts)
}

// InitOptions are the flags of `init`, its phases, and the commands that read its configuration.
type InitOptions struct {
	config.InitFlags

	// AnyHost says that nothing is done to this host, so a missing address may be made up.
	AnyHost bool
	// AnyRuntime says any of several container runtimes will do.
	AnyRuntime bool
	// Restored reads the configuration of a cluster to restore; nil if init makes a new one.
	Restored func(host.Host) (*config.Source, error)
	// OnePhase says that a phase is run by its own command, maybe for an existing cluster.
	OnePhase bool
}

// WarnOfMissingEndpoint warns that sharing certificates is pointless if no control plane can join.
func WarnOfMissingEndpoint(ui ui.UI, node *config.Node) {
	if node.Cluster.ControlPlaneEndpoint == "" {
		ui.Warnf("the certificates are shared, but no control plane can join with them: " +
			"the cluster has no controlPlaneEndpoint (--control-plane-endpoint), an address that leads to all control planes")
	}
}

// LoadInit loads the desired state, and makes its parts.
func LoadInit(cmd *cobra.Command, g *cli.Globals, o *InitOptions) (*Parts, error) {
	o.Given = cli.Given(cmd.Flags())
	o.ignoreFilesMode(cmd.Flags())
	if err := o.TakeNetwork(cmd.Context(), g); err != nil {
		return nil, err
	}
	in, err := ReadInput(cmd.Context(), g, ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	if o.AnyRuntime {
		in.AnyRuntime()
	}
	if o.Restored != nil {
		if in.Options.Restored, err = o.Restored(in.Host); err != nil {
			return nil, err
		}
	}
	return o.Parts(cmd.Context(), g, in)
}

// Parts loads the desired state from input that's already been read.
func (o *InitOptions) Parts(ctx context.Context, g *cli.Globals, in *Input) (*Parts, error) {
	in.Options.Placeholders, in.Options.Existing = o.AnyHost, o.OnePhase || o.AnyHost
	in.Options.StartsKubelet = !o.AnyRuntime && !o.AnyHost
	node, warnings, err := config.LoadInit(ctx, in.File, o.InitFlags, in.Options)
	if err != nil {
		return nil, err
	}
	return NewParts(g, node, in.Host, warnings...), nil
}

// TakeNetwork adds --network's manifest to the flags, within the size limit for configurations.
func (o *InitOptions) TakeNetwork(ctx context.Context, g *cli.Globals) error {
	if !o.Given.Has("network") || slices.Contains([]string{"", config.NoNetwork, config.Flannel}, o.NetworkAddOn) {
		return nil
	}
	if o.NetworkAddOn == "-" && o.ConfigFile == "-" {
		return errors.New("--network and --config cannot both read standard input")
	}
	data, err := cli.ReadInput(ctx, g, o.NetworkAddOn, config.MaxSize+1)
	if err != nil {
		return errors.Wrap(err, "--network takes none, flannel or a file with a manifest")
	}
	if len(data) > config.MaxSize {
		return errors.Errorf("--network: %s has more than %d bytes; apply it with `kubectl` once the cluster is running", cli.InputName(o.NetworkAddOn), config.MaxSize)
	}
	o.NetworkManifest = data
	return nil
}
