// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func (d *documents) checkJoin() {
	c := d.join
	d.checkAbsolute(kindJoin, "caCertPath", c.CACertPath)
	d.checkDiscovery(&c.Discovery)
	if cp := c.ControlPlane; cp != nil {
		d.checkPort(kindJoin, "controlPlane.localAPIEndpoint.bindPort", cp.LocalAPIEndpoint.BindPort)
		d.checkCertificateKey(kindJoin, "controlPlane.certificateKey", cp.CertificateKey)
	}
	d.checkTimeouts(kindJoin, c.Timeouts)
	d.checkSkipPhases(kindJoin, "skipPhases", c.SkipPhases)
	if c.Patches != nil {
		d.checkText(kindJoin, "patches.directory", c.Patches.Directory)
	}
}

// checkDiscovery requires exactly one way of discovery, and well-formed tokens.
func (d *documents) checkDiscovery(c *Discovery) {
	switch {
	case c.BootstrapToken == nil && c.File == nil:
		d.faultf(kindJoin, "discovery", "requires bootstrapToken or file; on the command line, HOST:PORT and --token, or --discovery-file")
	case c.BootstrapToken != nil && c.File != nil:
		d.faultf(kindJoin, "discovery", "bootstrapToken and file cannot be set together")
	}
	if t := c.BootstrapToken; t != nil {
		d.checkTokenDiscovery(t)
	}
	if c.File != nil {
		d.checkFileDiscovery(c.File.KubeConfigPath)
	}
	// A copy of the discovery token has already been checked.
	if c.TLSBootstrapToken != "" && (c.BootstrapToken == nil || c.TLSBootstrapToken != c.BootstrapToken.Token) {
		d.checkTokenForm(kindJoin, "discovery.tlsBootstrapToken", c.TLSBootstrapToken)
	}
}

func (d *documents) checkTokenDiscovery(t *BootstrapTokenDiscovery) {
	const at = "discovery.bootstrapToken"
	if t.Token == "" {
		d.faultf(kindJoin, at+".token", "is missing (--token, --token-file); `slipway token create --print-join-command` on a control plane creates one")
	} else {
		d.checkTokenForm(kindJoin, at+".token", t.Token)
	}
	if t.APIServerEndpoint == "" {
		d.faultf(kindJoin, at+".apiServerEndpoint", "is missing: HOST:PORT of the cluster's API server")
	} else if msg := hostPortFault(t.APIServerEndpoint, true); msg != "" {
		d.faultf(kindJoin, at+".apiServerEndpoint", "%q %s", printable(t.APIServerEndpoint), msg)
	}
	if len(t.CACertHashes) == 0 && !t.UnsafeSkipCAVerification {
		d.faultf(kindJoin, at+".caCertHashes", "is empty, so that anyone could impersonate the cluster; set the CA's hash (--discovery-token-ca-cert-hash) or unsafeSkipCAVerification")
	}
	for i, hash := range t.CACertHashes {
		if !caHashPattern().MatchString(hash) {
			d.faultf(kindJoin, fmt.Sprintf("%s.caCertHashes[%d]", at, i), "must be sha256: followed by 64 hexadecimal digits")
		}
	}
}

// checkFileDiscovery checks the form only; the joining host checks whether the file exists.
func (d *documents) checkFileDiscovery(file string) {
	const field = "discovery.file.kubeConfigPath"
	u, err := url.Parse(file)
	switch {
	case file == "":
		d.faultf(kindJoin, field, "is missing")
	case err == nil && u.Scheme != "" && u.Scheme != "https":
		d.faultf(kindJoin, field, "must be a file or an https URL")
	case err == nil && u.Scheme == "https" && u.Host == "":
		d.faultf(kindJoin, field, "is a URL without a host")
	default:
		d.checkText(kindJoin, field, file)
	}
}

func (d *documents) checkReset() {
	c := d.reset
	d.checkAbsolute(kindReset, "certificatesDir", c.CertificatesDir)
	d.checkIgnored(kindReset, "ignorePreflightErrors", c.IgnorePreflightErrors)
	d.checkSkipPhases(kindReset, "skipPhases", c.SkipPhases)
	for i, flag := range c.UnmountFlags { // of umount2(2)
		checkOneOf(d, kindReset, fmt.Sprintf("unmountFlags[%d]", i), "%q is unknown", flag, "MNT_FORCE", "MNT_DETACH", "MNT_EXPIRE", "UMOUNT_NOFOLLOW")
	}
	d.checkTimeouts(kindReset, c.Timeouts)
}

