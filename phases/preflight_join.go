// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/preflight"
)

func preflightJoin() Phase {
	return Phase{
		Name:    "preflight",
		Summary: "Check that this host can join the cluster",
		Flags: discoveryFlags("apiserver-advertise-address", "apiserver-bind-port", "certificate-key", "control-plane",
			"cri-socket", "ignore-preflight-errors", "node-name"),
		Run: runPreflightJoin,
	}
}

func runPreflightJoin(ctx context.Context, env *Env) error {
	checks, err := joinChecks(env)
	if err != nil {
		return err
	}
	env.UI.Printf("Checking this host")
	if err := show(env, preflight.Run(ctx, checks, env.Host, env.Config.IgnorePreflightErrors)); err != nil {
		return err
	}
	if memberOf(env.Host, env.Config) == nil && !env.Config.Join.NodeGone {
		env.UI.Printf("This host is node %s of the cluster already", env.Config.Name)
	}
	if !env.Config.ControlPlane {
		return nil
	}
	if err := lacksNothing(env); err != nil {
		return err
	}
	return pullImages(ctx, env)
}

// leftovers are the files that only a node has, each with what tells whether
// it is from an earlier join to this cluster.
func leftovers(env *Env) []preflight.Leftover {
	n := env.Config
	if n.Join.Server == "" { // nobody knows whose they are
		return []preflight.Leftover{{Path: kubeletConfPath(n)}, {Path: bootstrapConfPath(n)}, {Path: n.Join.CAPath}}
	}
	return []preflight.Leftover{
		{Path: kubeletConfPath(n), Foreign: func([]byte) error {
			err := memberOf(env.Host, n)
			var expired *expiredError
			if errors.As(err, &expired) || errors.Is(err, fs.ErrNotExist) { // not signed yet
				return nil
			}
			return err
		}},
		{Path: bootstrapConfPath(n), Foreign: func(data []byte) error {
			_, trusted, err := kubeconfig.Server(data)
			if err == nil && !sharesCA(trusted, n) {
				err = errors.New("it is of another cluster")
			}
			return err
		}},
		{Path: n.Join.CAPath, Foreign: func(data []byte) error {
			list, err := certs.ParseCerts(data)
			if err == nil && !sharesCA(list, n) {
				err = errors.New("it is of another cluster")
			}
			return err
		}},
	}
}

func kubeletConfPath(n *config.Node) string {
	return filepath.Join(n.Paths.Kubeconfigs, "kubelet.conf")
}
func bootstrapConfPath(n *config.Node) string {
	return filepath.Join(n.Paths.Kubeconfigs, "bootstrap-kubelet.conf")
}
