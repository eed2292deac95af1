// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto/x509"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// repairKubelet replaces a kubelet's expired client certificate. As soon as the API answers, the kubelet requests its own:
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert
//
// An interrupted run leaves a valid kubelet.conf, and a kubelet that hasn't read it yet or still finds its expired certificate.
func repairKubelet(ctx context.Context, env *step.Env) error {
	row, _ := certs.Find(env.Config, certs.Kubelet)
	path := env.PKI().Files(row)[0]
	old, err := env.PKI().Current(row)
	if err != nil || old == nil {
		return err
	}
	expired := !env.Host.Now().Before(old.NotAfter)
	if expired {
		if err := replaceKubeletCertificate(env, row, old); err != nil {
			return err
		}
	}
	pem := thisnode.KubeletClientPEM(env.Host, env.Settings())
	if expired = expired || hasExpired(env, pem); expired {
		// As long as it's there, the kubelet takes it for its own.
		if err := env.Host.Remove(pem); err != nil {
			return err
		}
	}
	stale, err := node.KubeletIsStale(ctx, env, path)
	if err != nil || !expired && !stale {
		return err
	}
	env.UI.Printf("Restarting the kubelet, so that it reads %s", path)
	return node.RestartKubeletAndWait(ctx, env)
}

func replaceKubeletCertificate(env *step.Env, row certs.Spec, old *x509.Certificate) error {
	ca, err := env.PKI().CA(row.CA)
	if err != nil {
		return err
	}
	if ca.Key == nil {
		return fault.New(env.PKI().Files(row)[0]+": its certificate has expired, and the key of the CA is not on this host",
			"have the owner of the CA sign a new one (`slipway certs generate-csr` writes the request), then restart the kubelet")
	}
	key, err := env.PKI().NewKey()
	if err != nil {
		return err
	}
	cert, err := certs.Issue(certs.Renewal(row, old), env.Config, ca, key, env.Host.Now())
	if err != nil {
		return err
	}
	env.UI.Printf("Replacing the kubelet's client certificate, which has expired")
	return env.PKI().Replace(row, certs.Pair{Cert: cert, Key: key})
}

// hasExpired reports whether the kubelet's certificate at path has expired. A file without a certificate is left to the kubelet.
func hasExpired(env *step.Env, path string) bool {
	data, err := env.Host.ReadFile(path)
	var expired *thisnode.ExpiredError
	return err == nil && errors.As(thisnode.ClientCertificateCheck(env.Host, path, "")(data), &expired)
}

// finishKubelet does nothing if kubelet.conf already refers to the certificate the kubelet rotates.
func finishKubelet(ctx context.Context, env *step.Env) error {
	if _, err := env.Host.Lstat(env.Config.Paths.KubeletKubeconfig()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return kubelet.EnableClientCertRotation(ctx, env)
}
