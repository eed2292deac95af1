// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"context"
	"io/fs"
	"net/netip"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

type Input struct {
	File    *config.Source // of --config; nil without
	Host    *linux.Host
	Options config.Options
}

// ReadInput reads the configuration file, if given, and this host's facts that defaults depend on.
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

// AnyRuntime is for a command that neither chooses nor asks the node's container runtime. If several are installed, it gets the
// kubelet's, or the first.
func (in *Input) AnyRuntime() {
	facts := &in.Options.Facts
	if len(facts.Sockets) > 1 {
		facts.Sockets = []string{cmp.Or(strings.TrimPrefix(thisnode.KubeletSocket(in.Host), "unix://"), facts.Sockets[0])}
	}
}

// hostFacts are this host's facts that defaults depend on. Unknown facts stay empty: the configuration may have them.
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

// Existing returns the paths that are sockets.
func Existing(real *linux.Host, paths []string) []string {
	var found []string
	for _, path := range paths {
		if info, err := real.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			found = append(found, path)
		}
	}
	return found
}

// AskTime limits the wait for the cluster's configuration if a command can do without: people look at certificates when the
// cluster is down.
const AskTime = 5 * time.Second

// AskingNode is for questions to the cluster that a command can do without.
func AskingNode(kubeconfig UserKubeconfig) *config.Node {
	return config.APINode(kubeconfig.String(), nil).With(func(n *config.Node) { n.Timeouts.KubernetesAPICall = AskTime })
}

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
