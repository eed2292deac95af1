// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// checkIssuer returns an error if none of the CAs has issued the kubelet's certificate, the data of the file at path.
func checkIssuer(env *step.Env, path string, data []byte, known []*x509.Certificate) error {
	chain, err := certs.ParseChain(data)
	if err != nil {
		return errors.Wrap(err, path)
	}
	if err := pki.Verify(chain, known, env.Host.Now()); err == nil {
		return nil
	}
	return fault.New(fmt.Sprintf("no CA that this node knows has issued %s (issuer %q)", path, chain[0].Issuer.CommonName),
		"if it is from another cluster, delete it, restart the kubelet, and run the same command again")
}

// clientCAs returns the CAs whose clients this control plane's API server accepts: the cluster's CA, and any others in the file
// that its static Pod names, if there is one yet.
func clientCAs(env *step.Env) ([]*x509.Certificate, error) {
	ca, err := env.PKI().CA(certs.CA)
	if err != nil {
		return nil, err
	}
	path := env.Config.Paths.StaticPod(manifests.APIServerName)
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil {
		return ca.Bundle(), err
	}
	pod, err := manifests.DecodePod(data)
	if err != nil {
		return nil, errors.Wrap(err, path)
	}
	file, found := thisnode.OnHost(pod, manifests.FlagOf(pod, "client-ca-file"))
	if !found {
		return ca.Bundle(), nil
	}
	data, err = host.ReadIfExists(env.Host, file)
	if err != nil || data == nil {
		return ca.Bundle(), err
	}
	more, err := certs.ParseCerts(data)
	return append(ca.Bundle(), more...), errors.Wrap(err, file)
}

// forgetForeign removes a certificate that the kubelet got as another node, which it would prefer to the new certificate in
// kubelet.conf: under another name in an unfinished init, or in an earlier cluster, if somebody deleted that one's files instead
// of resetting the host.
func forgetForeign(ctx context.Context, env *step.Env) error {
	pem := thisnode.KubeletClientPEM(env.Host, env.Settings())
	data, err := host.ReadIfExists(env.Host, pem)
	if err != nil || data == nil {
		return err
	}
	why, err := foreign(env, pem, data)
	if err != nil || why == nil {
		return err
	}
	env.UI.Printf("Removing the kubelet's certificate from an earlier run: %v", why)
	if err := env.Host.OrderUnit(ctx, host.StopUnit, node.KubeletUnit); err != nil && !errors.Is(err, host.ErrNoSystemd) {
		return err
	}
	return env.Host.Remove(pem)
}

// foreign returns why the kubelet's certificate isn't this node's; nil if it may be.
func foreign(env *step.Env, pem string, data []byte) (why, err error) {
	if env.Rerun && env.Unfinished {
		var expired *thisnode.ExpiredError
		why := thisnode.ClientCertificateCheck(env.Host, pem, env.Config.Name)(data)
		if why != nil && !errors.As(why, &expired) {
			return why, nil
		}
	}
	conf, err := host.ReadIfExists(env.Host, env.Config.Paths.KubeletKubeconfig())
	if err != nil || conf == nil {
		return nil, err
	}
	// A kubelet whose kubelet.conf has no certificate of its own would be left with none.
	if _, file, err := kubeconfig.ClientCertificate(conf); err != nil || file != "" {
		return nil, nil //nolint:nilerr // another error shows it
	}
	if _, err := certs.ParseChain(data); err != nil {
		return nil, nil //nolint:nilerr // another error shows it
	}
	known, err := clientCAs(env)
	if err != nil {
		return nil, err
	}
	return checkIssuer(env, pem, data, known), nil
}
