// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// Source is a configuration file: YAML or JSON, one or more documents.
type Source struct {
	// Name precedes the line number in errors: the path as given by the user.
	Name string
	Data []byte // at most MaxSize bytes; more is a fault
}

// Options are loading's inputs besides the user's.
type Options struct {
	Facts HostFacts
	// NewToken generates a bootstrap token if the user doesn't set one.
	NewToken func() (id, secret string)
	// NewCertificateKey generates 32 random bytes in hexadecimal, for an upload of certificates without a key from the user.
	NewCertificateKey func() string
	// Resolve returns the version of a label such as stable-1. It's called for labels only, not for a dry run. See ResolveLabel.
	Resolve func(ctx context.Context, label string) (string, error)
	// Now is the clock, used to refuse expired tokens. It's nil for commands that may read an old file: repeated runs of init and
	// certs renew read the file long after the tokens expired.
	Now func() time.Time
	// Placeholders continues without an address to advertise, with one for documentation (RFC 5737, RFC 3849), as a dry run does.
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
	// Kubeconfig replaces admin.conf for a node of an existing cluster, unless it's empty.
	Kubeconfig string
	// Restored has the documents of a cluster that init restores; nil if it begins one. The user's file replaces each kind it has.
	Restored *Source
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

// LoadJoin reads, defaults and checks join's configuration, a file (nil for none) and the command line. Its errors are Faults. A
// control plane's address stays empty unless the user gives it, because its default depends on the cluster; and so does
// imagePullSerial, because only the user's counts.
func LoadJoin(src *Source, flags JoinFlags, opts Options) (*JoinConfiguration, []string, error) {
	d, err := open(src, kindJoin)
	if err != nil {
		return nil, nil, err
	}
	d.join = cmp.Or(d.join, &JoinConfiguration{})
	flags.applyJoin(d, src != nil)
	address, serial := d.join.advertised(), d.join.NodeRegistration.ImagePullSerial
	d.completeJoin(opts)
	d.join.NodeRegistration.ImagePullSerial = serial
	if cp := d.join.ControlPlane; cp != nil {
		cp.LocalAPIEndpoint.AdvertiseAddress = address
	}
	return d.join, d.warningTexts(), d.err()
}

func (c *JoinConfiguration) advertised() string {
	if c.ControlPlane == nil {
		return ""
	}
	return c.ControlPlane.LocalAPIEndpoint.AdvertiseAddress
}

func (d *documents) completeJoin(opts Options) {
	d.checkRegistration(kindJoin, &d.join.NodeRegistration, opts)
	defaultJoin(d.join, opts.Facts)
	if cp := d.join.ControlPlane; cp != nil && (cp.LocalAPIEndpoint.AdvertiseAddress != "" || !opts.Placeholders) {
		d.checkAdvertise(kindJoin, "controlPlane.localAPIEndpoint.advertiseAddress", cp.LocalAPIEndpoint.AdvertiseAddress, nil)
	}
	d.checkJoin()
}

func (f *JoinFlags) applyJoin(d *documents, withFile bool) {
	switch {
	case !withFile:
		f.warnWorker(d)
		f.chooseDiscovery(d)
	case f.Endpoint != "":
		// kubeadm ignores it, and scripts pass it.
		d.warn(Fault{Message: "the address " + printable(f.Endpoint) + " is ignored: --config says where the cluster is"})
	}
	d.apply(f.Given, f, "join", withFile, kindJoin)
}

func (f *JoinFlags) warnWorker(d *documents) {
	if f.Given.Has("control-plane") && f.ControlPlane {
		return
	}
	for _, name := range f.Given {
		row := flagOf("join", name)
		if row != nil && slices.ContainsFunc(row.fields, func(f flagField) bool { return strings.HasPrefix(f.path, joinControlPlane) }) {
			d.warn(Fault{Field: "--" + name, Message: "is ignored without --control-plane: this host joins as a worker"})
		}
	}
}

// chooseDiscovery decides on discovery by token. --token next to a discovery file, without an address, is for TLS bootstrap only.
func (f *JoinFlags) chooseDiscovery(d *documents) {
	byToken := f.Given.Has("token") || f.Given.Has("discovery-token")
	if f.Endpoint != "" || byToken && !f.Given.Has("discovery-file") {
		d.join.Discovery.BootstrapToken = &BootstrapTokenDiscovery{APIServerEndpoint: f.Endpoint}
	}
}

type Reset struct {
	// Force skips the confirmation.
	Force bool
	// CleanupTmpDir also removes upgrades' leftovers in /etc/kubernetes/tmp.
	CleanupTmpDir bool
	// Backups also removes the backups of etcd's data that upgrades and rollbacks have left.
	Backups      bool
	UnmountFlags []string // names of umount2(2) flags
	// Network also removes the leftovers of kube-proxy and the Pod network's bridge in the kernel.
	Network bool
}

// LoadReset returns the desired state for reset from a file (nil for none) and the command line. Neither contains the node's
// name, so it stays empty. Invalid input is returned as Faults.
func LoadReset(src *Source, flags ResetFlags, opts Options) (*Node, []string, error) {
	d, err := open(src, kindReset)
	if err != nil {
		return nil, nil, err
	}
	d.reset = cmp.Or(d.reset, &ResetConfiguration{})
	d.apply(flags.Given, &flags, "reset", src != nil, kindReset)
	d.completeReset(opts)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	c := d.reset
	n := &Node{Machine: *DefaultMachine()}
	n.CRISocket, n.Timeouts, n.Paths.PKI = c.CRISocket, limits(c.Timeouts), c.CertificatesDir
	n.SkipPhases, n.IgnorePreflightErrors, n.DryRun = c.SkipPhases, lowered(c.IgnorePreflightErrors), c.DryRun
	n.Reset = &Reset{
		Force: c.Force, CleanupTmpDir: c.CleanupTmpDir || flags.Host, Backups: flags.Host, // for `down --host`
		UnmountFlags: c.UnmountFlags, Network: flags.Network,
	}
	if flags.Given.Has("kubeconfig") {
		n.Paths.AdminKubeconfig = flags.Kubeconfig
	}
	return n, d.warningTexts(), nil
}

func (d *documents) completeReset(opts Options) {
	d.checkSocket(kindReset, "criSocket", d.reset.CRISocket, opts.Facts)
	defaultReset(d.reset, opts.Facts)
	d.checkReset()
}

// DefaultTokenUsages are a token's usages if none are configured.
func DefaultTokenUsages() []string { return []string{"signing", "authentication"} }

// defaultTokenGroups are granted to clients with a token if it has no groups configured.
func defaultTokenGroups() []string { return []string{defaultTokenGroup} }

// LoadTokens returns the tokens to create: a file's, from its InitConfiguration, or the command line's if src is nil. Invalid
// input is returned as Faults; no message contains a token.
func LoadTokens(src *Source, flags TokenFlags, opts Options) ([]Token, []string, error) {
	d := read(src)
	if src == nil {
		d.init = &InitConfiguration{BootstrapTokens: []BootstrapToken{{Token: flags.Token}}}
	} else if flags.Token != "" {
		d.fault(Fault{Message: "a token cannot be given together with --config; add it to the file"})
	}
	d.apply(flags.Given, &flags, "token create", src != nil, kindInit)
	if d.init == nil || len(d.init.BootstrapTokens) == 0 {
		d.fault(Fault{File: src.Name, Message: "contains no InitConfiguration with bootstrapTokens"})
	}
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	d.completeTokens(opts)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	d.nameTokens(opts)
	return tokens(d.init.BootstrapTokens, opts), d.warningTexts(), nil
}

func (d *documents) completeTokens(opts Options) {
	seen := make(map[string]bool)
	for i := range d.init.BootstrapTokens {
		t := &d.init.BootstrapTokens[i]
		signingOnly := len(t.Groups) == 0 && len(t.Usages) > 0 && !slices.Contains(t.Usages, "authentication")
		defaultToken(t)
		if signingOnly {
			t.Groups = nil // no client authenticates with it
		}
		d.checkToken(fmt.Sprintf("bootstrapTokens[%d]", i), t, seen, opts.Now)
	}
}

var tokenIDPattern = lazyregexp.New(`^[a-z0-9]{6}$`)

// TokenID returns the ID of a token, given as an ID or in full. The error doesn't quote the text, which may be a mistyped secret.
func TokenID(text string) (string, error) {
	id, _, _ := strings.Cut(text, ".")
	if tokenIDPattern().MatchString(text) || tokenPattern().MatchString(text) {
		return id, nil
	}
	return "", errors.New("is neither a token ID (6 characters of a-z and 0-9) nor a full token (ID, a dot and 16 more such characters)")
}

// CertificateKey validates a certificate key; empty text is a zero Secret. The error doesn't quote it.
func CertificateKey(text string) (Secret, error) {
	if text != "" && !certificateKeyForm().MatchString(text) {
		return Secret{}, errors.New("is not a certificate key, which has 64 hexadecimal digits; `slipway certs certificate-key` generates one")
	}
	return NewSecret(text), nil
}

// NewToken generates a bootstrap token of 110 random bits, 80 of them secret. k8s.io/cluster-bootstrap/token/util would do, but
// compiles its regular expressions on loading, which costs every start of the program 0.7 ms.
func NewToken() (id, secret string) {
	text := strings.ToLower(rand.Text()) // of a-z and 2-7
	return text[:6], text[6:22]
}

// IsToken reports whether text has the form of a bootstrap token, id.secret.
func IsToken(text string) bool { return tokenPattern().MatchString(text) }

// Part is a user's document about a stored configuration, with only the fields to change.
type Part struct {
	// Fields is the document as JSON, without apiVersion and kind. A field that is null goes back to its default.
	Fields map[string]any
	origin *origin
}

// LoadParts reads the documents that change a cluster's configuration, strictly. Their keys name the ConfigMaps that store them,
// such as ClusterSource. Invalid input is returned as Faults.
func LoadParts(src *Source) (map[string]Part, []string, error) {
	d, err := open(src, kindCluster, kindKubelet, kindKubeProxy)
	if err != nil {
		return nil, nil, err
	}
	parts := map[string]Part{}
	for source, kind := range storedKinds() {
		if o := d.origins[kind]; o != nil {
			fields, _ := o.tree.(map[string]any) // a faulty document has none
			delete(fields, "apiVersion")
			delete(fields, "kind")
			parts[source] = Part{fields, o}
		}
	}
	return parts, d.warningTexts(), d.err()
}

// Locate moves a fault to the line of its field in this part. found is false if the part doesn't have the field.
func (p Part) Locate(f Fault) (located Fault, found bool) {
	if p.origin == nil || p.origin.lineOf(f.Field) == 0 {
		return f, false
	}
	f.File, f.Line = p.origin.file, p.origin.lineOf(f.Field)
	return f, true
}
