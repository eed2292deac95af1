// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const kubeletConf, kubeletPEM = "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki/kubelet-client-current.pem"

// running adds a control plane's static Pods, and a kubelet with a certificate of its own.
func (c *controlPlane) running(t *testing.T) {
	t.Helper()
	for name, pod := range map[string]manifests.Object{
		manifests.APIServerName:         manifests.APIServer(c.Config, manifests.HostView{}),
		manifests.ControllerManagerName: manifests.ControllerManager(c.Config, manifests.HostView{}),
		manifests.EtcdName:              manifests.Etcd(c.Config, manifests.HostView{}, nil),
	} {
		data, err := manifests.Encode(pod)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, c.root, "/etc/kubernetes/manifests/"+name+".yaml", string(data))
	}
	ca, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	leaf := fixture.Signed(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "system:node:cp-1", time.Now().Add(time.Hour))
	fixture.Put(t, c.root, kubeletPEM, string(certs.EncodeCerts(leaf.Cert)))
	data, _, err := kubeconfig.RotatableKubelet(c.get(t, kubeletConf), kubeletPEM)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, c.root, kubeletConf, string(data))
}

// replace replaces a CA with a list that also makes from the old CA and a new one. The first signs.
func (c *controlPlane) replace(t *testing.T, name string, also func(old, next certs.Pair) []certs.Pair) {
	t.Helper()
	row, _ := certs.Find(c.Config, name)
	old, err := c.CA(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certs.NewCA(row, c.Config, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	list := also(old, certs.Pair{Cert: cert, Key: key})
	for _, ca := range list {
		data = append(data, certs.EncodeCerts(ca.Cert)...)
	}
	files := c.Files(row)
	encoded, err := certs.EncodeKey(list[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, c.root, files[0], string(data))
	fixture.Put(t, c.root, files[1], string(encoded))
}

// edit changes a file. If it's a static Pod, its component starts again.
func edit(path, from, to string) func(t *testing.T, c *controlPlane) {
	return func(t *testing.T, c *controlPlane) {
		t.Helper()
		text := string(c.get(t, path))
		if !strings.Contains(text, from) {
			t.Fatalf("no %q in\n%s", from, text)
		}
		fixture.Put(t, c.root, path, strings.ReplaceAll(text, from, to))
	}
}

func gone(path string) func(t *testing.T, c *controlPlane) {
	return func(t *testing.T, c *controlPlane) { t.Helper(); c.remove(t, path) }
}

func put(path, text string) func(t *testing.T, c *controlPlane) {
	return func(t *testing.T, c *controlPlane) { t.Helper(); fixture.Put(t, c.root, path, text) }
}

func replace(name string, also func(old, next certs.Pair) []certs.Pair) func(t *testing.T, c *controlPlane) {
	return func(t *testing.T, c *controlPlane) { t.Helper(); c.replace(t, name, also) }
}

// serving writes a serving certificate for the kubelet.
func serving(path string) func(t *testing.T, c *controlPlane) {
	return func(t *testing.T, c *controlPlane) {
		t.Helper()
		ca, err := c.CA(certs.CA)
		if err != nil {
			t.Fatal(err)
		}
		leaf := fixture.Signed(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "system:node:cp-1", time.Now().Add(time.Hour))
		fixture.Put(t, c.root, path, string(certs.EncodeCerts(leaf.Cert)))
	}
}

func all(steps ...func(t *testing.T, c *controlPlane)) func(t *testing.T, c *controlPlane) {
	return func(t *testing.T, c *controlPlane) {
		t.Helper()
		for _, step := range steps {
			step(t, c)
		}
	}
}

func alone(_, next certs.Pair) []certs.Pair       { return []certs.Pair{next} }
func nextFirst(old, next certs.Pair) []certs.Pair { return []certs.Pair{next, old} }
func oldFirst(old, next certs.Pair) []certs.Pair  { return []certs.Pair{old, next} }

const (
	apiServerYAML = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	managerYAML   = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
	etcdYAML      = "/etc/kubernetes/manifests/etcd.yaml"
	ofCA          = "/etc/kubernetes/pki/ca.crt\n"
	ofEtcdCA      = "/etc/kubernetes/pki/etcd/ca.crt\n"
	signingFile   = "--cluster-signing-cert-file"
	servingPEM    = "/var/lib/kubelet/pki/kubelet-server-current.pem"
)

// checks makes the API server check the kubelet's serving certificate.
var checks = edit(apiServerYAML, "--client-ca-file="+ofCA, "--client-ca-file="+ofCA+"    - --kubelet-certificate-authority="+ofCA)

// several gives the controller manager a file with two CAs to sign with.
var several = all(edit(managerYAML, "--cluster-signing-cert-file="+ofCA, "--cluster-signing-cert-file=/etc/kubernetes/pki/both.crt\n"),
	replace(certs.CA, oldFirst), func(t *testing.T, c *controlPlane) {
		t.Helper()
		fixture.Put(t, c.root, pkiDir+"both.crt", string(c.get(t, pkiDir+"ca.crt")))
	})

// signsApart gives the controller manager a file with two CAs for only one of its signers.
func signsApart(signer string) func(t *testing.T, c *controlPlane) {
	return all(edit(managerYAML, signingFile+"="+ofCA, "--cluster-signing-"+signer+"-cert-file="+ofCA), replace(certs.CA, oldFirst))
}

// twoMembers makes etcd a member that joined another.
var twoMembers = edit(etcdYAML, "--initial-cluster=", "--initial-cluster=cp-0=https://192.0.2.10:2380,")

// etcdSince sets etcd's start, relative to now.
func etcdSince(start time.Duration) func(t *testing.T, c *controlPlane) {
	return func(_ *testing.T, c *controlPlane) { c.host.Runs(time.Now().Add(start), manifests.EtcdName) }
}

// expired lets the certificates of etcd and its clients expire.
func expired(t *testing.T, c *controlPlane) {
	t.Helper()
	ca, err := c.CA(certs.EtcdCA)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range certs.Specs(c.Config) {
		if row.CA == certs.EtcdCA {
			leaf := fixture.Signed(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, row.Name, time.Now().Add(-time.Minute))
			fixture.Put(t, c.root, c.Files(row)[0], string(certs.EncodeCerts(leaf.Cert)))
		}
	}
}

// signedAgain gives etcd's CA a new certificate for the same key, valid from now on.
func signedAgain(t *testing.T, c *controlPlane) {
	t.Helper()
	row, _ := certs.Find(c.Config, certs.EtcdCA)
	ca, err := c.CA(certs.EtcdCA)
	if err != nil {
		t.Fatal(err)
	}
	next := *ca.Cert
	next.NotBefore = time.Now().Add(-time.Second)
	der, err := x509.CreateCertificate(rand.Reader, &next, &next, ca.Key.Public(), ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, c.root, c.Files(row)[0], string(certs.EncodeCerts(cert)))
}

// TestCheckTrust: the check finds certificates that would be refused after a renewal, whichever side is left behind.
func TestCheckTrust(t *testing.T) {
	for name, tt := range map[string]struct {
		renew string // empty for all
		make  func(t *testing.T, c *controlPlane)
		want  string // in the error; empty for none
		warns string // in warnings; empty for none
	}{
		"as it was":               {"", all(), "", ""},
		"the CA is another":       {"", replace(certs.CA, alone), kubeletPEM + " | ca.crt | kubelet.conf:", ""},
		"both, the next signs":    {"", replace(certs.CA, nextFirst), "", ""},
		"both, the old one signs": {"", replace(certs.CA, oldFirst), "", ""},
		"etcd's CA is another":    {"", all(twoMembers, replace(certs.EtcdCA, alone)), "etcd/peer.crt | etcd/ca.crt", ""}, // other members have the former one
		"etcd's, for a member":    {"etcd-peer", all(twoMembers, replace(certs.EtcdCA, alone)), "etcd/peer.crt | etcd/ca.crt", "etcd/server.crt"},
		"etcd's, alone":           {"", replace(certs.EtcdCA, alone), "", "Not checked | other members | etcd/peer.crt | etcd/ca.crt"},
		"etcd's, all has expired": {"", all(twoMembers, expired, replace(certs.EtcdCA, alone)), "", ""},
		"etcd's, signed again":    {"", all(twoMembers, expired, signedAgain), "", ""},
		"etcd's, a client again":  {"apiserver-etcd-client", all(twoMembers, expired, signedAgain), "", ""},
		"etcd's, both, read":      {"", all(replace(certs.EtcdCA, nextFirst), etcdSince(time.Hour)), "", ""},
		"etcd's, both, unread": {"", all(replace(certs.EtcdCA, nextFirst), etcdSince(-time.Hour)),
			"apiserver-etcd-client.crt | etcd/healthcheck-client.crt | etcd/ca.crt", ""},
		"etcd's, alone, unread":        {"", all(replace(certs.EtcdCA, alone), etcdSince(-time.Hour)), "apiserver-etcd-client.crt | etcd/ca.crt", "Not checked"},
		"etcd's, both, unread, stays":  {"", all(replace(certs.EtcdCA, oldFirst), etcdSince(-time.Hour)), "", ""},
		"etcd's, unread, for others":   {"scheduler.conf", all(replace(certs.EtcdCA, nextFirst), etcdSince(-time.Hour)), "", ""},
		"etcd's, unread, for peers":    {"etcd-peer", all(twoMembers, replace(certs.EtcdCA, nextFirst), etcdSince(-time.Hour)), "etcd/peer.crt | etcd/ca.crt", ""},
		"etcd's, unread, for no peers": {"etcd-peer", all(replace(certs.EtcdCA, nextFirst), etcdSince(-time.Hour)), "", ""},
		"another, for one alone":       {"scheduler.conf", replace(certs.CA, alone), "scheduler.conf | pki/apiserver.crt", "kubelet.conf"},
		"etcd's, for a client":         {"apiserver-etcd-client", all(replace(certs.EtcdCA, nextFirst), etcdSince(time.Hour)), "", ""},
		"etcd's, unread, for one":      {"apiserver-etcd-client", all(replace(certs.EtcdCA, nextFirst), etcdSince(-time.Hour)), "apiserver-etcd-client.crt | etcd/ca.crt", ""},
		"the front proxy's":            {"front-proxy-client", replace(certs.FrontProxyCA, alone), "", ""},
		"not what this is about":       {"etcd-peer", replace(certs.CA, alone), "", kubeletPEM + " | ca.crt"},
		"both, for one alone":          {"scheduler.conf", replace(certs.CA, nextFirst), "", ""},
		"both, for their user":         {"controller-manager.conf", replace(certs.CA, oldFirst), "", ""},
		"both, in another file":        {"", several, "kube-controller-manager | pki/both.crt | cluster-signing-cert-file", ""},
		"both, but it runs on":         {"scheduler.conf", several, "", "kube-controller-manager | pki/both.crt | cluster-signing-cert-file"},
		// The controller manager doesn't start with several CAs, however its flag names the file.
		"both, mounted elsewhere": {"", all(edit(managerYAML, "mountPath: /etc/kubernetes/pki\n", "mountPath: /pki\n"), edit(managerYAML, "=/etc/kubernetes/pki/", "=/pki/"),
			replace(certs.CA, oldFirst)), "kube-controller-manager | pki/ca.crt | cluster-signing-cert-file", ""},
		"both, from elsewhere": {"", all(edit(managerYAML, "path: /etc/kubernetes/pki\n", "path: /srv/pki\n"), replace(certs.CA, oldFirst),
			func(t *testing.T, c *controlPlane) {
				t.Helper()
				fixture.Put(t, c.root, "/srv/pki/ca.crt", string(c.get(t, pkiDir+"ca.crt")))
			}),
			"kube-controller-manager | /srv/pki/ca.crt | cluster-signing-cert-file", ""},
		"both, in two words": {"", all(edit(managerYAML, signingFile+"="+ofCA, signingFile+"\n    - "+ofCA), replace(certs.CA, oldFirst)),
			"kube-controller-manager | pki/ca.crt | cluster-signing-cert-file", ""},
		"both, in quotes": {"", all(edit(managerYAML, signingFile+"="+ofCA, "\""+signingFile+"=/etc/kubernetes/pki/ca.crt\"\n"), replace(certs.CA, oldFirst)),
			"kube-controller-manager | pki/ca.crt | cluster-signing-cert-file", ""},
		"both, for clients":       {"", signsApart("kubelet-client"), "kube-controller-manager | pki/ca.crt | cluster-signing-kubelet-client-cert-file", ""},
		"both, for servers":       {"", signsApart("kubelet-serving"), "kube-controller-manager | pki/ca.crt | cluster-signing-kubelet-serving-cert-file", ""},
		"both, for users":         {"", signsApart("kube-apiserver-client"), "kube-controller-manager | pki/ca.crt | cluster-signing-kube-apiserver-client-cert-file", ""},
		"both, for the unknown":   {"", signsApart("legacy-unknown"), "kube-controller-manager | pki/ca.crt | cluster-signing-legacy-unknown-cert-file", ""},
		"a load balancer between": {"", edit(adminConf, "192.0.2.11:6443", "lb.example:443"), "", ""},
		"an expired kubelet": {"", func(t *testing.T, c *controlPlane) {
			t.Helper()
			gone := fixture.Signed(t, fixture.Pair{}, "system:node:cp-1", time.Now().Add(-time.Minute))
			fixture.Put(t, c.root, kubeletPEM, string(certs.EncodeCerts(gone.Cert)))
		}, "", ""},
		"an empty certificate":     {"", put(kubeletPEM, ""), "", "Not checked | " + kubeletPEM},
		"a token":                  {"", token(adminConf), "", ""},
		"a token, for another":     {"apiserver", token(adminConf), "", ""},
		"a broken file":            {"admin.conf", put(adminConf, "{}"), adminConf, ""},
		"a broken file, besides":   {"apiserver", put(adminConf, "{}"), "", "Not checked | admin.conf"},
		"no kubelet's certificate": {"", func(t *testing.T, c *controlPlane) { t.Helper(); c.remove(t, kubeletPEM) }, "", "Not checked | " + kubeletPEM},

		// It was so before, and stays so.
		"the API server has others": {"", edit(apiServerYAML, "--client-ca-file="+ofCA, "--client-ca-file="+ofEtcdCA), "", kubeletPEM + " | etcd/ca.crt | cluster-signing-cert-file | admin.conf"},
		"so has the kubelet":        {"", put("/var/lib/kubelet/config.yaml", "authentication: {x509: {clientCAFile: /etc/kubernetes/pki/etcd/ca.crt}}\n"), "", "apiserver-kubelet-client.crt | etcd/ca.crt"},
		"by a flag":                 {"", put("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--client-ca-file=/etc/kubernetes/pki/etcd/ca.crt\n"), "", "apiserver-kubelet-client.crt | etcd/ca.crt"},
		"by a flag of many":         {"", put("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--client-ca-file=$CA\n"), "", "Not checked | --client-ca-file"},
		"by a drop-in": {"", all(put("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--config-dir=/etc/kubelet.d\"\n"),
			put("/etc/kubelet.d/10-ca.conf", "authentication: {x509: {clientCAFile: /etc/kubernetes/pki/etcd/ca.crt}}\n")), "", "apiserver-kubelet-client.crt | etcd/ca.crt"},
		"the kubelet signs itself": {"", all(checks, func(t *testing.T, c *controlPlane) {
			t.Helper()
			self := fixture.Signed(t, fixture.Pair{}, "cp-1-ca", time.Now().Add(time.Hour))
			fixture.Put(t, c.root, "/var/lib/kubelet/pki/kubelet.crt", string(certs.EncodeCerts(self.Cert)))
		}), "", "kubelet.crt | pki/ca.crt"},

		// The kubelet serves according to its flags.
		"it rotates": {"", all(checks, serving(servingPEM), put("/etc/systemd/system/kubelet.service.d/20.conf", "[Service]\nEnvironment=A=--rotate-server-certificates\n"),
			replace(certs.CA, alone)), servingPEM + " | pki/ca.crt", ""},
		"it has a file": {"", all(checks, serving("/etc/kubelet.crt"), put("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--tls-cert-file=/etc/kubelet.crt\"\n"),
			replace(certs.CA, alone)), "/etc/kubelet.crt | pki/ca.crt", ""},
		"it has none": {"", checks, "", "Not checked | /var/lib/kubelet/pki/kubelet.crt"},

		// Paths in containers aren't the host's.
		"mounted elsewhere": {"", all(edit(apiServerYAML, "mountPath: /etc/kubernetes/pki\n", "mountPath: /pki\n"), edit(apiServerYAML, "=/etc/kubernetes/pki/", "=/pki/"),
			replace(certs.CA, alone)), kubeletPEM + " | " + pkiDir + "ca.crt", ""},
		"in the image":         {"", edit(apiServerYAML, "--client-ca-file="+ofCA, "--client-ca-file=/image/ca.crt\n"), "", "Not checked | /image/ca.crt | admin.conf"},
		"a missing file":       {"", edit(apiServerYAML, "--client-ca-file="+ofCA, "--client-ca-file=/etc/kubernetes/pki/none.crt\n"), "", "Not checked | pki/none.crt"},
		"a broken manifest":    {"", put(apiServerYAML, "{"), "", "Not checked | " + apiServerYAML},
		"a stopped API server": {"", all(gone(apiServerYAML), replace(certs.CA, nextFirst)), "", "Not checked | " + apiServerYAML},
		"a stopped manager":    {"", gone(managerYAML), "", "Not checked | " + managerYAML},
		"a stopped etcd":       {"", gone(etcdYAML), "", "Not checked | " + etcdYAML},
		"an external etcd": {"", all(gone(etcdYAML), func(t *testing.T, c *controlPlane) {
			t.Helper()
			c.Config.Cluster.Etcd.External = &config.ExternalEtcd{}
		}), "", ""},
		"a copy of the files": {"", all(gone(apiServerYAML), gone(managerYAML), gone(etcdYAML), gone(kubeletConf)), "", ""},
		"two words":           {"", edit(apiServerYAML, "--client-ca-file="+ofCA, "--client-ca-file\n    - "+ofEtcdCA), "", kubeletPEM + " | etcd/ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControlPlane(t)
			c.running(t)
			tt.make(t, c)
			c.said.Reset()
			err := Renewal{Store: c.Store, Name: tt.renew}.CheckTrust()
			if tt.want == "" && err != nil || tt.want != "" && err == nil {
				t.Errorf("error %v", err)
			}
			if tt.want != "" {
				fact.Error(t, err, fact.Of(tt.want)...)
			}
			fact.In(t, c.said.String(), fact.Of(tt.warns)...)
			if tt.warns == "" {
				fact.NotIn(t, c.said.String(), "WARNING")
			}
		})
	}
}

// TestCheckTrustOfUnknownEtcd: if the configuration isn't known, etcd's certificate decides whether this host should have etcd.
func TestCheckTrustOfUnknownEtcd(t *testing.T) {
	c := newControlPlane(t)
	c.running(t)
	c.remove(t, etcdYAML)
	r := Renewal{Store: c.Store, FromOldCertificates: true}
	for _, local := range []bool{true, false} {
		c.said.Reset()
		if err := r.CheckTrust(); err != nil {
			t.Error(err)
		}
		if strings.Contains(c.said.String(), etcdYAML) != local {
			t.Errorf("with etcd's certificate %t: %s", local, c.said.String())
		}
		if local {
			c.remove(t, pkiDir+"etcd/server.crt")
		}
	}
}

// token gives a kubeconfig file's user a token in place of a certificate.
func token(path string) func(t *testing.T, c *controlPlane) {
	return func(t *testing.T, c *controlPlane) {
		t.Helper()
		var kept []string
		for line := range strings.Lines(string(c.get(t, path))) {
			line = strings.Replace(line, "client-certificate-data: ", "token: x # ", 1)
			if !strings.Contains(line, "client-key-data") {
				kept = append(kept, line)
			}
		}
		fixture.Put(t, c.root, path, strings.Join(kept, ""))
	}
}

// TestCheckTrustOfUnreadCAs: a CA its reader hasn't read yet would lock out clients accepted until now; a CA it has read has
// already done so.
func TestCheckTrustOfUnreadCAs(t *testing.T) {
	c := newControlPlane(t)
	c.running(t)
	for _, signs := range []func(old, next certs.Pair) []certs.Pair{nextFirst, func(_, next certs.Pair) []certs.Pair { return []certs.Pair{next} }} {
		c.replace(t, certs.CA, signs)
		for _, row := range RenewableRows() {
			if err := (Renewal{Store: c.Store}).Renew(row.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.TrustInKubelet(); err != nil {
		t.Fatal(err)
	}
	r := Renewal{Store: c.Store}
	for i, check := range []func() error{r.CheckTrust, r.CheckTrustNow} {
		c.host.Runs(time.Time{}, manifests.APIServerName)
		fact.Error(t, check(), kubeletPEM, pkiDir+"ca.crt")
		c.said.Reset()
		c.host.Runs(time.Now().Add(time.Hour), manifests.APIServerName)
		if err := check(); err != nil {
			t.Error(err)
		}
		if i == 0 {
			fact.In(t, c.said.String(), "WARNING", kubeletPEM, pkiDir+"ca.crt")
		}
	}
}

// TestTokensStay: a kubeconfig file with other credentials than a certificate isn't renewed, and hinders nothing.
func TestTokensStay(t *testing.T) {
	c := newControlPlane(t)
	token(adminConf)(t, c)
	was := string(c.get(t, adminConf))
	if err := (Renewal{Store: c.Store}).CheckAny(); err != nil {
		t.Error(err)
	}
	for _, row := range RenewableRows() {
		if err := (Renewal{Store: c.Store}).Renew(row.Name); err != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
	}
	if string(c.get(t, adminConf)) != was {
		t.Error("admin.conf has changed")
	}
	fact.Error(t, Renewal{Store: c.Store, Name: certs.Admin}.Renew(certs.Admin), adminConf)
	if _, _, err := Expirations(c.Store); err != nil {
		t.Error(err)
	}
}

// TestCheckTrustShowsBothSides: two CAs of a cluster share a name, so their keys tell them apart.
func TestCheckTrustShowsBothSides(t *testing.T) {
	c := newControlPlane(t)
	c.running(t)
	old, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	c.replace(t, certs.CA, func(_, next certs.Pair) []certs.Pair { return []certs.Pair{next} })
	next, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	fact.Error(t, Renewal{Store: c.Store}.CheckTrust(), named("CN=kubernetes", old.Cert.SubjectKeyId), named("CN=kubernetes", next.Cert.SubjectKeyId))
}

// TestRenewalWritesCAs: renewed kubeconfig files trust all CAs in ca.crt, and the next check has nothing to say.
func TestRenewalWritesCAs(t *testing.T) {
	c := newControlPlane(t)
	c.running(t)
	c.replace(t, certs.CA, func(old, next certs.Pair) []certs.Pair { return []certs.Pair{next, old} })
	ca, err := c.CA(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range RenewableRows() {
		if err := (Renewal{Store: c.Store}).Renew(row.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.TrustInKubelet(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{adminConf, kubeletConf, "/etc/kubernetes/scheduler.conf"} {
		if _, trusted, err := kubeconfig.Server(c.get(t, path)); err != nil || !slices.EqualFunc(trusted, ca.Bundle(), (*x509.Certificate).Equal) {
			t.Errorf("%s: %d CAs, %v", path, len(trusted), err)
		}
	}
	if faults := c.Faults(); len(faults) > 0 {
		t.Errorf("faults %v", faults)
	}
	if err := (Renewal{Store: c.Store}).CheckTrustNow(); err != nil {
		t.Error(err)
	}
}
