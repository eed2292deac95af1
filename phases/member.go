// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"crypto/x509"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/discovery"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// kubeletFile is the kubeconfig file of a kubelet that has joined.
type kubeletFile struct {
	path    string
	data    []byte
	server  string
	trusted []*x509.Certificate
}

func readKubeletFile(h host.Host, path string) (*kubeletFile, error) {
	data, err := h.ReadFile(path)
	if err != nil {
		return nil, err
	}
	server, trusted, err := kubeconfig.Server(data)
	if err != nil {
		return nil, errors.Wrap(err, path)
	}
	return &kubeletFile{path, data, server, trusted}, nil
}

// memberOf tells why this host's kubelet is not a member of n's cluster by n's
// name; nil if it is one, with a certificate that is valid now.
func memberOf(h host.Host, n *config.Node) error {
	conf, err := readKubeletFile(h, kubeletConfPath(n))
	if err != nil {
		return err
	}
	if !sharesCA(conf.trusted, n) {
		return errors.Errorf("%s is of another cluster", conf.path)
	}
	return conf.validFor(h, n.Name)
}

// validFor tells why the file does not authenticate the node called name now.
func (k *kubeletFile) validFor(h host.Host, name string) error {
	leaf, err := k.certificate(h)
	if err != nil {
		return err
	}
	return authenticates(k.path, leaf, name, h.Now())
}

// certificate is what the kubelet shows to the API server.
func (k *kubeletFile) certificate(h host.Host) (*x509.Certificate, error) {
	cert, file, err := kubeconfig.ClientCertificate(k.data)
	if err == nil && file != "" {
		cert, err = h.ReadFile(file)
	}
	if err != nil {
		return nil, errors.Wrap(err, k.path)
	}
	leaf, err := certs.FirstCert(cert)
	return leaf, errors.Wrap(err, k.path)
}

// authenticates tells why a kubelet's certificate, that of the file at path, is
// not one of the node called name, or not now.
func authenticates(path string, leaf *x509.Certificate, name string, now time.Time) error {
	switch has := nodeOf(leaf); {
	case has != name:
		return errors.Errorf("%s is of node %q, not %q", path, has, name)
	case now.After(leaf.NotAfter):
		return &expiredError{path, leaf}
	}
	return nil
}

// validClientCertificate tells what is wrong with the kubelet's certificate at
// path. node is empty where it may be of any: a flag can name the kubelet.
func validClientCertificate(env *Env, path, node string) func(data []byte) error {
	return func(data []byte) error {
		leaf, err := certs.FirstCert(data)
		if err != nil {
			return errors.Wrap(err, path)
		}
		return authenticates(path, leaf, cmp.Or(node, nodeOf(leaf)), env.Host.Now())
	}
}

// nodeOf is the name of the node that a kubelet's certificate is of:
// https://kubernetes.io/docs/reference/access-authn-authz/node/
func nodeOf(leaf *x509.Certificate) string {
	return strings.TrimPrefix(leaf.Subject.CommonName, "system:node:")
}

// expiredError is a membership that has lapsed; joining again mends it.
type expiredError struct {
	path string
	leaf *x509.Certificate
}

func (e *expiredError) Error() string {
	return e.path + ": the client certificate expired on " + e.leaf.NotAfter.UTC().Format("2006-01-02")
}

func sharesCA(list []*x509.Certificate, n *config.Node) bool {
	ours, err := certs.ParseCerts(n.Join.CA)
	return err == nil && len(shared(list, ours)) > 0
}

