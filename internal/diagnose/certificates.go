// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// The causes that a certificate's problem belongs to, by name.
const (
	wrongFile   = "certificate" // missing, unreadable, expired, for another key or name
	notYetValid = "clock"       // or this host's clock is behind
	otherCA     = "ca-mismatch"
)

// pairFlags lists the flags with static Pods' certificates and keys, and with the CA on their own or the other side. The kubelet's is
// in the target.
var pairFlags = []struct{ pod, cert, key, caPod, ca string }{
	{apiServerPod, "tls-cert-file", "tls-private-key-file", apiServerPod, ""}, // checkKubeconfig has the CAs of its clients
	{apiServerPod, "kubelet-client-certificate", "kubelet-client-key", kubeletName, ""},
	{apiServerPod, "proxy-client-cert-file", "proxy-client-key-file", apiServerPod, "requestheader-client-ca-file"},
	{apiServerPod, "etcd-certfile", "etcd-keyfile", apiServerPod, "etcd-cafile"},
	{apiServerPod, "etcd-certfile", "etcd-keyfile", etcdPod, "trusted-ca-file"},
	{etcdPod, "cert-file", "key-file", etcdPod, "trusted-ca-file"},
	{etcdPod, "cert-file", "key-file", apiServerPod, "etcd-cafile"},
	{etcdPod, "peer-cert-file", "peer-key-file", etcdPod, "peer-trusted-ca-file"},
}

// certificateFaults checks the files named in static Pods and kubeconfigs, once per look. The evidence is the file, the subject the
// component that uses it.
func (o *observation) certificateFaults() []symptom {
	if o.checked {
		return o.faults
	}
	o.checked = true
	for _, row := range pairFlags {
		p, ca, accepts := o.pod(row.pod), o.pod(row.caPod), o.t.ClientCA
		if p == nil || ca == nil && row.caPod != kubeletName {
			continue
		}
		if ca != nil {
			accepts = ca.file(row.ca)
		}
		if row.ca == "etcd-cafile" && o.pod(etcdPod) == nil { // an etcd elsewhere may accept another CA than its servers' own
			o.readCredential(row.pod, accepts)
			accepts = ""
		}
		o.checkPair(row.pod, p.file(row.cert), p.file(row.key), accepts)
	}
	o.checkServerNames()
	for _, name := range kubeconfigs() {
		o.checkKubeconfig(filepath.Join(o.t.Kubeconfigs, name))
	}
	return o.faults
}

func (o *observation) fault(cause, subject, path, format string, args ...any) *symptom {
	f := fault.Finding{Name: cause, Subject: subject, Message: fmt.Sprintf(format, args...), Evidence: []string{path}}
	i := slices.IndexFunc(o.faults, func(g symptom) bool { return g.Name == cause && g.Subject == subject && g.Message == f.Message })
	if i < 0 {
		i, o.faults = len(o.faults), append(o.faults, symptom{Finding: f})
	}
	return &o.faults[i]
}

// checkPair skips files without a path on this host.
func (o *observation) checkPair(subject, certPath, keyPath, caPath string) {
	cert, key := o.readCredential(subject, certPath), o.readCredential(subject, keyPath)
	if cert == nil || key == nil && keyPath != "" {
		return
	}
	chain, err := certs.ParseChain(cert)
	if err != nil {
		o.fault(wrongFile, subject, certPath, "%s: %v", certPath, err)
		return
	}
	if keyPath != "" {
		signer, err := certs.ParseKey(key)
		if err != nil {
			o.fault(wrongFile, subject, keyPath, "%s: %v", keyPath, err)
			return
		}
		if !certs.SameKey(chain[0].PublicKey, signer.Public()) {
			o.fault(wrongFile, subject, certPath, "%s does not match the key %s", certPath, keyPath)
		}
	}
	o.checkTime(subject, certPath, chain[0])
	o.checkIssuer(subject, certPath, chain, caPath)
}

// readCredential reads a file and records a fault if it can't. Without a path there's no file.
func (o *observation) readCredential(subject, path string) []byte {
	if path == "" {
		return nil
	}
	data, err := o.h.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		o.fault(wrongFile, subject, path, "%s does not exist", path)
	case err != nil && !errors.Is(err, fs.ErrPermission):
		o.fault(wrongFile, subject, path, "cannot read %s: %v", path, err)
	}
	if err != nil {
		return nil
	}
	return data
}

