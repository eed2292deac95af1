// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ServingCertificate is the phase kubelet-serving of init and join, and the last one of a change of the configuration.
func ServingCertificate() step.Phase {
	return step.Phase{
		Name:    "kubelet-serving",
		Summary: "Approve this kubelet's own request for a serving certificate",
		Flags:   []string{"config", "dry-run"},
		Run:     EnsureServing,
		Skip: func(env *step.Env) string {
			if !env.Config.Kubelet.ServerTLSBootstrap {
				return "the kubelet signs its own serving certificate"
			}
			return ""
		},
	}
}

// servingPEM is the certificate that the kubelet gets from the cluster, with its key.
func servingPEM(env *step.Env) string {
	return filepath.Join(filepath.Dir(thisnode.KubeletClientPEM(env.Host, env.Config)), "kubelet-server-current.pem")
}

// EnsureServing approves the request on a control plane. A worker's kubelet may only ask, so an administrator gets the command. Either
// way the kubelet serves with the certificate it has until then.
func EnsureServing(ctx context.Context, env *step.Env) error {
	has, err := hasServing(env)
	if err != nil {
		return err
	}
	if has {
		env.UI.Printf("The kubelet has a serving certificate of the cluster")
		return nil
	}
	name, limit := thisnode.RegisteredName(env.Host, env.Config), env.Config.Timeouts.TLSBootstrap
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	env.UI.Printf("Waiting for the kubelet's request for a serving certificate, up to %s", limit)
	request, err := env.Cluster.AwaitServing(asking, name, servingCheck(env, name))
	if !env.Config.ControlPlane {
		return sayServing(env, request, err)
	}
	if err != nil {
		return fault.WithRemedy(err, "run the same command again; or compare the request with this host, and approve it with `kubectl certificate approve`")
	}
	env.UI.Printf("Approving %s, which has only names and addresses of this host", request.Name())
	if err := env.Cluster.Approve(ctx, request, "its names and addresses are those of the host, as slipway found there"); err != nil {
		return err
	}
	return awaitServing(asking, env, request)
}

// sayServing tells a worker's administrator what to approve.
func sayServing(env *step.Env, request *cluster.CertificateRequest, err error) error {
	if err != nil {
		ui.WarnError(env.UI, errors.WithMessage(err, "nobody can approve the kubelet's serving certificate yet, so it serves with its own"))
		return nil
	}
	env.UI.Nextf("The kubelet's request for a serving certificate has only names and addresses of this host. Approve it on a control plane:\n"+
		"  kubectl certificate approve %s", request.Name())
	return nil
}

// awaitServing waits for the certificate. One for another key shows that somebody else has made the request, with this node's
// credentials: a kubelet keeps the key in its memory until then.
func awaitServing(ctx context.Context, env *step.Env, request *cluster.CertificateRequest) error {
	path := servingPEM(env)
	err := env.Host.AwaitFile(ctx, path, func(data []byte) error {
		chain, err := certs.ParseChain(data)
		if err != nil {
			return err
		}
		asked, err := parseRequest(request.Spec.Request)
		if err == nil && !certs.SameKey(chain[0].PublicKey, asked.PublicKey) {
			err = errors.Errorf("it has another key than %s", request.Name())
		}
		return err
	})
	return fault.WithRemedy(errors.WithMessagef(err, "the kubelet has not got the certificate of %s in %s", request.Name(), path),
		"`journalctl -u kubelet` shows why; if the kubelet has not made this request, somebody else has this node's credentials")
}

// renewalShare is the part of its lifetime after which a kubelet asks for the next certificate, at the earliest.
const renewalShare = 0.7

// hasServing reports whether the kubelet has a certificate of the cluster's CA, for its name, that it needn't renew yet.
func hasServing(env *step.Env) (bool, error) {
	data, err := host.ReadIfExists(env.Host, servingPEM(env))
	if err != nil || data == nil {
		return false, err
	}
	chain, err := certs.ParseChain(data)
	if err != nil {
		return false, errors.Wrap(err, servingPEM(env))
	}
	leaf, now := chain[0], env.Host.Now()
	due := leaf.NotBefore.Add(time.Duration(renewalShare * float64(leaf.NotAfter.Sub(leaf.NotBefore))))
	return leaf.Issuer.String() != leaf.Subject.String() && now.Before(due), nil
}

// servingCheck accepts a request that has only names and addresses of this host, and nothing else to sign.
func servingCheck(env *step.Env, node string) func(*cluster.CertificateRequest) error {
	return func(r *cluster.CertificateRequest) error {
		asked, err := parseRequest(r.Spec.Request)
		if err != nil {
			return err
		}
		own, err := env.Host.Addresses()
		if err != nil {
			return err
		}
		return checkRequest(r, asked, node, []string{node, env.Config.Name, env.Config.Hostname}, own)
	}
}

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("it is not one request in PEM form")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = asked.CheckSignature()
	}
	return asked, errors.WithStack(err)
}

func checkRequest(r *cluster.CertificateRequest, asked *x509.CertificateRequest, node string, names []string, addresses []netip.Addr) error {
	allowed := []string{"digital signature", "key encipherment", "server auth"}
	user, subject := cluster.NodeUser(node), asked.Subject
	switch {
	case r.Spec.SignerName != cluster.ServingSigner:
		return errors.Errorf("it is for the signer %s", r.Spec.SignerName)
	case r.Spec.Username != user:
		return errors.Errorf("%s has made it, not %s", r.Spec.Username, user)
	case subject.CommonName != user || !slices.Equal(subject.Organization, []string{"system:nodes"}):
		return errors.Errorf("its subject is %s", subject)
	case !slices.Contains(r.Spec.Usages, "server auth") || slices.ContainsFunc(r.Spec.Usages, func(u string) bool { return !slices.Contains(allowed, u) }):
		return errors.Errorf("its usages are %q", r.Spec.Usages)
	case len(asked.EmailAddresses)+len(asked.URIs) > 0:
		return errors.New("it has mail addresses or URIs")
	case len(asked.DNSNames)+len(asked.IPAddresses) == 0:
		return errors.New("it has neither names nor addresses")
	}
	for _, name := range asked.DNSNames {
		if !slices.Contains(names, strings.ToLower(name)) {
			return errors.Errorf("it has the name %s, which this host does not", name)
		}
	}
	for _, ip := range asked.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); !ok || !slices.Contains(addresses, addr.Unmap()) || addr.IsLoopback() {
			return errors.Errorf("it has the address %s, which this host does not", ip)
		}
	}
	return nil
}
