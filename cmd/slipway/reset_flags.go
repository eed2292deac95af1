// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
)

// resetOptions are the flags of `reset` and of its phases.
type resetOptions struct {
	config.ResetFlags

	configFile string
}

// resetFlagNames are the flags of `reset` itself; the phases name their own.
var resetFlagNames = []string{
	"cert-dir", "cleanup-tmp-dir", "config", "cri-socket", "dry-run", "force", "ignore-preflight-errors", "kubeconfig",
	"network", "skip-phases",
}

// bind adds the named flags to fs. A name that it does not know is a mistake
// in the table of a phase.
func (o *resetOptions) bind(fs *pflag.FlagSet, names []string) {
	for _, name := range names {
		o.bindOne(fs, name)
	}
}

func (o *resetOptions) bindOne(fs *pflag.FlagSet, name string) {
	switch name {
	case "cert-dir":
		fs.StringVar(&o.CertDir, name, config.DefaultCertificatesDir, "`folder` of the certificates; of another one than this only a control plane's files are removed")
	case "cleanup-tmp-dir":
		fs.BoolVar(&o.CleanupTmpDir, name, false, "remove /etc/kubernetes/tmp, too, where upgrades keep what they replace")
	case "config":
		fs.StringVar(&o.configFile, name, "", "configuration `file`; - for standard input")
	case "cri-socket":
		fs.StringVar(&o.CRISocket, name, "", "`socket` of the container runtime; by default the kubelet's, or what is found")
	case "dry-run":
		fs.BoolVar(&o.DryRun, name, false, "show what would be done, in order, and do nothing")
	case "force":
		fs.BoolVarP(&o.Force, name, "f", false, "do not ask whether to go on, and go on even if etcd loses its quorum")
	case "ignore-preflight-errors":
		fs.StringSliceVar(&o.IgnorePreflightErrors, name, nil, "`checks` whose errors become warnings, or all")
	case "kubeconfig":
		fs.StringVar(&o.Kubeconfig, name, config.DefaultAdminKubeconfig, "kubeconfig `file` for finding the other members of etcd")
	case "network":
		fs.BoolVar(&o.Network, name, false, "remove what kube-proxy and the bridge of the Pods leave in the kernel, too")
	case "skip-phases":
		fs.StringSliceVar(&o.SkipPhases, name, nil, "`phases` to leave out")
	default:
		panic("no flag is called " + name)
	}
}