// checkAdvertise checks an API server's address. It mustn't be within any of networks, which is empty if the document has none. In
// a stored network, it's only a warning: such clusters run for years, until a Pod or a Service gets a host's address.
func (d *documents) checkAdvertise(kind, path, text string, networks []network) {
	addr, err := netip.ParseAddr(text)
	switch {
	case text == "":
		d.faultf(kind, path, "is not set, and this host has no default route whose address could be used; set it here or with --apiserver-advertise-address")
	case err != nil && hasLeadingZero(text):
		d.faultf(kind, path, "%q has a leading zero, which some programs read as octal; remove the zero", printable(text))
	case err != nil:
		d.faultf(kind, path, "%q is not an IP address", printable(text))
	case addr.Zone() != "" || addr.Is4In6():
		d.faultf(kind, path, "%q must be a plain IPv4 or IPv6 address", printable(text))
	case addr.IsUnspecified(), addr.IsLoopback(), addr.IsMulticast(), addr.IsLinkLocalUnicast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		d.faultf(kind, path, "%s is not an address at which other hosts can reach this one", text)
	default:
		reportf := d.faultf
		if d.stored {
			reportf = d.warnf
		}
		for _, n := range networks {
			if n.prefix.Contains(addr) {
				reportf(kind, path, "%s is within %s %s; the networks of hosts, Pods and Services must not overlap", text, n.path, n.text)
			}
		}
	}
}

func (d *documents) checkPort(kind, path string, port int32) {
	if port < 1 || port > 65535 {
		d.faultf(kind, path, "%d is not a port (1 to 65535)", port)
	}
}

// hostPortFault checks HOST or HOST:PORT; needPort makes the port mandatory.
func hostPortFault(text string, needPort bool) string {
	host, port, hasPort := splitHostPort(text)
	if strings.Contains(text, "://") {
		return "must be a host and a port, without a scheme"
	}
	if strings.Contains(text, "@") {
		return "must be a host and a port, without a user"
	}
	if msg := endpointHostFault(text, host); msg != "" {
		return msg
	}
	if !hasPort {
		if needPort {
			return "has no port; expected something like 10.0.0.1:6443"
		}
		return ""
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return fmt.Sprintf("has the invalid port %q (ports are 1 to 65535)", printable(port))
	}
	return ""
}

// endpointHostFault checks the endpoint text's host. Clients put it into a URL, where brackets are for IPv6 only (RFC 3986,
// section 3.2.2); and a zone is only valid on one host.
func endpointHostFault(text, host string) string {
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && addr.Zone() != "":
		return fmt.Sprintf("has the address %q with a zone, which is only valid on this host", printable(host))
	case err == nil && addr.Is6() && text != host && !strings.HasPrefix(text, "["):
		return "needs brackets around the IPv6 address, as in [fd00::1]:6443"
	case err == nil && addr.Is4() && strings.HasPrefix(text, "["), err != nil && strings.ContainsAny(text, "[]"):
		return "has brackets, which are only for IPv6 addresses"
	case err == nil:
		return ""
	}
	if msg := subdomainFault(host); msg != "" {
		return fmt.Sprintf("has the host %q, which is neither an IP address nor a DNS name: it %s", printable(host), msg)
	}
	return ""
}

// splitHostPort splits host, host:port, IPv6, [IPv6] and [IPv6]:port. Like kubeadm, it ignores a trailing colon without a port.
func splitHostPort(text string) (host, port string, hasPort bool) {
	if _, err := netip.ParseAddr(text); err == nil {
		return text, "", false
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.HasSuffix(text, "]") {
		return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), "", false
	}
	host, port = text[:i], text[i+1:]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return host, port, port != ""
}

// sameObject checks that a patch has left a document its identity.
func sameObject(before, after []byte) error {
	type identity struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	var was, is identity
	if err := json.Unmarshal(before, &was); err != nil {
		return err
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return err
	}
	if was != is {
		return errors.New("a patch must not change apiVersion, kind, metadata.name or metadata.namespace")
	}
	return nil
}

// runnable checks that a patched workload still has containers to run.
func runnable(obj any) error {
	var spec corev1.PodSpec
	switch o := obj.(type) {
	case *corev1.Pod:
		spec = o.Spec
	case *appsv1.Deployment:
		spec = o.Spec.Template.Spec
	default:
		return nil
	}
	if len(spec.Containers) == 0 {
		return errors.New("the result has no container")
	}
	for i, c := range spec.Containers {
		if c.Name == "" || c.Image == "" {
			return errors.Errorf("container %d of the result has no name or no image", i+1)
		}
	}
	return nil
}
