// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/discovery"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// membership uses this host's kubelet.conf in place of a token: by the time a member joins again, the token has long expired.
// trusted picks the CAs of self's cluster from kubelet.conf. nil means the host joins in the usual way.
func (d *Discovery) membership(self *config.JoinConfiguration, trusted func(*thisnode.KubeletFile) []*x509.Certificate) *config.Join {
	conf, err := thisnode.ReadKubeletFile(d.Host, filepath.Join(config.DefaultKubernetesDir, "kubelet.conf"))
	if err != nil || conf.CheckFor(d.Host, self.NodeRegistration.Name) != nil || !d.hasCertificates(self) {
		return nil
	}
	ca := trusted(conf)
	if len(ca) == 0 {
		return nil
	}
	d.UI.Printf("This host has joined the cluster at %s before; using its own credentials", conf.Server)
	return &config.Join{Server: conf.Server, CA: d.keptCA(self.CACertPath, ca), CAPath: self.CACertPath, Rejoins: true,
		Kubeconfig: config.NewSecret(string(conf.Data))}
}

// refusedMember is refused for a host that joins again. As long as its own certificate is there, a new token doesn't help.
func refusedMember(err error, join *config.Join) error {
	conf := filepath.Join(config.DefaultKubernetesDir, "kubelet.conf")
	where, file := conf, conf
	if _, pem, unread := kubeconfig.ClientCertificate([]byte(join.Kubeconfig.Reveal())); unread == nil && pem != "" {
		where, file = conf+" with "+pem, pem
	}
	err = errors.Wrapf(err, "the API server at %s does not accept the certificate of this host's kubelet (%s): it may be from another cluster or an earlier CA", join.Server, where)
	return fault.WithRemedy(err, "if the API server accepts other nodes, delete "+file+" and run the same command again; "+
		"if its token has expired, `slipway token create --print-join-command` on a control plane creates a new one")
}

// askedFor returns the CAs that fit the given hashes. Without a hash, only the address identifies the cluster.
func (d *Discovery) askedFor(t *config.BootstrapTokenDiscovery) func(*thisnode.KubeletFile) []*x509.Certificate {
	return func(conf *thisnode.KubeletFile) []*x509.Certificate {
		if len(t.CACertHashes) > 0 {
			return discovery.Pinned(conf.Trusted, t.CACertHashes, d.Host.Now())
		}
		if u, err := url.Parse(conf.Server); err != nil || u.Host != t.APIServerEndpoint {
			return nil
		}
		return conf.Trusted
	}
}

// sharedWith returns the CAs that discovery has found, too.
func sharedWith(found []*x509.Certificate) func(*thisnode.KubeletFile) []*x509.Certificate {
	return func(conf *thisnode.KubeletFile) []*x509.Certificate { return thisnode.SharedCAs(conf.Trusted, found) }
}

// readyTimeout is more than an API server needs to say it's ready.
const readyTimeout = 3 * time.Second

// reachable leads a returning control plane to another API server if its own, which its kubelet uses, doesn't work: for example,
// because its etcd has lost its data.
func (d *Discovery) reachable(ctx context.Context, join *config.Join, elsewhere string) (*config.Join, error) {
	if join.Server == elsewhere || !d.isHere(join.Server) || d.ready(ctx, join.Server, join.CA) || !d.ready(ctx, elsewhere, join.CA) {
		return join, nil
	}
	data, err := kubeconfig.AtServer([]byte(join.Kubeconfig.Reveal()), elsewhere)
	if err != nil {
		return nil, err
	}
	d.UI.Printf("The API server of this host, %s, is not ready; asking %s instead", join.Server, elsewhere)
	led := *join
	led.Server, led.Kubeconfig = elsewhere, config.NewSecret(string(data))
	return &led, nil
}

// isHere reports whether a URL leads to one of this host's addresses.
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

// ready reports whether an API server can be asked. A server that refuses anonymous requests counts as ready.
func (d *Discovery) ready(ctx context.Context, server string, ca []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := d.Host.Probe(ctx, host.Probe{URL: server + "/readyz", CA: ca})
	var answer *host.ProbeError
	return err == nil || errors.As(err, &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden)
}

// hasCertificates reports whether a control plane has had the files that only a token may read. A worker needs none.
func (d *Discovery) hasCertificates(self *config.JoinConfiguration) bool {
	return self.ControlPlane == nil || thisnode.IsControlPlane(d.Host)
}

// keptCA returns the CA file unchanged if it holds a trusted CA: others may have been added, for example while a CA is being
// replaced.
func (d *Discovery) keptCA(path string, trusted []*x509.Certificate) []byte {
	data, err := d.Host.ReadFile(path)
	if err == nil {
		if list, err := certs.ParseCerts(data); err == nil && len(thisnode.SharedCAs(list, trusted)) > 0 {
			return data
		}
	}
	return certs.EncodeCerts(trusted...)
}
