// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/phases/step"
)

func certificates() step.Phase {
	p := step.Phase{
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

func certificate(row certs.Spec) step.Phase {
	flags := []string{"cert-dir", "config", "dry-run", "kubernetes-version"}
	if row.Name == certs.APIServer {
		flags = append(flags, "apiserver-advertise-address", "apiserver-cert-extra-sans", "control-plane-endpoint", "service-cidr", "service-dns-domain")
	}
	p := certificatePhase(row)
	p.Summary, p.Flags = "Generate the "+row.Summary, flags
	p.Skip = func(env *step.Env) string {
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

// certificatePhase returns a phase that issues a row's certificate if it's missing, and checks it if it exists.
func certificatePhase(row certs.Spec) step.Phase {
	_, name, _ := strings.Cut(row.Phase(), " ")
	return step.Phase{
		Name: name,
		Run: func(_ context.Context, env *step.Env) error {
			spec, _ := certs.Find(env.Config, row.Name)
			return env.PKI().Ensure(spec, env.SpareKey)
		},
		NeedsSpare: needsKeyUnless(func(env *step.Env) []string { return env.PKI().Files(row) }),
	}
}

func serviceAccountKeys() step.Phase {
	return step.Phase{
		Name:    certs.ServiceAccount,
		Summary: "Generate the key pair that signs service account tokens",
		Flags:   []string{"cert-dir", "config", "dry-run", "kubernetes-version"},
		Run: func(_ context.Context, env *step.Env) error {
			return env.PKI().EnsureServiceAccountKeys(env.SpareKey)
		},
		NeedsSpare: needsKeyUnless(func(env *step.Env) []string { return env.PKI().ServiceAccountFiles() }),
	}
}

// needsKeyUnless asks for a new key only if none of the files exists. If any does, the phase checks it.
func needsKeyUnless(files func(env *step.Env) []string) func(env *step.Env) bool {
	return func(env *step.Env) bool {
		for _, path := range files(env) {
			if _, err := env.Host.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
		return true
	}
}

func kubeconfigs() step.Phase {
	flags := []string{"apiserver-advertise-address", "apiserver-bind-port", "cert-dir", "config", "control-plane-endpoint",
		"dry-run", "kubeconfig-dir", "kubernetes-version"}
	withNodeName := append(slices.Clone(flags), "node-name")
	p := step.Phase{
		Name:       "kubeconfig",
		Summary:    "Write the kubeconfig files of the components and the administrator",
		Flags:      withNodeName,
		SideBySide: true,
	}
	for _, row := range certs.Table() {
		if row.Kubeconfig == "" {
			continue
		}
		child := certificatePhase(row)
		child.Summary, child.Flags = "Write "+row.Kubeconfig+" with the "+row.Summary, flags
		if row.Name == certs.Kubelet {
			child.Flags = withNodeName
		}
		p.Children = append(p.Children, child)
	}
	return p
}