// membership makes the kubelet.conf of this host serve in place of a token, which
// has long expired when a member is told to join again. trusted returns those
// of its CAs that are of the cluster that self asks for. nil leaves it to the
// usual way to join.
func (d *Discovery) membership(self *config.JoinConfiguration, trusted func(*kubeletFile) []*x509.Certificate) *config.Join {
	conf, err := readKubeletFile(d.Host, filepath.Join(config.DefaultKubernetesDir, "kubelet.conf"))
	if err != nil || conf.validFor(d.Host, self.NodeRegistration.Name) != nil || !d.hasCertificates(self) {
		return nil
	}
	ca := trusted(conf)
	if len(ca) == 0 {
		return nil
	}
	d.UI.Printf("This host has joined the cluster at %s before, so its own credentials do", conf.server)
	return &config.Join{Server: conf.server, CA: d.keptCA(self.CACertPath, ca), CAPath: self.CACertPath,
		Kubeconfig: config.NewSecret(string(conf.data))}
}

// askedFor returns the CAs that fit the hashes that were given. Without a
// hash, only the address can tell that it is the same cluster.
func (d *Discovery) askedFor(t *config.BootstrapTokenDiscovery) func(*kubeletFile) []*x509.Certificate {
	return func(conf *kubeletFile) []*x509.Certificate {
		if len(t.CACertHashes) > 0 {
			return discovery.Pinned(conf.trusted, t.CACertHashes, d.Host.Now())
		}
		if u, err := url.Parse(conf.server); err != nil || u.Host != t.APIServerEndpoint {
			return nil
		}
		return conf.trusted
	}
}

// among returns the CAs that a discovery has found, too.
func among(found []*x509.Certificate) func(*kubeletFile) []*x509.Certificate {
	return func(conf *kubeletFile) []*x509.Certificate { return shared(conf.trusted, found) }
}

// readyTime is ample for an API server to say that it is ready.
const readyTime = 3 * time.Second

// reachable leads a control plane that has joined before to the cluster's other
// API servers where its own, which its kubelet talks to, does not work: as when
// its etcd has lost its data.
func (d *Discovery) reachable(ctx context.Context, join *config.Join, elsewhere string) (*config.Join, error) {
	if join.Server == elsewhere || !d.isHere(join.Server) || d.ready(ctx, join.Server, join.CA) || !d.ready(ctx, elsewhere, join.CA) {
		return join, nil
	}
	data, err := kubeconfig.AtServer([]byte(join.Kubeconfig.Reveal()), elsewhere)
	if err != nil {
		return nil, err
	}
	d.UI.Printf("The API server of this host, %s, is not ready, so %s is asked", join.Server, elsewhere)
	led := *join
	led.Server, led.Kubeconfig = elsewhere, config.NewSecret(string(data))
	return &led, nil
}

// isHere reports whether a URL leads to an address of this host.
func (d *Discovery) isHere(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return false
	}
	own, err := d.Host.Addresses()
	return err == nil && slices.Contains(own, address)
}

// ready reports whether an API server can be asked. One that tells nobody
// without credentials how it is counts as ready.
func (d *Discovery) ready(ctx context.Context, server string, ca []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	err := d.Host.Probe(ctx, host.Probe{URL: server + "/readyz", CA: ca})
	var answer *host.ProbeError
	return err == nil || errors.As(err, &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden)
}

// hasCertificates tells whether a control plane has downloaded what only a
// token may read. A worker needs none of that.
func (d *Discovery) hasCertificates(self *config.JoinConfiguration) bool {
	return self.ControlPlane == nil || IsControlPlane(d.Host)
}

// keptCA is the file of CAs as it is, if it holds a trusted one: it may have
// got others meanwhile, as when a CA is replaced.
func (d *Discovery) keptCA(path string, trusted []*x509.Certificate) []byte {
	data, err := d.Host.ReadFile(path)
	if err == nil {
		if list, err := certs.ParseCerts(data); err == nil && len(shared(list, trusted)) > 0 {
			return data
		}
	}
	return certs.EncodeCerts(trusted...)
}

// shared returns those of a that b holds, too.
func shared(a, b []*x509.Certificate) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(a), func(c *x509.Certificate) bool { return !slices.ContainsFunc(b, c.Equal) })
}
