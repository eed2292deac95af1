// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/pkg/errors"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Source is a configuration file: YAML or JSON, one or more documents.
type Source struct {
	// Name stands before the line in errors; the path as the user gave it.
	Name string
	// Data is refused beyond MaxSize bytes.
	Data []byte
}

// Options are what loading needs from outside.
type Options struct {
	Facts HostFacts
	// NewToken makes a bootstrap token, where the user names none.
	NewToken func() (id, secret string, err error)
	// NewCertificateKey makes 32 random bytes as hex, where certificates are
	// to be uploaded and the user names no key.
	NewCertificateKey func() (string, error)
	// Resolve finds out which version a label such as stable-1 stands for.
	// It is called for labels only, so mostly not at all. See ResolveLabel.
	Resolve func(ctx context.Context, label string) (string, error)
	// Now is the clock, for refusing tokens that have expired already. It is
	// nil where an old file does: `init` is run again, and `certs renew` reads
	// its file, long after that.
	Now func() time.Time
	// Placeholders asks to go on where the host has no address to advertise,
	// with one of those that are kept for documentation (RFC 5737, RFC 3849).
	// A dry run implies it.
	Placeholders bool
	// AnyVersion takes a cluster of any version of Kubernetes, for commands that
	// neither set up nor add a node of that version.
	AnyVersion bool
}

func (o Options) resolve(ctx context.Context, label string) (string, error) {
	if o.Resolve == nil {
		return "", errors.New("labels are not resolved here")
	}
	return o.Resolve(ctx, label)
}

// LoadInit makes the desired state of a first control plane from a file (nil
// for none), the command line and the host. The warnings are for the user.
// Bad input is returned as Faults, all of them at once.
func LoadInit(ctx context.Context, src *Source, flags Flags, opts Options) (*Node, []string, error) {
	d := read(src)
	if err := d.require(src, kindInit, kindCluster); err != nil {
		return nil, nil, err
	}
	d.ensureInit()
	flags.apply(d, "init", src != nil, kindInit, kindCluster)
	d.ignore(kindJoin, kindReset, kindUpgrade)
	d.completeInit(ctx, opts)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	n, err := d.node(&flags, opts)
	return n, d.warningTexts(), err
}

// ensureInit makes sure that the two documents of init exist.
func (d *documents) ensureInit() {
	d.init = cmp.Or(d.init, &InitConfiguration{})
	d.cluster = cmp.Or(d.cluster, &ClusterConfiguration{})
	if d.healthCheck != nil {
		d.init.Timeouts = cmp.Or(d.init.Timeouts, &Timeouts{})
		d.init.Timeouts.ControlPlaneComponentHealthCheck = cmp.Or(d.init.Timeouts.ControlPlaneComponentHealthCheck, d.healthCheck)
	}
}

// ignore warns of documents that the command does not use.
func (d *documents) ignore(kinds ...string) {
	for _, kind := range kinds {
		if o := d.origins[kind]; o != nil && o.file != "" {
			d.warn(Fault{File: o.file, Line: o.line, Message: kind + " is ignored by this command"})
		}
	}
}

// completeInit defaults and validates the documents of init. What the user
// wrote is checked before defaults cover it.
func (d *documents) completeInit(ctx context.Context, opts Options) {
	serial := d.init.NodeRegistration.ImagePullSerial
	d.serial = serial != nil && *serial
	defaultCluster(d.cluster)
	d.cluster.KubernetesVersion = d.exact(ctx, opts)
	d.checkNetworking()
	primary := firstPrefix(d.cluster.Networking.ServiceSubnet)
	d.checkRegistration(kindInit, &d.init.NodeRegistration, opts.Facts)
	defaultInit(d.init, opts.Facts, primary)
	if d.init.LocalAPIEndpoint.AdvertiseAddress == "" && (d.init.DryRun || opts.Placeholders) {
		d.placeholderAddress(primary)
	}
	d.checkInit(opts.Now)
	d.checkCluster()
	d.cluster.ControlPlaneEndpoint = withPort(d.cluster.ControlPlaneEndpoint, d.init.LocalAPIEndpoint.BindPort)
	d.checkComponents()
	d.completeComponents(opts.Facts)
}

func firstPrefix(list string) netip.Prefix {
	if all := prefixes(list); len(all) > 0 {
		return all[0]
	}
	return netip.Prefix{}
}

// placeholderAddress stands in for an address that this host does not have.
func (d *documents) placeholderAddress(primary netip.Prefix) {
	address := "192.0.2.1"
	if primary.Addr().Is6() {
		address = "2001:db8::1"
	}
	d.init.LocalAPIEndpoint.AdvertiseAddress = address
	d.placeholder = true
	d.warnf(kindInit, "localAPIEndpoint.advertiseAddress", "this host has no default route whose address could be used; using the placeholder %s", address)
}

