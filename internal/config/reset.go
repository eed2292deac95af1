// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "cmp"

// Reset is what `reset` shall do beyond what it always does.
type Reset struct {
	// Force asks to begin without a question.
	Force bool
	// CleanupTmpDir asks to remove what upgrades leave in /etc/kubernetes/tmp.
	CleanupTmpDir bool
	// UnmountFlags are names of flags of umount2(2).
	UnmountFlags []string
	// Network asks to remove what kube-proxy and the bridge of the Pods leave
	// in the kernel.
	Network bool
}

// LoadReset makes what `reset` works by from a file (nil for none) and the
// command line. The node's name, which neither of them says, stays empty. Bad
// input is returned as Faults.
func LoadReset(src *Source, flags Flags, opts Options) (*Node, []string, error) {
	d := read(src)
	if err := d.require(src, kindReset); err != nil {
		return nil, nil, err
	}
	d.reset = cmp.Or(d.reset, &ResetConfiguration{})
	flags.apply(d, "reset", src != nil, kindReset)
	d.ignore(kindInit, kindCluster, kindJoin, kindUpgrade, kindKubelet, kindKubeProxy)
	d.completeReset(opts)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	c := d.reset
	n := APINode("", nil)
	n.CRISocket, n.Timeouts, n.Paths.PKI = c.CRISocket, limits(c.Timeouts), c.CertificatesDir
	n.SkipPhases, n.IgnorePreflightErrors, n.DryRun = c.SkipPhases, lowered(c.IgnorePreflightErrors), c.DryRun
	n.Reset = &Reset{Force: c.Force, CleanupTmpDir: c.CleanupTmpDir, UnmountFlags: c.UnmountFlags, Network: flags.Network}
	if flags.given("kubeconfig") {
		n.Paths.AdminKubeconfig = flags.Kubeconfig
	}
	return n, d.warningTexts(), nil
}

func (d *documents) completeReset(opts Options) {
	d.checkSocket(kindReset, "criSocket", d.reset.CRISocket, opts.Facts)
	defaultReset(d.reset, opts.Facts)
	d.checkReset()
}
