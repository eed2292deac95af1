// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"

	"github.com/pkg/errors"
)

func kubeletStartJoin() Phase {
	return Phase{
		Name:    "kubelet-start",
		Summary: "Write the kubelet's settings and the credentials it joins with, and start it",
		Flags:   discoveryFlags("cri-socket", "node-name", "patches"),
		Run:     runKubeletStartJoin,
	}
}

// runKubeletStartJoin gives the kubelet what it needs to ask the cluster for a
// client certificate. A kubelet that has one keeps it.
func runKubeletStartJoin(ctx context.Context, env *Env) error {
	n := env.Config
	if n.Join == nil {
		return errors.New("nothing says how to find the cluster")
	}
	wanted, err := kubeletFiles(env)
	if err != nil {
		return err
	}
	wanted = append(wanted, file{path: n.Join.CAPath, data: n.Join.CA, mode: 0o644})
	if memberOf(env.Host, n) != nil {
		wanted = append(wanted, file{path: bootstrapConfPath(n), data: []byte(n.Join.Kubeconfig.Reveal()), mode: 0o600, secret: true})
	}
	for _, dir := range []string{n.Paths.Kubeconfigs, filepath.Dir(n.Join.CAPath)} {
		if err := env.Host.EnsureDir(dir, 0o755); err != nil {
			return err
		}
	}
	return ensureKubelet(ctx, env, wanted)
}
