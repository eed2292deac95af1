// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// signing begins the flags with a CA that the controller manager signs with; signers lists them all.
const signing = "cluster-signing-"

var signers = []string{
	signing + "cert-file", signing + "kubelet-client-cert-file", signing + "kubelet-serving-cert-file",
	signing + "kube-apiserver-client-cert-file", signing + "legacy-unknown-cert-file",
}

const asMember = "etcd as a member"

// sides lists the flags of static Pods with a certificate to show, and with the CAs the other side accepts.
var sides = []struct{ who, pod, cert, whom, caPod, ca string }{
	{"the API server", manifests.APIServerName, "tls-cert-file", "Pods (root-ca-file)", manifests.ControllerManagerName, "root-ca-file"},
	{"kubelets with a new certificate (cluster-signing-cert-file)", manifests.ControllerManagerName, signing + "cert-file", "the API server", manifests.APIServerName, "client-ca-file"},
	{"kubelets with a new certificate (cluster-signing-kubelet-client-cert-file)", manifests.ControllerManagerName, signing + "kubelet-client-cert-file", "the API server", manifests.APIServerName, "client-ca-file"},
	{"the API server as a client of extensions", manifests.APIServerName, "proxy-client-cert-file", "such an extension", manifests.APIServerName, "requestheader-client-ca-file"},
	{"the API server as a client of etcd", manifests.APIServerName, "etcd-certfile", "etcd", manifests.EtcdName, "trusted-ca-file"},
	{"etcd", manifests.EtcdName, "cert-file", "the API server", manifests.APIServerName, "etcd-cafile"},
	{asMember, manifests.EtcdName, "peer-cert-file", "etcd", manifests.EtcdName, "peer-trusted-ca-file"},
}

func (t *trust) components() {
	for _, s := range sides {
		shows := t.named(s.pod, s.cert, t.certificate)
		if strings.HasPrefix(s.cert, signing) {
			shows = t.signer(shows)
		}
		t.compare(pair{s.who, shows, s.whom, t.named(s.caPod, s.ca, t.authorities), s.caPod})
	}
	for _, flag := range signers {
		if signs := t.named(manifests.ControllerManagerName, flag, t.certificate); !t.managerAccepts(flag, signs) {
			t.refused(flag, signs)
		}
	}
	t.otherMembers()
	t.healthCheck()
}

// otherMembers checks etcd's other members, which can't be asked, but show certificates like this member's old ones. If those have
// expired, theirs are refused by now, too.
func (t *trust) otherMembers() {
	shows := t.named(manifests.EtcdName, "peer-cert-file", t.certificate)
	accepts := t.named(manifests.EtcdName, "peer-trusted-ca-file", t.authorities)
	now := t.r.Store.Host.Now()
	if t.asIs || len(shows.now) > 0 && now.After(shows.now[0].NotAfter) {
		return
	}
	shows.then = shows.now
	if len(shows.now) > 0 && len(accepts.now) > 0 && shows.unread+accepts.unread == "" && t.startedAlone() {
		if Verify(shows.now, accepts.now, now) != nil {
			t.unchecked("whether etcd has got other members since this one started alone, whose certificates are like " + shows.path +
				": " + accepts.path + " would not accept these")
		}
		return
	}
	t.compare(pair{"other members of etcd, whose certificates are like this one", shows, "etcd", accepts, manifests.EtcdName})
}

// startedAlone reports whether this etcd member was alone at its first start.
func (t *trust) startedAlone() bool {
	return strings.Count(t.flag(manifests.EtcdName, "initial-cluster"), "=") == 1
}

// healthCheck checks Slipway as a client of etcd.
func (t *trust) healthCheck() {
	row, known := certs.Find(t.r.Store.Config, "etcd-healthcheck-client")
	if !known {
		return
	}
	path, accepts := t.r.Store.Files(row)[0], t.named(manifests.EtcdName, "trusted-ca-file", t.authorities)
	if data, err := host.ReadIfExists(t.r.Store.Host, path); data != nil || err != nil {
		t.compare(pair{"Slipway as a client of etcd", t.certificate(path), "etcd", accepts, manifests.EtcdName})
	}
}

// managerAccepts reports whether the controller manager can start: it signs with one CA. Its restart replaces ca.crt by a file
// with only that, if the manifest names ca.crt as Slipway does.
func (t *trust) managerAccepts(flag string, signs credential) bool {
	if signs.unread != "" {
		t.unchecked("whether " + manifests.ControllerManagerName + " starts with the CA of " + flag + ": " + signs.unread)
		return true
	}
	if len(signs.now) < 2 {
		return true
	}
	data, err := host.ReadIfExists(t.r.Store.Host, t.r.Store.Config.Paths.StaticPod(manifests.ControllerManagerName))
	if err == nil {
		data, err = t.r.Store.WithSigner(data)
	}
	if err != nil {
		return false
	}
	restarted, err := manifests.DecodePod(data)
	return err == nil && manifests.FlagOf(restarted, flag) != t.flag(manifests.ControllerManagerName, flag)
}

// refused notes a file with several CAs, with which the controller manager won't start.
func (t *trust) refused(flag string, signs credential) {
	message := "kube-controller-manager does not start with several CAs in " + signs.path + " (" + flag + "): " + listed(signs.now) +
		"; it needs a file with only the CA that signs"
	conf := filepath.Join(t.r.Store.Config.Paths.Kubeconfigs, "controller-manager.conf")
	if _, renewed := t.renewed[conf]; renewed || t.asIs && t.unreadBy(manifests.ControllerManagerName, conf) { // so it restarts
		t.faults = append(t.faults, message)
	} else {
		t.warn(message, "name such a file in that flag before it restarts")
	}
}

