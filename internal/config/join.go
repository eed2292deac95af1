// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
)

// JoinFlags is what the command line of `join`, or of one of its phases, says.
// A field counts only if Given names its flag, as with InitFlags.
type JoinFlags struct {
	// Given names the flags that the command line has, without dashes.
	Given []string
	// Endpoint is the argument: host:port of an API server to discover.
	Endpoint string

	APIServerAdvertiseAddress string   // --apiserver-advertise-address
	APIServerBindPort         int32    // --apiserver-bind-port
	CertificateKey            string   // --certificate-key
	ControlPlane              bool     // --control-plane
	CRISocket                 string   // --cri-socket
	DiscoveryFile             string   // --discovery-file
	DiscoveryToken            string   // --discovery-token
	CACertHashes              []string // --discovery-token-ca-cert-hash
	SkipCAVerification        bool     // --discovery-token-unsafe-skip-ca-verification
	DryRun                    bool     // --dry-run
	IgnorePreflightErrors     []string // --ignore-preflight-errors
	NodeName                  string   // --node-name
	Patches                   string   // --patches
	SkipPhases                []string // --skip-phases
	TLSBootstrapToken         string   // --tls-bootstrap-token
	Token                     string   // --token, or the content of --token-file
}

// joinWithConfig are the flags that go together with a file.
var joinWithConfig = []string{"config", "dry-run", "ignore-preflight-errors", "node-name", "skip-phases"}

// LoadJoin reads, defaults and validates what `join` is told by a file (nil
// for none) and the command line. Bad input is returned as Faults.
func LoadJoin(src *Source, flags JoinFlags, opts Options) (*JoinConfiguration, []string, error) {
	d := read(src)
	if err := d.require(src, kindJoin); err != nil {
		return nil, nil, err
	}
	d.join = cmp.Or(d.join, &JoinConfiguration{})
	flags.apply(d, src != nil)
	d.ignore(kindInit, kindCluster, kindReset, kindUpgrade, kindKubelet, kindKubeProxy)
	d.completeJoin(opts)
	return d.join, d.warningTexts(), d.err()
}

func (d *documents) completeJoin(opts Options) {
	d.checkRegistration(kindJoin, &d.join.NodeRegistration, opts.Facts)
	defaultJoin(d.join, opts.Facts)
	if cp := d.join.ControlPlane; cp != nil && (cp.LocalAPIEndpoint.AdvertiseAddress != "" || !opts.Placeholders) {
		d.checkAdvertise(kindJoin, "controlPlane.localAPIEndpoint.advertiseAddress", cp.LocalAPIEndpoint.AdvertiseAddress, nil)
	}
	d.checkJoin()
}

func (f *JoinFlags) given(name string) bool { return slices.Contains(f.Given, name) }

// apply writes the given flags into the document, and remembers for each field
// which flag set it.
func (f *JoinFlags) apply(d *documents, withFile bool) {
	if withFile {
		f.refuseMixing(d)
	}
	set := func(flag, path string, write func()) {
		if f.given(flag) && (!withFile || slices.Contains(joinWithConfig, flag)) {
			d.setByFlag(kindJoin, flag, path)
			write()
		}
	}
	c, r := d.join, &d.join.NodeRegistration
	set("cri-socket", "nodeRegistration.criSocket", func() { r.CRISocket = f.CRISocket })
	set("dry-run", "dryRun", func() { c.DryRun = f.DryRun })
	set("ignore-preflight-errors", "nodeRegistration.ignorePreflightErrors", func() {
		r.IgnorePreflightErrors = slices.Concat(r.IgnorePreflightErrors, f.IgnorePreflightErrors)
	})
	set("node-name", "nodeRegistration.name", func() { r.Name = f.NodeName })
	set("patches", "patches.directory", func() { c.Patches = &Patches{Directory: f.Patches} })
	set("skip-phases", "skipPhases", func() { c.SkipPhases = f.SkipPhases })
	if withFile {
		return
	}
	f.applyControlPlane(d, c, set)
	f.applyDiscovery(c, set)
}

func (f *JoinFlags) refuseMixing(d *documents) {
	for _, flag := range f.Given {
		if !slices.Contains(joinWithConfig, flag) {
			d.fault(Fault{Field: "--" + flag, Message: "cannot be given together with --config; write the value into the file"})
		}
	}
	if f.Endpoint != "" {
		// The peer ignores it, and scripts give it.
		d.warn(Fault{Message: "the address " + printable(f.Endpoint) + " is not used: --config says where the cluster is"})
	}
}

func (f *JoinFlags) applyControlPlane(d *documents, c *JoinConfiguration, set func(flag, path string, write func())) {
	if !f.given("control-plane") || !f.ControlPlane {
		for _, flag := range []string{"apiserver-advertise-address", "apiserver-bind-port", "certificate-key"} {
			if f.given(flag) {
				d.warn(Fault{Field: "--" + flag, Message: "is not used without --control-plane: this host becomes a worker"})
			}
		}
		return
	}
	p := &JoinControlPlane{}
	c.ControlPlane = p
	set("apiserver-advertise-address", "controlPlane.localAPIEndpoint.advertiseAddress", func() {
		p.LocalAPIEndpoint.AdvertiseAddress = f.APIServerAdvertiseAddress
	})
	set("apiserver-bind-port", "controlPlane.localAPIEndpoint.bindPort", func() { p.LocalAPIEndpoint.BindPort = f.APIServerBindPort })
	set("certificate-key", "controlPlane.certificateKey", func() { p.CertificateKey = f.CertificateKey })
}

// applyDiscovery: --token serves discovery and TLS bootstrap alike, where they
// have no token of their own. Without an address it serves a discovery file.
func (f *JoinFlags) applyDiscovery(c *JoinConfiguration, set func(flag, path string, write func())) {
	set("discovery-file", "discovery.file.kubeConfigPath", func() { c.Discovery.File = &FileDiscovery{f.DiscoveryFile} })
	set("token", "discovery.tlsBootstrapToken", func() { c.Discovery.TLSBootstrapToken = f.Token })
	set("tls-bootstrap-token", "discovery.tlsBootstrapToken", func() { c.Discovery.TLSBootstrapToken = f.TLSBootstrapToken })
	byToken := f.given("token") || f.given("discovery-token")
	if f.Endpoint == "" && (c.Discovery.File != nil || !byToken) {
		return
	}
	t := &BootstrapTokenDiscovery{APIServerEndpoint: f.Endpoint}
	c.Discovery.BootstrapToken = t
	const at = "discovery.bootstrapToken."
	set("token", at+"token", func() { t.Token = f.Token })
	set("discovery-token", at+"token", func() { t.Token = f.DiscoveryToken })
	set("discovery-token-ca-cert-hash", at+"caCertHashes", func() { t.CACertHashes = f.CACertHashes })
	set("discovery-token-unsafe-skip-ca-verification", at+"unsafeSkipCAVerification", func() {
		t.UnsafeSkipCAVerification = f.SkipCAVerification
	})
}
