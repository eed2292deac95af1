// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renewal

import (
	"crypto/x509"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// sides are the flags of static Pods with a certificate that is shown, and with the CAs that the other side accepts.
var sides = []struct{ who, pod, cert, accepts, caPod, ca string }{
	{"the API server", manifests.APIServerName, "tls-cert-file", "Pods (root-ca-file)", manifests.ControllerManagerName, "root-ca-file"},
	{"kubelets with a new certificate (cluster-signing-cert-file)", manifests.ControllerManagerName, "cluster-signing-cert-file", "the API server", manifests.APIServerName, "client-ca-file"},
	{"the API server as a client of extensions", manifests.APIServerName, "proxy-client-cert-file", "such an extension", manifests.APIServerName, "requestheader-client-ca-file"},
	{"the API server as a client of etcd", manifests.APIServerName, "etcd-certfile", "etcd", manifests.EtcdName, "trusted-ca-file"},
	{"etcd", manifests.EtcdName, "cert-file", "the API server", manifests.APIServerName, "etcd-cafile"},
	{"etcd as a member", manifests.EtcdName, "peer-cert-file", "etcd", manifests.EtcdName, "peer-trusted-ca-file"},
}

func (t *trust) components() {
	for _, s := range sides {
		cert, ca := t.flag(s.pod, s.cert), t.flag(s.caPod, s.ca)
		if cert == "" || ca == "" {
			continue
		}
		if s.cert == "cluster-signing-cert-file" && !t.oneSigner(cert) {
			continue
		}
		chain := t.certificate(cert)
		if s.cert == "cluster-signing-cert-file" {
			chain = t.signer(cert)
		}
		t.compare(shown{s.who, cert, chain, s.accepts, ca, t.authorities(ca)})
	}
	t.otherMembers()
	health, _ := certs.Find(t.r.Store.Config, "etcd-healthcheck-client")
	if ca := t.flag(manifests.EtcdName, "trusted-ca-file"); ca != "" && health.Name != "" {
		path := t.r.Store.Files(health)[0]
		t.compare(shown{"Slipway as a client of etcd", path, t.certificate(path), "etcd", ca, t.authorities(ca)})
	}
}

// otherMembers are those of etcd on other control planes, which show what this one has shown until now. They can't be asked.
func (t *trust) otherMembers() {
	cert, ca := t.flag(manifests.EtcdName, "peer-cert-file"), t.flag(manifests.EtcdName, "peer-trusted-ca-file")
	if t.asIs || t.only != nil || cert == "" || ca == "" {
		return
	}
	t.compare(shown{"other members of etcd, whose certificates are like this one", cert, t.parse(cert, certs.ParseChain), "etcd", ca, t.authorities(ca)})
}

// oneSigner reports whether the controller manager starts with the CA that signs: it takes no file with several. Its restart
// gives it one for itself in place of ca.crt.
func (t *trust) oneSigner(path string) bool {
	list := t.authorities(path)
	ours, _ := certs.Find(t.r.Store.Config, certs.CA)
	if len(list) < 2 || path == t.r.Store.Files(ours)[0] {
		return true
	}
	t.faults = append(t.faults, "kube-controller-manager does not start with several CAs in "+path+" (cluster-signing-cert-file): "+
		listed(list)+"; it needs a file with nothing but the CA that signs")
	return false
}

// signer is the CA in the controller manager's file. A renewal of all writes Slipway's file for it again.
func (t *trust) signer(path string) []*x509.Certificate {
	if t.asIs || t.r.Name != "" || filepath.Base(path) != manifests.SignerFile {
		return t.certificate(path)
	}
	ca, err := t.r.Store.CA(certs.CA)
	if err != nil {
		t.failed = append(t.failed, err)
	}
	return ca.Bundle()
}

// flag returns the value of a flag of a component on this host; empty if there is none.
func (t *trust) flag(component, name string) string {
	pod, found := thisnode.StaticPod(t.r.Store.Host, thisnode.StaticPodPath(t.r.Store.Config, component))
	if !found || len(pod.Spec.Containers) == 0 {
		return ""
	}
	value := ""
	for _, arg := range slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args) {
		if given, found := strings.CutPrefix(arg, "--"+name+"="); found {
			value = given
		}
	}
	return value
}

