// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
)

// joinOptions are the flags of `join` and of its phases.
type joinOptions struct {
	config.JoinFlags

	configFile string
	tokenFile  string
}

// joinFlagNames are the flags of `join` itself; the phases name their own.
var joinFlagNames = []string{
	"apiserver-advertise-address", "apiserver-bind-port", "certificate-key", "config", "control-plane", "cri-socket",
	"discovery-file", "discovery-token", "discovery-token-ca-cert-hash", "discovery-token-unsafe-skip-ca-verification",
	"dry-run", "ignore-preflight-errors", "node-name", "patches", "skip-phases", "tls-bootstrap-token", "token", "token-file",
}

// bind adds the named flags to fs. A name that it does not know is a mistake
// in the table of a phase.
func (o *joinOptions) bind(fs *pflag.FlagSet, names []string) {
	for _, name := range names {
		o.bindOne(fs, name)
	}
}

func (o *joinOptions) bindOne(fs *pflag.FlagSet, name string) {
	switch name {
	case "apiserver-advertise-address":
		fs.StringVar(&o.APIServerAdvertiseAddress, name, "", "`IP` address at which a control plane's API server says it can be reached")
	case "apiserver-bind-port":
		fs.Int32Var(&o.APIServerBindPort, name, config.DefaultBindPort, "port at which a control plane's API server listens")
	case "certificate-key":
		fs.StringVar(&o.CertificateKey, name, "", "`key` that decrypts the shared certificates of the control planes")
	case "config":
		fs.StringVar(&o.configFile, name, "", "configuration `file`; - for standard input")
	case "control-plane":
		fs.BoolVar(&o.ControlPlane, name, false, "make this host one more control plane")
	case "cri-socket":
		fs.StringVar(&o.CRISocket, name, "", "`socket` of the container runtime; found by itself unless there are several")
	case "dry-run":
		fs.BoolVar(&o.DryRun, name, false, "show what would be done, in order, and do nothing; the cluster is not asked (--diff asks it)")
	case "ignore-preflight-errors":
		fs.StringSliceVar(&o.IgnorePreflightErrors, name, nil, "`checks` whose errors become warnings, or all")
	case "node-name":
		fs.StringVar(&o.NodeName, name, "", "`name` of this node; by default the host's")
	case "patches":
		fs.StringVar(&o.Patches, name, "", "`folder` of files TARGET[SUFFIX][+TYPE].EXT that patch what is generated")
	case "skip-phases":
		fs.StringSliceVar(&o.SkipPhases, name, nil, "`phases` to leave out")
	default:
		o.bindDiscovery(fs, name)
	}
}

func (o *joinOptions) bindDiscovery(fs *pflag.FlagSet, name string) {
	switch name {
	case "discovery-file":
		fs.StringVar(&o.DiscoveryFile, name, "", "kubeconfig `file`, or https URL of one, that says where the cluster is and whom to trust")
	case "discovery-token":
		fs.StringVar(&o.DiscoveryToken, name, "", "`token` that verifies what the cluster says of itself")
	case "discovery-token-ca-cert-hash":
		fs.StringSliceVar(&o.CACertHashes, name, nil, "`hash` that the cluster's CA must have: sha256:HEX")
	case "discovery-token-unsafe-skip-ca-verification":
		fs.BoolVar(&o.SkipCAVerification, name, false, "trust the cluster without a hash of its CA")
	case "tls-bootstrap-token":
		fs.StringVar(&o.TLSBootstrapToken, name, "", "`token` with which the kubelet asks for its certificate")
	case "token":
		fs.StringVar(&o.Token, name, "", "`token` for discovery and for the kubelet's certificate alike")
	case "token-file":
		fs.StringVar(&o.tokenFile, name, "", "`file` that holds the token, so that no list of processes shows it; - for standard input")
	default:
		panic("no flag is called " + name)
	}
}
