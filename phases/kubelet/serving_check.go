// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// checkServing accepts a request that has only names and addresses of this host, and nothing else to sign.
func checkServing(env *step.Env, name string, r *cluster.CertificateRequest) error {
	own, err := env.Host.Addresses()
	if err != nil {
		return err
	}
	own = slices.DeleteFunc(own, func(a netip.Addr) bool { return a.IsLoopback() || isOfService(env, a) })
	asked, err := parseRequest(r.Spec.Request)
	if err == nil {
		err = checkRequest(r, asked, name, []string{name, env.Config.Name, env.Config.Hostname}, own)
	}
	return errors.WithMessagef(err, "CertificateSigningRequest %s", r.Name())
}

// isOfService reports whether an address is one of Services, which kube-proxy's mode ipvs gives to every host.
func isOfService(env *step.Env, a netip.Addr) bool {
	return slices.ContainsFunc(strings.Split(serviceSubnets(env), ","), func(subnet string) bool {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(subnet))
		return err == nil && prefix.Contains(a)
	})
}

// serviceSubnets are those of this host's API server, if it has one: a node that moves doesn't know the cluster's configuration.
func serviceSubnets(env *step.Env) (list string) {
	if pod, found := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName)); found {
		list = manifests.FlagOf(pod, "service-cluster-ip-range")
	}
	return cmp.Or(list, env.Config.Cluster.Networking.ServiceSubnet)
}

// lacksAddress reports whether a certificate isn't for one of the Node's addresses, which the kubelet has reported. A cloud provider's
// aren't for this host to judge.
func lacksAddress(ctx context.Context, env *step.Env, name string, leaf *x509.Certificate) (bool, error) {
	if hasCloudsAddresses(env) {
		return false, nil
	}
	registered := cluster.NewNode(name)
	if _, err := env.Cluster.Get(ctx, registered); err != nil {
		return false, err
	}
	return slices.ContainsFunc(registered.Status.Addresses, func(a corev1.NodeAddress) bool {
		ip := net.ParseIP(a.Address)
		return ip != nil && !slices.ContainsFunc(leaf.IPAddresses, ip.Equal)
	}), nil
}

// asksForMore reports whether a request has a name or address that the certificate lacks.
func asksForMore(r *cluster.CertificateRequest, leaf *x509.Certificate) bool {
	asked, err := parseRequest(r.Spec.Request)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(asked.DNSNames, func(name string) bool { return !slices.Contains(leaf.DNSNames, name) }) ||
		slices.ContainsFunc(asked.IPAddresses, func(ip net.IP) bool { return !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) })
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

func checkRequest(r *cluster.CertificateRequest, asked *x509.CertificateRequest, name string, names []string, addresses []netip.Addr) error {
	allowed := []string{"digital signature", "key encipherment", "server auth"}
	user, subject := cluster.NodeUser(name), asked.Subject
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
	for _, dns := range asked.DNSNames {
		if !slices.Contains(names, strings.ToLower(dns)) {
			return errors.Errorf("it has the name %s, which this host does not", dns)
		}
	}
	for _, ip := range asked.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); !ok || !slices.Contains(addresses, addr.Unmap()) {
			return errors.Errorf("it has the address %s, which this host does not", ip)
		}
	}
	return nil
}
