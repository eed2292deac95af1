// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// LoadInit returns the desired state of a first control plane from a file (nil for none), the command line and the host. The
// warnings are for the user. Invalid input is returned as Faults, all at once.
func LoadInit(ctx context.Context, src *Source, flags InitFlags, opts Options) (*Node, []string, error) {
	d, err := open(src, kindInit, kindCluster)
	if err != nil {
		return nil, nil, err
	}
	d.addRestored(opts.Restored)
	d.ensureInit()
	d.apply(flags.Given, &flags, "init", src != nil, kindInit, kindCluster)
	d.defaultPodSubnet(&flags)
	if flags.Given.Has("profile") {
		d.applyProfile(flags.Profile)
	}
	if flags.Given.Has("schedulable") && flags.Schedulable { // ordinary Pods may use the node
		d.init.NodeRegistration.Taints = []corev1.Taint{}
	}
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

// addRestored adds the documents of a restored cluster, unless the user's file has them.
func (d *documents) addRestored(src *Source) {
	if src == nil {
		return
	}
	for _, doc := range parse(src, maxDocuments, &d.findings) {
		if kind, _ := textField(doc.root, "kind"); d.origins[kind] == nil {
			d.add(src.Name, doc)
		}
	}
}

func (d *documents) ensureInit() {
	d.init = cmp.Or(d.init, &InitConfiguration{})
	d.cluster = cmp.Or(d.cluster, &ClusterConfiguration{})
	if d.healthCheck != nil {
		d.init.Timeouts = cmp.Or(d.init.Timeouts, &Timeouts{})
		d.init.Timeouts.ControlPlaneComponentHealthCheck = cmp.Or(d.init.Timeouts.ControlPlaneComponentHealthCheck, d.healthCheck)
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
	d.cleanPaths()
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

func (d *documents) node(flags *InitFlags, opts Options) (*Node, error) {
	advertise, err := address(d.init.LocalAPIEndpoint.AdvertiseAddress)
	if err != nil {
		return nil, errors.Wrap(err, "localAPIEndpoint.advertiseAddress")
	}
	r := &d.init.NodeRegistration
	n := &Node{
		Machine:                 d.machine(flags),
		ControlPlane:            true,
		Name:                    r.Name,
		Hostname:                strings.ToLower(strings.TrimSpace(opts.Facts.Hostname)),
		Taints:                  r.Taints,
		ImagePullPolicy:         r.ImagePullPolicy,
		ImagePullSerial:         d.serial,
		AdvertiseAddress:        advertise,
		BindPort:                d.init.LocalAPIEndpoint.BindPort,
		Cluster:                 *d.cluster,
		KubeProxy:               *d.kubeProxy,
		NetworkAddOn:            flags.networkAddOn(),
		Schedulable:             flags.Given.Has("schedulable") && flags.Schedulable,
		KubeletGiven:            d.origins[kindKubelet] != nil || d.hardened,
		KubeProxyGiven:          d.origins[kindKubeProxy] != nil,
		EnableKubelet:           flags.Given.Has("enable-kubelet") && flags.EnableKubelet,
		UploadCerts:             flags.Given.Has("upload-certs") && flags.UploadCerts,
		SkipTokenPrint:          flags.Given.Has("skip-token-print") && flags.SkipTokenPrint,
		SkipCertificateKeyPrint: flags.Given.Has("skip-certificate-key-print") && flags.SkipCertificateKeyPrint,
	}
	if d.init.Patches != nil {
		n.PatchesDir = d.init.Patches.Directory
	}
	d.addSecrets(n, opts)
	return n, nil
}

func (d *documents) machine(flags *InitFlags) Machine {
	r := &d.init.NodeRegistration
	return Machine{
		CRISocket:             r.CRISocket,
		Kubelet:               *d.kubelet,
		KubeletExtraArgs:      r.KubeletExtraArgs,
		SkipPhases:            d.init.SkipPhases,
		IgnorePreflightErrors: lowered(r.IgnorePreflightErrors),
		DryRun:                d.init.DryRun,
		Timeouts:              limits(d.init.Timeouts),
		Paths:                 paths(d.cluster, flags),
	}
}

func (d *documents) addSecrets(n *Node, opts Options) {
	n.BootstrapTokens, n.CertificateKey = tokens(d.init.BootstrapTokens, opts), NewSecret(d.init.CertificateKey)
	if n.UploadCerts && n.CertificateKey.IsZero() && opts.NewCertificateKey != nil {
		n.CertificateKey = NewSecret(opts.NewCertificateKey())
	}
}

func paths(c *ClusterConfiguration, flags *InitFlags) Paths {
	p := DefaultPaths()
	p.PKI = c.CertificatesDir
	if flags.Given.Has("kubeconfig-dir") && flags.KubeconfigDir != "" { // or keys would go to the working directory
		p.Kubeconfigs = flags.KubeconfigDir
	}
	if flags.Given.Has("kubeconfig") {
		p.AdminKubeconfig = flags.Kubeconfig
	}
	return p
}

// tokens converts the configured tokens to a Node's, and generates missing values.
func tokens(list []BootstrapToken, opts Options) []Token {
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
			id, secret = opts.NewToken()
			token.Generated = true
		}
		token.ID, token.Secret = id, NewSecret(secret)
		out = append(out, token)
	}
	return out
}

func lowered(list []string) []string {
	var out []string
	for _, s := range list {
		if s = strings.ToLower(strings.TrimSpace(s)); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
