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
	// Name precedes the line number in errors: the path as given by the user.
	Name string
	// Data is at most MaxSize bytes; more is a fault.
	Data []byte
}

// Options are loading's inputs besides the user's.
type Options struct {
	Facts HostFacts
	// NewToken generates a bootstrap token if the user doesn't set one.
	NewToken func() (id, secret string, err error)
	// NewCertificateKey generates 32 random bytes in hexadecimal, for an upload of certificates without a key from the user.
	NewCertificateKey func() (string, error)
	// Resolve returns the version of a label such as stable-1. It's called for labels only, not for a dry run. See ResolveLabel.
	Resolve func(ctx context.Context, label string) (string, error)
	// Now is the clock, used to refuse expired tokens. It's nil for commands that may read an old file: repeated runs of init and
	// certs renew read the file long after the tokens expired.
	Now func() time.Time
	// Placeholders continues on a host without an address to advertise, with an address reserved for documentation (RFC 5737, RFC
	// 3849). A dry run implies it.
	Placeholders bool
	// KubernetesVersion replaces a new cluster's default version, with the version of the host's bundle.
	KubernetesVersion string
	// AnyVersion accepts a cluster of any Kubernetes version, for commands that neither create nor add a node of that version.
	AnyVersion bool
	// Existing only warns about settings with which no cluster or node could start, for commands that may run on an existing
	// cluster, whose settings may have changed since.
	Existing bool
	// StartsKubelet says that such a command starts a kubelet all the same, so settings a kubelet can't have stay faults.
	StartsKubelet bool
	// Version replaces the cluster's stored version with the target of an upgrade.
	Version string
	// Experimental accepts experimental versions of kubeadm's API, for Migrate and Validate.
	Experimental bool
}

func (o Options) resolve(ctx context.Context, label string) (string, error) {
	if o.Resolve == nil {
		return "", errors.New("labels are not resolved here")
	}
	return o.Resolve(ctx, label)
}

// LoadInit returns the desired state of a first control plane from a file (nil for none), the command line and the host. The
// warnings are for the user. Invalid input is returned as Faults, all at once.
func LoadInit(ctx context.Context, src *Source, flags Flags, opts Options) (*Node, []string, error) {
	d := read(src)
	if err := d.require(src, kindInit, kindCluster); err != nil {
		return nil, nil, err
	}
	d.ensureInit()
	flags.apply(d, "init", src != nil, kindInit, kindCluster)
	d.ignore(kindJoin, kindReset, kindUpgrade)
	d.defaultPodSubnet(&flags)
	d.schedule(&flags)
	d.completeInit(ctx, opts)
	objects := d.checkManifest(&flags)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	n, err := d.node(&flags, opts)
	if err != nil {
		return nil, d.warningTexts(), err
	}
	n.NetworkAddOn.Objects = objects
	return n, d.warningTexts(), nil
}

func (d *documents) ensureInit() {
	d.init = cmp.Or(d.init, &InitConfiguration{})
	d.cluster = cmp.Or(d.cluster, &ClusterConfiguration{})
	if d.healthCheck != nil {
		d.init.Timeouts = cmp.Or(d.init.Timeouts, &Timeouts{})
		d.init.Timeouts.ControlPlaneComponentHealthCheck = cmp.Or(d.init.Timeouts.ControlPlaneComponentHealthCheck, d.healthCheck)
	}
}

// ignore warns about documents the command doesn't use.
func (d *documents) ignore(kinds ...string) {
	for _, kind := range kinds {
		if o := d.origins[kind]; o != nil && o.file != "" {
			d.warn(Fault{File: o.file, Line: o.line, Message: kind + " is ignored by this command"})
		}
	}
}

// completeInit defaults and validates init's documents. User input is checked before defaults replace it.
func (d *documents) completeInit(ctx context.Context, opts Options) {
	serial := d.init.NodeRegistration.ImagePullSerial
	d.serial = serial != nil && *serial
	d.cluster.KubernetesVersion = cmp.Or(d.cluster.KubernetesVersion, opts.KubernetesVersion)
	defaultCluster(d.cluster)
	if d.init.DryRun {
		opts.Resolve = func(context.Context, string) (string, error) {
			return "", errors.New("a dry run does not use the network")
		}
	}
	d.cluster.KubernetesVersion = d.exact(ctx, opts)
	d.checkNetworking()
	primary := firstPrefix(d.cluster.Networking.ServiceSubnet)
	d.checkRegistration(kindInit, &d.init.NodeRegistration, opts)
	defaultInit(d.init, opts.Facts, primary)
	if d.init.LocalAPIEndpoint.AdvertiseAddress == "" && (d.init.DryRun || opts.Placeholders) {
		d.placeholderAddress(primary)
	}
	d.checkInit(opts.Now)
	d.checkCluster()
	d.checkContradictions(opts.Existing)
	d.cluster.ControlPlaneEndpoint = withPort(d.cluster.ControlPlaneEndpoint, d.init.LocalAPIEndpoint.BindPort)
	d.checkComponents()
	d.completeComponents()
}

func firstPrefix(list string) netip.Prefix {
	if all := prefixes(list); len(all) > 0 {
		return all[0]
	}
	return netip.Prefix{}
}

func (d *documents) placeholderAddress(primary netip.Prefix) {
	address := "192.0.2.1"
	if primary.Addr().Is6() {
		address = "2001:db8::1"
	}
	d.init.LocalAPIEndpoint.AdvertiseAddress = address
	d.placeholder = true
	d.warnf(kindInit, "localAPIEndpoint.advertiseAddress", "this host has no default route whose address could be used; using the placeholder %s", address)
}

func (d *documents) completeComponents() {
	d.kubelet = cmp.Or(d.kubelet, &kubelet.KubeletConfiguration{})
	defaultKubelet(d.kubelet, d.cluster)
	d.kubeProxy = cmp.Or(d.kubeProxy, &kubeproxy.KubeProxyConfiguration{})
	advertise, _ := netip.ParseAddr(d.init.LocalAPIEndpoint.AdvertiseAddress)
	defaultKubeProxy(d.kubeProxy, d.cluster, advertise)
}

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
		NetworkAddOn:            flags.networkAddOn(),
		Schedulable:             flags.given("schedulable") && flags.Schedulable,
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
	if flags.given("kubeconfig-dir") && flags.KubeconfigDir != "" { // or keys would go to the working directory
		p.Kubeconfigs = flags.KubeconfigDir
	}
	if flags.given("kubeconfig") {
		p.AdminKubeconfig = flags.Kubeconfig
	}
	return p
}

// tokens converts the configured tokens to a Node's, and generates missing values.
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
