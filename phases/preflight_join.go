// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
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
	if thisnode.CheckMember(env.Host, env.Config) == nil && !env.Config.Join.NodeGone {
		env.UI.Printf("This host is already node %s of the cluster", env.Config.Name)
	}
	if !env.Config.ControlPlane {
		return nil
	}
	if err := env.pki().CheckJoin(); err != nil {
		return err
	}
	return pullImages(ctx, env)
}

// leftovers are the files that only a node has, each with a check that it is from an earlier join to this cluster.
func leftovers(env *Env) []preflight.Leftover {
	n := env.Config
	if n.Join.Server == "" { // the cluster is not known
		return []preflight.Leftover{{Path: thisnode.KubeletConf(n)}, {Path: thisnode.BootstrapConf(n)}, {Path: n.Join.CAPath}}
	}
	return []preflight.Leftover{
		{Path: thisnode.KubeletConf(n), Foreign: func([]byte) error {
			err := thisnode.CheckMember(env.Host, n)
			var expired *thisnode.ExpiredError
			if errors.As(err, &expired) || errors.Is(err, fs.ErrNotExist) { // not signed yet
				return nil
			}
			return err
		}},
		{Path: thisnode.BootstrapConf(n), Foreign: func(data []byte) error {
			_, trusted, err := kubeconfig.Server(data)
			if err == nil && !thisnode.SharesCA(trusted, n) {
				err = errors.New("it is of another cluster")
			}
			return err
		}},
		{Path: n.Join.CAPath, Foreign: func(data []byte) error {
			list, err := certs.ParseCerts(data)
			if err == nil && !thisnode.SharesCA(list, n) {
				err = errors.New("it is of another cluster")
			}
			return err
		}},
	}
}
