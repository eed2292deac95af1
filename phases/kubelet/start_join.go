// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// DiscoveryFlags returns the flags of every phase that needs to know the cluster.
func DiscoveryFlags(more ...string) []string {
	return append(more, "config", "discovery-file", "discovery-token", "discovery-token-ca-cert-hash",
		"discovery-token-unsafe-skip-ca-verification", "dry-run", "tls-bootstrap-token", "token", "token-file")
}

// StartJoin is the phase kubelet-start of join.
func StartJoin() step.Phase {
	return step.Phase{
		Name:    "kubelet-start",
		Summary: "Write the kubelet's settings and the credentials it joins with, and start it",
		Flags:   DiscoveryFlags("cri-socket", "node-name", "patches"),
		Run:     runKubeletStartJoin,
	}
}

// runKubeletStartJoin gives the kubelet everything it needs to ask the cluster for a client certificate. A kubelet that already
// has a certificate keeps it.
func runKubeletStartJoin(ctx context.Context, env *step.Env) error {
	n := env.Config
	if n.Join == nil {
		return errors.New("no discovery method is configured")
	}
	wanted, err := Files(env)
	if err == nil {
		wanted, err = env.Keeper().Pending("join phase kubelet-start", wanted...)
	}
	if err != nil {
		return err
	}
	_, corrections, err := ConfigYAML(env)
	warnCorrections(env, corrections)
	if err != nil {
		return err
	}
	ca, err := trustedCAs(env)
	if err != nil {
		return err
	}
	wanted = append(wanted, ca)
	wanted = append(wanted, unfinishedJoin(env)...)
	if thisnode.CheckMember(env.Host, n) != nil {
		bootstrap, err := bootstrapConf(n)
		if err != nil {
			return err
		}
		wanted = append(wanted, ownership.File{Path: n.Paths.BootstrapKubeconfig(), Data: bootstrap, Mode: 0o600, Secret: true})
	}
	for _, dir := range []string{n.Paths.Kubeconfigs, filepath.Dir(n.Join.CAPath)} {
		if err := env.Host.EnsureDir(dir, 0o755); err != nil {
			return err
		}
	}
	if started, err := ensureKubelet(ctx, env, wanted); err != nil || !started || !n.ControlPlane {
		return err
	}
	return node.WaitKubelet(ctx, env) // for the static Pods to come, as in init
}

// unfinishedJoin returns the file that stays from a control plane's first join until its components are healthy.
func unfinishedJoin(env *step.Env) []ownership.File {
	if !env.First || !env.Config.ControlPlane {
		return nil
	}
	const text = "The join of this control plane hasn't finished. Until it has, another one may replace the files that Slipway wrote.\n"
	return []ownership.File{{Path: thisnode.JoinUnfinished(env.Config), Data: []byte(text), Mode: 0o600}}
}

// trustedCAs returns the file of the CAs this node trusts. While a CA is being replaced, the file holds the old and the new CA,
// and discovery may have verified only one. So a file with more CAs is kept; on a control plane it's the shared file,
// which download-certs has checked.
func trustedCAs(env *step.Env) (ownership.File, error) {
	n := env.Config
	f := ownership.File{Path: n.Join.CAPath, Data: n.Join.CA, Mode: 0o644}
	have, err := host.ReadIfExists(env.Host, f.Path)
	if err != nil {
		return f, err
	}
	found, err := certs.ParseCerts(f.Data)
	if err != nil {
		return f, errors.Wrap(err, "the CAs that discovery found")
	}
	list, err := certs.ParseCerts(have)
	same := thisnode.SharedCAs(found, list)
	ofAll := n.ControlPlane && f.Path == filepath.Join(n.Paths.PKI, "ca.crt") && len(same) > 0
	if err == nil && (ofAll || len(same) == len(found)) {
		f.Data = have
	}
	return f, nil
}

// bootstrapConf points a control plane's kubelet at the API server on the same node, as its kubelet.conf will: a kubelet must not
// talk to an older API server, which other nodes may have during an upgrade.
// https://kubernetes.io/releases/version-skew-policy/
func bootstrapConf(n *config.Node) ([]byte, error) {
	data := []byte(n.Join.Kubeconfig.Reveal())
	if !n.ControlPlane {
		return data, nil
	}
	return kubeconfig.AtServer(data, "https://"+n.LocalEndpoint())
}
