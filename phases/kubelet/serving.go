// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ensureServingPair creates the kubelet's serving certificate and key. The kubelet itself would first generate two RSA keys,
// which takes a third of its first start. An existing pair stays.
func ensureServingPair(env *step.Env) error {
	if signs, err := kubeletSignsItself(env); err != nil || !signs {
		return err
	}
	dir := filepath.Join(env.Config.Paths.Kubelet, "pki")
	certPath, keyPath := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	cert, err := host.ReadIfExists(env.Host, certPath)
	if err != nil {
		return err
	}
	keyPEM, err := host.ReadIfExists(env.Host, keyPath)
	switch {
	case err != nil:
		return err
	case cert != nil && keyPEM == nil:
		return errors.Errorf("%s exists without its key %s, and the kubelet does not start with only one of them: put the key there, or delete the certificate",
			certPath, keyPath)
	case cert != nil:
		return nil
	}
	key, err := servingKey(keyPath, keyPEM)
	if err != nil {
		return err
	}
	made, err := certs.KubeletServing(env.Config.Name, key, env.Host.Now())
	if err != nil {
		return err
	}
	if keyPEM, err = certs.EncodeKey(key); err != nil {
		return err
	}
	env.UI.Printf("Writing %s and its key", certPath)
	if err := env.Host.EnsureDir(dir, 0o755); err != nil {
		return err
	}
	if _, err := env.Host.WriteSecret(keyPath, keyPEM); err != nil {
		return err
	}
	_, err = env.Host.WriteFile(certPath, certs.EncodeCerts(made), 0o644)
	return err
}

// servingKey returns the key an interrupted run left without a certificate, or a new key.
func servingKey(path string, keyPEM []byte) (crypto.Signer, error) {
	if keyPEM == nil {
		return certs.NewKey(certs.KubeletServingAlgorithm)
	}
	key, err := certs.ParseKey(keyPEM)
	return key, errors.WithMessagef(err, "%s has no certificate: put the right key there, or delete it", path)
}

// kubeletSignsItself reports whether neither the kubelet's settings on this host nor a flag give it a serving certificate.
func kubeletSignsItself(env *step.Env) (bool, error) {
	settings, err := thisnode.KubeletSettings(env.Host, env.Config)
	if err != nil {
		return false, err
	}
	if settings.ServerTLSBootstrap || settings.TLSCertFile != "" || settings.TLSPrivateKeyFile != "" {
		return false, nil
	}
	return !slices.ContainsFunc(thisnode.KubeletFlags(env.Host, env.Config), func(a config.Arg) bool {
		return slices.Contains([]string{"cert-dir", "config", "config-dir",
			"rotate-server-certificates", "tls-cert-file", "tls-private-key-file"}, a.Name)
	}), nil
}
