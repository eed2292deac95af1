// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto"
	"crypto/rand"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

func kubeconfigs() Phase {
	flags := []string{"apiserver-advertise-address", "apiserver-bind-port", "cert-dir", "config", "control-plane-endpoint",
		"dry-run", "kubeconfig-dir", "kubernetes-version"}
	withNodeName := append(slices.Clone(flags), "node-name")
	return Phase{
		Name:       "kubeconfig",
		Summary:    "Write the kubeconfig files of the components and the administrator",
		Flags:      withNodeName,
		SideBySide: true,
		Children: []Phase{
			kubeconfigFile("admin", "Write the administrator's kubeconfig file", flags),
			kubeconfigFile("super-admin", "Write the kubeconfig file that bypasses authorization", flags),
			kubeconfigFile("kubelet", "Write the kubelet's first kubeconfig file", withNodeName),
			kubeconfigFile("controller-manager", "Write the controller manager's kubeconfig file", flags),
			kubeconfigFile("scheduler", "Write the scheduler's kubeconfig file", flags),
		},
	}
}

func kubeconfigFile(name, summary string, flags []string) Phase {
	return Phase{
		Name:    name,
		Summary: summary,
		Flags:   flags,
		RunWithKey: func(_ context.Context, env *Env, key crypto.Signer) error {
			return ensureKubeconfig(env, name, key)
		},
		NeedsKey: unlessThere(func(env *Env) []string { return []string{kubeconfigPath(env, kubeconfigSpec(env, name))} }),
	}
}

// ensureKubeconfig keeps a file that is there and right, refuses one that is
// wrong, and writes a missing one.
func ensureKubeconfig(env *Env, name string, spare crypto.Signer) error {
	spec := kubeconfigSpec(env, name)
	ca, err := pairStore{env}.ca(spec.Certificate())
	if err != nil {
		return err
	}
	path := kubeconfigPath(env, spec)
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil {
		return err
	}
	if data != nil {
		return keepKubeconfig(env, spec, path, data, ca)
	}
	return writeKubeconfig(env, spec, path, ca, spare)
}

func kubeconfigSpec(env *Env, name string) kubeconfig.Spec {
	specs := kubeconfig.Specs(env.Config)
	return specs[slices.IndexFunc(specs, func(s kubeconfig.Spec) bool { return s.Name == name })]
}

func kubeconfigPath(env *Env, spec kubeconfig.Spec) string {
	return filepath.Join(env.Config.Paths.Kubeconfigs, spec.File)
}

// keepKubeconfig accepts a file with another server, which an administrator
// may have put there for a load balancer or a proxy.
func keepKubeconfig(env *Env, spec kubeconfig.Spec, path string, data []byte, ca certs.Pair) error {
	err := kubeconfig.Check(data, spec, env.Config, ca.Bundle(), env.Host.Now())
	var faults *certs.Error
	switch {
	case errors.As(err, &faults) && faults.Only(kubeconfig.WrongServer):
		env.UI.Warnf("%v", err)
	case err != nil:
		return err
	}
	env.UI.Printf("Keeping %s", path)
	return narrowMode(env, path, data)
}

func writeKubeconfig(env *Env, spec kubeconfig.Spec, path string, ca certs.Pair, spare crypto.Signer) error {
	key, err := orNewKey(env, spare)
	if err != nil {
		return err
	}
	cert, err := certs.Issue(spec.Certificate(), env.Config, ca, key, env.Host.Now(), rand.Reader)
	if err != nil {
		return err
	}
	data, err := kubeconfig.Build(spec, env.Config, ca.Bundle(), certs.Pair{Cert: cert, Key: key})
	if err != nil {
		return err
	}
	env.UI.Printf("Writing %s", path)
	if err := env.Host.EnsureDir(env.Config.Paths.Kubeconfigs, 0o755); err != nil {
		return err
	}
	return writePrivate(env, path, data)
}