// kubeconfigs compares the clients of this node's kubeconfig files with its API server.
func (t *trust) kubeconfigs() {
	for _, row := range certs.Specs(t.r.Store.Config) {
		if row.Kubeconfig == "" {
			continue
		}
		path := t.r.Store.Files(row)[0]
		data, err := host.ReadIfExists(t.r.Store.Host, path)
		if err == nil && row.Renewable() {
			_, err = t.r.Store.Current(row) // its error says what to do
		}
		if err != nil {
			t.failed = append(t.failed, err)
		}
		if data == nil || err != nil {
			continue
		}
		t.server(row, path, data)
		t.client(row, path, data)
	}
}

// server checks that a client trusts this node's API server, unless it talks to another one, through a load balancer with a
// certificate of its own.
func (t *trust) server(row certs.Spec, path string, data []byte) {
	cert := t.flag(manifests.APIServerName, "tls-cert-file")
	if cert == "" {
		return
	}
	trusted, from := t.kubeconfigTrust(path, data)
	ours, _ := certs.Find(t.r.Store.Config, certs.CA)
	if !t.isHere(data) && !sameNames(trusted, t.authorities(t.r.Store.Files(ours)[0])) {
		return
	}
	t.compare(shown{"the API server", cert, t.certificate(cert), row.Kubeconfig, from, trusted})
}

// isHere reports whether a kubeconfig file leads to the API server on this host.
func (t *trust) isHere(data []byte) bool {
	server, _, err := kubeconfig.Server(data)
	if err != nil {
		return false
	}
	u, err := url.Parse(server)
	return err == nil && slices.Contains([]string{t.flag(manifests.APIServerName, "advertise-address"), "127.0.0.1", "::1", "localhost"}, u.Hostname())
}

// client checks that the API server accepts a client's certificate. The kubelet's may be in a file of its own, and it gets
// another one if it has expired.
func (t *trust) client(row certs.Spec, path string, data []byte) {
	ca := t.flag(manifests.APIServerName, "client-ca-file")
	chain := t.renewed[path].Bundle()
	if chain == nil {
		cert, file, err := kubeconfig.ClientCertificate(data)
		switch {
		case err != nil:
			return // a token, for example
		case file != "":
			path = file
			chain = t.certificate(file)
		default:
			if chain, err = certs.ParseChain(cert); err != nil {
				t.failed = append(t.failed, errors.Wrap(err, path))
			}
		}
	}
	if ca == "" || len(chain) == 0 || row.Name == certs.Kubelet && !t.r.Store.Host.Now().Before(chain[0].NotAfter) {
		return
	}
	t.compare(shown{row.Kubeconfig, path, chain, "the API server", ca, t.authorities(ca)})
}

// kubelet compares the API server with the kubelet that it is a client of.
func (t *trust) kubelet() {
	settings, err := thisnode.KubeletSettings(t.r.Store.Host, t.r.Store.Config)
	if err != nil {
		t.failed = append(t.failed, err)
		return
	}
	cert, ca := t.flag(manifests.APIServerName, "kubelet-client-certificate"), settings.Authentication.X509.ClientCAFile
	if cert != "" && ca != "" {
		t.compare(shown{"the API server as a client of the kubelet", cert, t.certificate(cert), "the kubelet", ca, t.authorities(ca)})
	}
	if ca = t.flag(manifests.APIServerName, "kubelet-certificate-authority"); ca != "" {
		cert = t.servingCertificate(settings)
		t.compare(shown{"the kubelet", cert, t.certificate(cert), "the API server", ca, t.authorities(ca)})
	}
}

// servingCertificate is the file with which the kubelet serves.
func (t *trust) servingCertificate(settings *kubelet.KubeletConfiguration) string {
	dir := filepath.Dir(thisnode.KubeletClientPEM(t.r.Store.Host, t.r.Store.Config))
	switch {
	case settings.TLSCertFile != "":
		return settings.TLSCertFile
	case settings.ServerTLSBootstrap:
		return filepath.Join(dir, "kubelet-server-current.pem")
	}
	return filepath.Join(dir, "kubelet.crt")
}

func sameNames(a, b []*x509.Certificate) bool {
	return slices.ContainsFunc(a, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(b, func(d *x509.Certificate) bool { return string(c.RawSubject) == string(d.RawSubject) })
	})
}
