// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

var (
	tokenPattern       = lazyregexp.New(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	tokenGroupPattern  = lazyregexp.New(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
	certificateKeyForm = lazyregexp.New(`^[0-9a-fA-F]{64}$`)
	caHashPattern      = lazyregexp.New(`^sha256:[0-9a-fA-F]{64}$`)
)

func (d *documents) checkInit(now func() time.Time) {
	c := d.init
	d.checkAdvertise(kindInit, "localAPIEndpoint.advertiseAddress", c.LocalAPIEndpoint.AdvertiseAddress, d.networks)
	d.checkFamilies(d.warnf)
	d.checkPort(kindInit, "localAPIEndpoint.bindPort", c.LocalAPIEndpoint.BindPort)
	seen := make(map[string]bool)
	for i := range c.BootstrapTokens {
		d.checkToken(fmt.Sprintf("bootstrapTokens[%d]", i), &c.BootstrapTokens[i], seen, now)
	}
	d.checkCertificateKey(kindInit, "certificateKey", c.CertificateKey)
	d.checkTimeouts(kindInit, c.Timeouts)
	d.checkSkipPhases(kindInit, "skipPhases", c.SkipPhases)
	if c.Patches != nil {
		d.checkText(kindInit, "patches.directory", c.Patches.Directory)
	}
}

// checkFamilies reports that the API server won't start because its address and the primary service network differ in IP family.
func (d *documents) checkFamilies(reportf reporter) {
	addr, err := netip.ParseAddr(d.init.LocalAPIEndpoint.AdvertiseAddress)
	primary := firstPrefix(d.cluster.Networking.ServiceSubnet)
	if err == nil && primary.IsValid() && addr.IsGlobalUnicast() && addr.Is4() != primary.Addr().Is4() {
		reportf(kindCluster, "networking.serviceSubnet", "%s is not of the same IP family as the API server's address %s; the API server starts only with an advertiseAddress of that family", primary, addr)
	}
}

// checkToken keeps the token out of its messages.
func (d *documents) checkToken(path string, t *BootstrapToken, seen map[string]bool, now func() time.Time) {
	if t.Token != "" {
		d.checkTokenForm(kindInit, path+".token", t.Token)
		id, _, _ := strings.Cut(t.Token, ".")
		if seen[id] {
			d.faultf(kindInit, path+".token", "has the same ID as another token in the list; IDs must be unique in a cluster")
		}
		seen[id] = true
	}
	if t.TTL != nil && t.Expires != nil {
		d.faultf(kindInit, path+".expires", "cannot be given together with ttl")
	}
	if t.TTL != nil && t.TTL.Duration < 0 {
		d.faultf(kindInit, path+".ttl", "%s is negative; 0s means the token never expires", t.TTL.Duration)
	}
	if t.Expires != nil && now != nil && t.Expires.Time.Before(now()) {
		d.faultf(kindInit, path+".expires", "%s is in the past", t.Expires.Format(time.RFC3339))
	}
	for i, u := range t.Usages {
		checkOneOf(d, kindInit, fmt.Sprintf("%s.usages[%d]", path, i), "unknown usage %q", u, DefaultTokenUsages()...)
	}
	for i, g := range t.Groups {
		if !tokenGroupPattern().MatchString(g) {
			d.faultf(kindInit, fmt.Sprintf("%s.groups[%d]", path, i), "%q must be system:bootstrappers: followed by characters of [a-z0-9:-], the last one a letter or digit", printable(g))
		}
	}
	if !slices.Contains(t.Usages, "authentication") && len(t.Groups) > 0 {
		d.faultf(kindInit, path+".groups", "requires the usage authentication")
	}
	d.checkText(kindInit, path+".description", t.Description)
}

func (d *documents) checkTokenForm(kind, path, token string) {
	if !tokenPattern().MatchString(token) {
		d.faultf(kind, path, "is not a bootstrap token: 6 characters, a dot and 16 characters, all of a-z and 0-9")
	}
}

func (d *documents) checkCertificateKey(kind, path, key string) {
	if key != "" && !certificateKeyForm().MatchString(key) {
		d.faultf(kind, path, "is not a certificate key, which has 64 hexadecimal digits; `slipway certs certificate-key` generates one")
	}
}

// checkRegistration checks the user's settings of the node, before defaults are applied.
func (d *documents) checkRegistration(kind string, r *NodeRegistrationOptions, opts Options) {
	const at = "nodeRegistration"
	name := strings.ToLower(strings.TrimSpace(r.Name))
	if name == "" {
		name = strings.ToLower(strings.TrimSpace(opts.Facts.Hostname))
	}
	if msg := subdomainFault(name); msg != "" {
		d.faultf(kind, at+".name", "%q %s; this is the node's name, which defaults to the hostname", printable(name), msg)
	}
	d.unnamed = opts.Placeholders && r.Name == ""
	d.checkSocket(kind, at+".criSocket", r.CRISocket, opts.Facts)
	d.checkTaints(kind, at+".taints", r.Taints)
	d.checkArgs(kind, at+".kubeletExtraArgs", r.KubeletExtraArgs)
	d.checkKubeletArgs(kind, name, r.KubeletExtraArgs, opts)
	d.checkIgnored(kind, at+".ignorePreflightErrors", r.IgnorePreflightErrors)
	d.checkPullPolicy(kind, at+".imagePullPolicy", r.ImagePullPolicy)
}

// checkSocket accepts an empty endpoint if there's at most one runtime to detect.
func (d *documents) checkSocket(kind, field, socket string, facts HostFacts) {
	rest, isUnix := strings.CutPrefix(socket, "unix://")
	switch {
	case socket == "" && len(facts.Sockets) > 1:
		d.faultf(kind, field, "is not set, and this host has several container runtimes: %s; choose one", strings.Join(facts.Sockets, ", "))
	case socket == "" || isUnix && path.IsAbs(rest) && !hasControl(rest):
	case path.IsAbs(socket) && !hasControl(socket):
		d.warnf(kind, field, "%s has no scheme; using unix://%s", socket, socket)
	default:
		d.faultf(kind, field, "%q must be a socket such as unix:///run/containerd/containerd.sock", printable(socket))
	}
}

func (d *documents) checkTaints(kind, at string, taints []corev1.Taint) {
	seen := make(map[string]bool)
	for i, t := range taints {
		p := fmt.Sprintf("%s[%d]", at, i)
		if errs := validation.IsQualifiedName(t.Key); len(errs) > 0 {
			d.faultf(kind, p+".key", "%q is not a taint key: letters, digits, -, _ and ., optionally after a DNS name and a slash", printable(t.Key))
		}
		if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
			d.faultf(kind, p+".value", "%q is not a taint value: at most 63 letters, digits, -, _ and .", printable(t.Value))
		}
		checkOneOf(d, kind, p+".effect", "%q is not a taint effect", t.Effect,
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
		if key := t.Key + ":" + string(t.Effect); seen[key] {
			d.faultf(kind, p, "has the same key and effect as another taint in the list")
		} else {
			seen[key] = true
		}
	}
}

func (d *documents) checkPullPolicy(kind, path string, policy corev1.PullPolicy) {
	if policy != "" {
		checkOneOf(d, kind, path, "%q is not an image pull policy", policy, corev1.PullIfNotPresent, corev1.PullAlways, corev1.PullNever)
	}
}

// checkOneOf reports any value but the known values; wrong is the message, with %q for the value.
func checkOneOf[T ~string](d *documents, kind, path, wrong string, value T, known ...T) {
	if slices.Contains(known, value) {
		return
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	d.faultf(kind, path, wrong+"; expected one of %s%s", printable(string(value)), strings.Join(names, ", "), didYouMean(string(value), names))
}

// checkIgnored refuses other names next to "all".
func (d *documents) checkIgnored(kind, path string, names []string) {
	low := lowered(names)
	if slices.Contains(low, "all") && len(low) > 1 {
		d.faultf(kind, path, "lists other checks besides %q; give either those or %q", "all", "all")
	}
	for i, name := range names {
		d.checkText(kind, fmt.Sprintf("%s[%d]", path, i), name)
	}
}

func (d *documents) checkSkipPhases(kind, path string, phases []string) {
	for i, p := range phases {
		if p == "" || hasControl(p) {
			d.faultf(kind, fmt.Sprintf("%s[%d]", path, i), "%q is not the name of a phase", printable(p))
		}
	}
}

func (d *documents) checkTimeouts(kind string, t *Timeouts) {
	for _, f := range timeoutFields(t, &Limits{}) {
		if (*f.value).Duration < 0 {
			d.faultf(kind, "timeouts."+f.name, "%s is negative", (*f.value).Duration)
		}
	}
}

func (d *documents) checkPositive(path string, p *metav1.Duration) {
	if p.Duration <= 0 {
		d.faultf(kindCluster, path, "%s must be positive", p.Duration)
	}
}

// checkText refuses control characters, which could forge lines in the files that contain the value.
func (d *documents) checkText(kind, path, text string) {
	if hasControl(text) {
		d.faultf(kind, path, "contains a control character")
	}
}

func (d *documents) checkAbsolute(kind, field, file string) {
	switch {
	case !path.IsAbs(file):
		d.faultf(kind, field, "%q must be an absolute path", printable(file))
	case hasControl(file):
		d.faultf(kind, field, "contains a control character")
	case path.Clean(file) == "/":
		d.faultf(kind, field, "must not be the root directory")
	}
}

// subdomainFault explains why a name isn't a DNS subdomain (RFC 1123); it's empty if the name is.
func subdomainFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > validation.DNS1123SubdomainMaxLength:
		return fmt.Sprintf("is longer than %d characters", validation.DNS1123SubdomainMaxLength)
	case len(validation.IsDNS1123Subdomain(name)) == 0:
		return ""
	case len(validation.IsDNS1123Subdomain(strings.ToLower(name))) == 0:
		return "must be lower case"
	}
	return "must consist of a-z, 0-9, - and ., and each part must begin and end with a letter or digit"
}