// signer returns the CA in the controller manager's file. Renewing everything rewrites Slipway's file.
func (t *trust) signer(signs credential) credential {
	if !t.all || filepath.Base(signs.path) != manifests.SignerFile || signs.unread != "" {
		return signs
	}
	ca, err := t.r.Store.CA(certs.CA)
	if err != nil {
		signs.unread = err.Error()
		return signs
	}
	signs.then, signs.renewed = ca.Bundle(), true
	return signs
}

// kubeconfigs compares the clients in this node's kubeconfig files with its API server.
func (t *trust) kubeconfigs() {
	for _, row := range certs.Specs(t.r.Store.Config) {
		if row.Kubeconfig == "" {
			continue
		}
		path := t.r.Store.Files(row)[0]
		data, err := host.ReadIfExists(t.r.Store.Host, path)
		if err != nil {
			t.unchecked("whether " + row.Kubeconfig + " and the API server accept each other: " + err.Error())
		}
		if data != nil && err == nil {
			t.server(row, path, data)
			t.client(row, path, data)
		}
	}
}

// server checks that a client trusts this node's API server, unless it uses a load balancer with a certificate of its own.
func (t *trust) server(row certs.Spec, path string, data []byte) {
	shows := t.named(manifests.APIServerName, "tls-cert-file", t.certificate)
	if shows.path == "" {
		return
	}
	trusted := t.trustedBy(row, path, data)
	ours, _ := certs.Find(t.r.Store.Config, certs.CA)
	if !t.isHere(data) && (trusted.unread != "" || !sameNames(trusted.then, t.authorities(t.r.Store.Files(ours)[0]).now)) {
		return
	}
	t.compare(pair{"the API server", shows, row.Kubeconfig, trusted, ""})
}

// isHere reports whether a kubeconfig file leads to this host's API server.
func (t *trust) isHere(data []byte) bool {
	server, err := kubeconfig.URL(data)
	if err != nil {
		return false
	}
	u, err := url.Parse(server)
	return err == nil && slices.Contains([]string{t.flag(manifests.APIServerName, "advertise-address"), "127.0.0.1", "::1", "localhost"}, u.Hostname())
}

// client checks that the API server accepts a client's certificate. If the kubelet's has expired, it gets another.
func (t *trust) client(row certs.Spec, path string, data []byte) {
	accepts, shows := t.named(manifests.APIServerName, "client-ca-file", t.authorities), t.clientOf(row, path, data)
	if row.Name == certs.Kubelet && len(shows.now) > 0 && !t.r.Store.Host.Now().Before(shows.now[0].NotAfter) {
		return
	}
	t.compare(pair{row.Kubeconfig, shows, "the API server", accepts, manifests.APIServerName})
}

// kubelet compares the API server, as a client, with the kubelet.
func (t *trust) kubelet() {
	client := t.named(manifests.APIServerName, "kubelet-client-certificate", t.certificate)
	accepts := t.named(manifests.APIServerName, "kubelet-certificate-authority", t.authorities)
	if client.path+accepts.path == "" {
		return
	}
	h, n := t.r.Store.Host, t.r.Store.Config
	settings, err := thisnode.KubeletSettings(h, &n.Machine)
	if err != nil {
		t.unchecked("whether the kubelet and the API server accept each other: " + err.Error())
		return
	}
	for _, flag := range thisnode.ExpandedFlags(h, &n.Machine, "cert-dir", "client-ca-file", "config-dir", "rotate-server-certificates", "tls-cert-file") {
		t.unchecked("the effect of the kubelet's flag --" + flag.Name + "=" + flag.Value + ", which systemd expands")
	}
	if ca := settings.Authentication.X509.ClientCAFile; ca != "" {
		t.compare(pair{"the API server as a client of the kubelet", client, "the kubelet", t.authorities(t.ofSettings(ca)), ""})
	}
	t.compare(pair{"the kubelet", t.certificate(t.servingCertificate(settings)), "the API server", accepts, manifests.APIServerName})
}

// ofSettings returns a path from the kubelet's settings, relative to the directory of their file.
func (t *trust) ofSettings(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(t.r.Store.Config.Paths.Kubelet, path)
}

// servingCertificate returns the kubelet's serving certificate file: until the cluster signs any, the file in its settings.
func (t *trust) servingCertificate(settings *kubelet.KubeletConfiguration) string {
	rotated := thisnode.KubeletServingPEM(t.r.Store.Host, &t.r.Store.Config.Machine)
	_, err := t.r.Store.Host.Lstat(rotated)
	switch {
	case settings.ServerTLSBootstrap && (err == nil || settings.TLSCertFile == ""):
		return rotated
	case settings.TLSCertFile != "":
		return t.ofSettings(settings.TLSCertFile)
	}
	return filepath.Join(filepath.Dir(rotated), "kubelet.crt")
}

func sameNames(a, b []*x509.Certificate) bool {
	return slices.ContainsFunc(a, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(b, func(d *x509.Certificate) bool { return string(c.RawSubject) == string(d.RawSubject) })
	})
}
