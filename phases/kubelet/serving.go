// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ensureServingPair creates the serving certificate and key of a kubelet before its first start. The kubelet itself would first generate
// two RSA keys, which takes a third of that start.
func ensureServingPair(env *step.Env) error {
	name, err := ownPair(env)
	if err != nil || name == "" {
		return err
	}
	return ensurePair(env, name)
}

// EnsureTemporaryPair creates the serving certificate and key of a kubelet that begins to ask the cluster for one. It would serve
// nothing, neither logs nor exec, until somebody has approved its request; it begins with this pair, and asks nevertheless.
func EnsureTemporaryPair(env *step.Env) error {
	name, err := ownPair(env)
	if err != nil || name != temporaryPair {
		return err
	}
	return ensurePair(env, name)
}

// ensurePair leaves an existing pair as it is.
func ensurePair(env *step.Env, name string) error {
	dir := filepath.Join(env.Config.Paths.Kubelet, "pki")
	certPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
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
	made, err := certs.KubeletServing(env.Config.Name, key, env.Host.Now(), lifeOf(name))
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

// temporaryPair is the pair of a kubelet that asks the cluster.
const temporaryPair = "kubelet-server"

// lifeOf is how long a pair is valid: a year, as the kubelet's own. A kubelet that asks the cluster serves nobody with a pair that has
// expired, and nobody knows when its request is approved.
func lifeOf(name string) time.Duration {
	const year = 365 * 24 * time.Hour
	if name == temporaryPair {
		return 10 * year
	}
	return year
}

// servingKey returns the key an interrupted run left without a certificate, or a new key.
func servingKey(path string, keyPEM []byte) (crypto.Signer, error) {
	if keyPEM == nil {
		return certs.NewKey(certs.KubeletServingAlgorithm)
	}
	key, err := certs.ParseKey(keyPEM)
	return key, errors.WithMessagef(err, "%s has no certificate: put the right key there, or delete it", path)
}

// ownPair names the files in which the kubelet looks for a certificate without the cluster; empty if its settings on this host or a
// flag give it one, or if the cluster has.
func ownPair(env *step.Env) (string, error) {
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil || settings.TLSCertFile != "" || settings.TLSPrivateKeyFile != "" {
		return "", err
	}
	file := env.Config.Paths.KubeletConfig() // the unit has a flag for it
	if slices.ContainsFunc(thisnode.EffectiveFlags(env.Host, env.Settings()), func(f thisnode.KubeletFlag) bool {
		return f.Name == "config" && f.Value != file || slices.Contains([]string{"cert-dir", "config-dir",
			"rotate-server-certificates", "tls-cert-file", "tls-private-key-file"}, f.Name)
	}) {
		return "", nil
	}
	if !settings.ServerTLSBootstrap {
		return "kubelet", nil
	}
	if _, err := env.Host.Lstat(thisnode.KubeletServingPEM(env.Host, env.Settings())); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return temporaryPair, nil
}
