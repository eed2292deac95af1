// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "cmp"

// Reset holds the options of reset.
type Reset struct {
	// Force skips the confirmation.
	Force bool
	// CleanupTmpDir also removes upgrades' leftovers in /etc/kubernetes/tmp.
	CleanupTmpDir bool
	// Backups also removes the backups of etcd's data that upgrades and rollbacks have left.
	Backups bool
	// UnmountFlags are names of umount2(2) flags.
	UnmountFlags []string
	// Network also removes the leftovers of kube-proxy and the Pod network's bridge in the kernel.
	Network bool
}

// LoadReset returns the desired state for reset from a file (nil for none) and the command line. Neither contains the node's
// name, so it stays empty. Invalid input is returned as Faults.
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
	n.Reset = &Reset{
		Force: c.Force, CleanupTmpDir: c.CleanupTmpDir || flags.Host, Backups: flags.Host, // for `down --host`
		UnmountFlags: c.UnmountFlags, Network: flags.Network,
	}
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
