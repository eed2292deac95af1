// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto"
	"io/fs"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
)

func certificates() Phase {
	p := Phase{
		Name:    "certs",
		Summary: "Generate missing certificates, and check existing ones",
		Flags: []string{"apiserver-advertise-address", "apiserver-cert-extra-sans", "cert-dir", "config",
			"control-plane-endpoint", "dry-run", "kubernetes-version", "service-cidr", "service-dns-domain"},
		SideBySide: true,
	}
	for _, row := range certs.Table() {
		if row.Kubeconfig == "" {
			p.Children = append(p.Children, certificate(row))
		}
	}
	p.Children = append(p.Children, serviceAccountKeys())
	return p
}

// certificate is the phase of a row of the certificate table in the PKI directory.
func certificate(row certs.Spec) Phase {
	flags := []string{"cert-dir", "config", "dry-run", "kubernetes-version"}
	if row.Name == certs.APIServer {
		flags = append(flags, "apiserver-advertise-address", "apiserver-cert-extra-sans", "control-plane-endpoint", "service-cidr", "service-dns-domain")
	}
	p := ensures(row)
	p.Summary, p.Flags = "Generate the "+row.Summary, flags
	p.Skip = func(env *Env) string {
		if _, needed := certs.Find(env.Config, row.Name); !needed {
			return "etcd is external, its operator has the certificates"
		}
		return ""
	}
	if !row.IsCA() {
		p.Needs = []string{"certs/" + row.CA}
	}
	return p
}

// ensures is a phase that issues the certificate of a row if it is missing, and checks it if it exists.
func ensures(row certs.Spec) Phase {
	_, name, _ := strings.Cut(row.Phase(), " ")
	return Phase{
		Name: name,
		RunWithKey: func(_ context.Context, env *Env, key crypto.Signer) error {
			spec, _ := certs.Find(env.Config, row.Name)
			return env.pki().Ensure(spec, key)
		},
		NeedsKey: unlessThere(func(env *Env) []string { return env.pki().Files(row) }),
	}
}

func serviceAccountKeys() Phase {
	return Phase{
		Name:    certs.ServiceAccount,
		Summary: "Generate the key pair that signs service account tokens",
		Flags:   []string{"cert-dir", "config", "dry-run", "kubernetes-version"},
		RunWithKey: func(_ context.Context, env *Env, key crypto.Signer) error {
			return env.pki().EnsureServiceAccountKeys(key)
		},
		NeedsKey: unlessThere(func(env *Env) []string { return env.pki().ServiceAccountFiles() }),
	}
}

// unlessThere reports that a new key is needed if none of the files exists. If one does, the phase checks it.
func unlessThere(files func(env *Env) []string) func(env *Env) bool {
	return func(env *Env) bool {
		for _, path := range files(env) {
			if _, err := env.Host.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
		return true
	}
}
