// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
)

// ResetFlags is what the command line of `reset`, or of one of its phases,
// says. A field counts only if Given names its flag, as with InitFlags.
type ResetFlags struct {
	// Given names the flags that the command line has, without dashes.
	Given []string

	CertDir               string   // --cert-dir
	CleanupTmpDir         bool     // --cleanup-tmp-dir
	CRISocket             string   // --cri-socket
	DryRun                bool     // --dry-run
	Force                 bool     // --force
	IgnorePreflightErrors []string // --ignore-preflight-errors
	Kubeconfig            string   // --kubeconfig
	Network               bool     // --network
	SkipPhases            []string // --skip-phases
}

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

// resetWithConfig are the flags that go together with a file.
var resetWithConfig = []string{"config", "dry-run", "ignore-preflight-errors", "kubeconfig", "network", "skip-phases"}

// LoadReset makes what `reset` works by from a file (nil for none) and the
// command line. The node's name, which neither of them says, stays empty. Bad
// input is returned as Faults.
func LoadReset(src *Source, flags ResetFlags, opts Options) (*Node, []string, error) {
	d := read(src)
	if err := d.require(src, kindReset); err != nil {
		return nil, nil, err
	}
	d.reset = cmp.Or(d.reset, &ResetConfiguration{})
	flags.apply(d, src != nil)
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

func (f *ResetFlags) given(name string) bool { return slices.Contains(f.Given, name) }

// apply writes the given flags into the document, and remembers for each field
// which flag set it.
func (f *ResetFlags) apply(d *documents, withFile bool) {
	for _, flag := range f.Given {
		if withFile && !slices.Contains(resetWithConfig, flag) {
			d.fault(Fault{Field: "--" + flag, Message: "cannot be given together with --config; write the value into the file"})
		}
	}
	set := func(flag, path string, write func()) {
		if f.given(flag) && (!withFile || slices.Contains(resetWithConfig, flag)) {
			d.setByFlag(kindReset, flag, path)
			write()
		}
	}
	c := d.reset
	set("cert-dir", "certificatesDir", func() { c.CertificatesDir = f.CertDir })
	set("cleanup-tmp-dir", "cleanupTmpDir", func() { c.CleanupTmpDir = f.CleanupTmpDir })
	set("cri-socket", "criSocket", func() { c.CRISocket = f.CRISocket })
	set("dry-run", "dryRun", func() { c.DryRun = f.DryRun })
	set("force", "force", func() { c.Force = f.Force })
	set("ignore-preflight-errors", "ignorePreflightErrors", func() {
		c.IgnorePreflightErrors = slices.Concat(c.IgnorePreflightErrors, f.IgnorePreflightErrors)
	})
	set("skip-phases", "skipPhases", func() { c.SkipPhases = f.SkipPhases })
}