func (o *observation) checkTime(subject, path string, leaf *x509.Certificate) {
	now := o.h.Now()
	if now.After(leaf.NotAfter) {
		o.fault(wrongFile, subject, path, "%s expired at %s", path, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if now.Before(leaf.NotBefore) {
		f := o.fault(notYetValid, subject, path, "%s is only valid from %s, but this host's clock shows %s",
			path, leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		if leaf.NotBefore.Sub(now) < clockApart {
			f.minDuration = never
		}
	}
}

func (o *observation) checkIssuer(subject, path string, chain []*x509.Certificate, caPath string) {
	if caPath == "" {
		return
	}
	data, err := o.h.ReadFile(caPath)
	if errors.Is(err, fs.ErrNotExist) {
		o.fault(wrongFile, subject, caPath, "%s does not exist", caPath)
	}
	if err != nil {
		return
	}
	trusted, err := certs.ParseCerts(data)
	if err != nil {
		o.fault(wrongFile, subject, caPath, "%s: %v", caPath, err)
		return
	}
	if !leadsTo(chain, trusted) {
		o.fault(otherCA, subject, path, "%s (issued by %q) is not signed by a CA in %s (%q)",
			path, chain[0].Issuer.String(), caPath, trusted[0].Subject.String())
	}
}

// leadsTo reports whether a trusted CA signed a certificate, directly or through its chain.
func leadsTo(chain, trusted []*x509.Certificate) bool {
	for i, cert := range chain {
		if i > 0 && chain[i-1].CheckSignatureFrom(cert) != nil {
			return false
		}
		for _, ca := range trusted {
			if cert.CheckSignatureFrom(ca) == nil {
				return true
			}
		}
	}
	return false
}

// checkServerNames checks that the API server's certificate covers the address that other components use.
func (o *observation) checkServerNames() {
	p := o.pod(apiServerPod)
	if p == nil || p.args["advertise-address"] == "" || p.file("tls-cert-file") == "" {
		return
	}
	path := p.file("tls-cert-file")
	data, err := o.h.ReadFile(path)
	if err != nil {
		return
	}
	leaf, err := certs.FirstCert(data)
	if err == nil && leaf.VerifyHostname(p.args["advertise-address"]) != nil {
		o.fault(wrongFile, apiServerPod, path, "%s is not valid for %s, the address of this API server", path, p.args["advertise-address"])
	}
}

// checkKubeconfig checks a kubeconfig's credentials, and the CA it trusts, against the API server on this host.
func (o *observation) checkKubeconfig(path string) {
	data, err := o.h.ReadFile(path)
	if err != nil {
		return
	}
	subject := filepath.Base(path)
	trusted, err := o.trustedBy(path, data)
	if err != nil {
		o.fault(wrongFile, subject, path, "%s: %v", path, err)
		return
	}
	cert, file, err := kubeconfig.ClientCertificate(data)
	if err != nil {
		return // a token, or something else that doesn't expire
	}
	where := path
	if file != "" {
		if o.joining(path) {
			return
		}
		where = kubeconfig.Resolve(path, file)
		if cert = o.readCredential(subject, where); cert == nil {
			return
		}
	}
	chain, err := certs.ParseChain(cert)
	if err != nil {
		o.fault(wrongFile, subject, where, "%s: %v", where, err)
		return
	}
	o.checkTime(subject, where, chain[0])
	if p := o.pod(apiServerPod); p != nil {
		o.checkIssuer(subject, where, chain, p.file("client-ca-file"))
		if o.servedHere(data, trusted) {
			o.checkServed(subject, path, trusted, p.file("tls-cert-file"))
		}
	}
}

// trustedBy returns the CAs that a kubeconfig file trusts; none if they're in a file that a component has under another path.
func (o *observation) trustedBy(path string, data []byte) ([]*x509.Certificate, error) {
	trusted, file, err := kubeconfig.CAs(data)
	if err == nil && file == "" && len(trusted) == 0 {
		err = errors.New("the kubeconfig names no CA")
	}
	if err != nil || file == "" {
		return trusted, err
	}
	file = kubeconfig.Resolve(path, file)
	if data, err = o.h.ReadFile(file); err != nil {
		return nil, nil //nolint:nilerr // perhaps it's only in the container
	}
	trusted, err = certs.ParseCerts(data)
	return trusted, errors.WithMessage(err, file)
}

// servedHere reports whether a client of these CAs gets this host's certificate: a load balancer may have its own, from another CA.
func (o *observation) servedHere(data []byte, trusted []*x509.Certificate) bool {
	if len(trusted) == 0 {
		return false
	}
	p := o.pod(apiServerPod)
	endpoint, err := kubeconfig.Endpoint(data)
	if name, _, splitErr := net.SplitHostPort(endpoint); err == nil && splitErr == nil &&
		slices.Contains([]string{p.args["advertise-address"], "127.0.0.1", "::1", "localhost"}, name) {
		return true
	}
	own, err := o.h.ReadFile(p.file("client-ca-file"))
	if err != nil {
		return false
	}
	list, err := certs.ParseCerts(own)
	return err == nil && slices.ContainsFunc(trusted, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(list, func(d *x509.Certificate) bool { return string(c.RawSubject) == string(d.RawSubject) })
	})
}

// joining reports whether the kubelet is still requesting its certificate: it writes its kubeconfig first.
func (o *observation) joining(path string) bool {
	_, err := o.h.Lstat(filepath.Join(o.t.Kubeconfigs, "bootstrap-kubelet.conf"))
	return err == nil && filepath.Base(path) == "kubelet.conf"
}

// checkServed checks that a client trusts the API server's certificate.
func (o *observation) checkServed(subject, path string, trusted []*x509.Certificate, served string) {
	if served == "" {
		return
	}
	data, err := o.h.ReadFile(served)
	if err != nil {
		return
	}
	if chain, err := certs.ParseChain(data); err == nil && !leadsTo(chain, trusted) {
		o.fault(otherCA, subject, path, "%s (issued by %q) is not signed by a CA that %s trusts (%q)",
			served, chain[0].Issuer.String(), path, trusted[0].Subject.String())
	}
}