// completeComponents fills the component configurations, made where there are
// none.
func (d *documents) completeComponents(facts HostFacts) {
	d.kubelet = cmp.Or(d.kubelet, &kubelet.KubeletConfiguration{})
	defaultKubelet(d.kubelet, d.cluster, facts)
	d.kubeProxy = cmp.Or(d.kubeProxy, &kubeproxy.KubeProxyConfiguration{})
	advertise, _ := netip.ParseAddr(d.init.LocalAPIEndpoint.AdvertiseAddress)
	defaultKubeProxy(d.kubeProxy, d.cluster, advertise)
}

// node puts the one desired state together from complete, valid documents.
func (d *documents) node(flags *Flags, opts Options) (*Node, error) {
	advertise, err := address(d.init.LocalAPIEndpoint.AdvertiseAddress)
	if err != nil {
		return nil, errors.Wrap(err, "localAPIEndpoint.advertiseAddress")
	}
	r := &d.init.NodeRegistration
	n := &Node{
		ControlPlane:            true,
		Name:                    r.Name,
		Hostname:                strings.ToLower(strings.TrimSpace(opts.Facts.Hostname)),
		CRISocket:               r.CRISocket,
		Taints:                  r.Taints,
		KubeletExtraArgs:        r.KubeletExtraArgs,
		ImagePullPolicy:         r.ImagePullPolicy,
		ImagePullSerial:         d.serial,
		AdvertiseAddress:        advertise,
		BindPort:                d.init.LocalAPIEndpoint.BindPort,
		Cluster:                 *d.cluster,
		Kubelet:                 *d.kubelet,
		KubeProxy:               *d.kubeProxy,
		KubeletGiven:            d.origins[kindKubelet] != nil,
		KubeProxyGiven:          d.origins[kindKubeProxy] != nil,
		EnableKubelet:           flags.given("enable-kubelet") && flags.EnableKubelet,
		UploadCerts:             flags.given("upload-certs") && flags.UploadCerts,
		SkipPhases:              d.init.SkipPhases,
		DryRun:                  d.init.DryRun,
		SkipTokenPrint:          flags.given("skip-token-print") && flags.SkipTokenPrint,
		SkipCertificateKeyPrint: flags.given("skip-certificate-key-print") && flags.SkipCertificateKeyPrint,
		IgnorePreflightErrors:   lowered(r.IgnorePreflightErrors),
		Timeouts:                limits(d.init.Timeouts),
		Paths:                   paths(d.cluster, flags),
	}
	if d.init.Patches != nil {
		n.PatchesDir = d.init.Patches.Directory
	}
	if err := d.addSecrets(n, opts); err != nil {
		return nil, err
	}
	return n, nil
}

// addSecrets gives n its bootstrap tokens and its certificate key, and generates those that the user left open.
func (d *documents) addSecrets(n *Node, opts Options) error {
	var err error
	if n.BootstrapTokens, err = tokens(d.init.BootstrapTokens, opts); err != nil {
		return err
	}
	n.CertificateKey = NewSecret(d.init.CertificateKey)
	if !n.UploadCerts || !n.CertificateKey.IsZero() || opts.NewCertificateKey == nil {
		return nil
	}
	key, err := opts.NewCertificateKey()
	n.CertificateKey = NewSecret(key)
	return errors.Wrap(err, "generating a certificate key")
}

func paths(c *ClusterConfiguration, flags *Flags) Paths {
	p := Paths{
		Kubernetes:      DefaultKubernetesDir,
		Manifests:       path.Join(DefaultKubernetesDir, "manifests"),
		PKI:             c.CertificatesDir,
		Kubeconfigs:     DefaultKubernetesDir,
		Kubelet:         DefaultKubeletDir,
		AdminKubeconfig: DefaultAdminKubeconfig,
	}
	if flags.given("kubeconfig-dir") && flags.KubeconfigDir != "" { // or keys would go to where the command is called
		p.Kubeconfigs = flags.KubeconfigDir
	}
	if flags.given("kubeconfig") {
		p.AdminKubeconfig = flags.Kubeconfig
	}
	return p
}

// tokens turns the configured tokens into those of a Node and makes the ones
// that the user left to chance.
func tokens(list []BootstrapToken, opts Options) ([]Token, error) {
	out := make([]Token, 0, len(list))
	for _, t := range list {
		token := Token{Description: t.Description, Usages: t.Usages, Groups: t.Groups}
		if t.TTL != nil {
			token.TTL = t.TTL.Duration
		}
		if t.Expires != nil {
			token.Expires = t.Expires.Time
		}
		id, secret, _ := strings.Cut(t.Token, ".")
		if t.Token == "" {
			token.Description = cmp.Or(token.Description, defaultTokenDescription)
			var err error
			if id, secret, err = opts.NewToken(); err != nil {
				return nil, errors.Wrap(err, "generating a bootstrap token")
			}
			token.Generated = true
		}
		token.ID, token.Secret = id, NewSecret(secret)
		out = append(out, token)
	}
	return out, nil
}

// lowered returns the list in lower case, each value once.
func lowered(list []string) []string {
	var out []string
	seen := make(map[string]bool)
	for _, s := range list {
		if s = strings.ToLower(strings.TrimSpace(s)); s != "" && !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
