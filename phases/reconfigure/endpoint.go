// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// The clients of the cluster's endpoint follow it: docs/design/endpoint.md.

// clientFiles are this node's kubeconfig files, without those of the components on its own API server.
func clientFiles(env *step.Env) []string {
	paths := []string{env.Config.Paths.KubeletKubeconfig()}
	if !env.Config.ControlPlane {
		return paths
	}
	for _, row := range certs.Specs(env.Config) {
		if row.Kubeconfig != "" && row.UsedBy == "" {
			paths = append(paths, env.PKI().Files(row)[0])
		}
	}
	return paths
}

// kubeconfigFiles are all of this node's kubeconfig files from Slipway: the clients', the controller manager's and the scheduler's.
func kubeconfigFiles(env *step.Env) []string {
	paths := clientFiles(env)
	if !env.Config.ControlPlane {
		return paths
	}
	for _, row := range certs.Specs(env.Config) {
		if row.Kubeconfig != "" && row.UsedBy != "" && row.Name != certs.Kubelet {
			paths = append(paths, env.PKI().Files(row)[0])
		}
	}
	return paths
}

// retargetKubeconfigs returns this node's kubeconfig files that lead to a former endpoint, as they lead to the present one. A
// control plane's kubelet stays with its own API server, even if that was the endpoint.
func retargetKubeconfigs(env *step.Env, former []string) (files []ownership.File, err error) {
	n := env.Config
	if len(former) == 0 || !n.ControlPlane && n.Cluster.ControlPlaneEndpoint == "" {
		return nil, nil
	}
	for _, path := range clientFiles(env) {
		data, at, err := readKubeconfigEndpoint(env, path)
		if err != nil {
			return nil, err
		}
		stays := at == strings.ToLower(n.Endpoint()) || path == n.Paths.KubeletKubeconfig() && isLocalEndpoint(env, at)
		if stays || !slices.Contains(former, at) {
			continue
		}
		if data, err = kubeconfig.AtServer(data, "https://"+n.Endpoint()); err != nil {
			return nil, errors.Wrap(err, path)
		}
		info, err := env.Host.Stat(path)
		if err != nil {
			return nil, err
		}
		files = append(files, asKubeconfig(path, data, info.Mode().Perm()))
	}
	return files, nil
}

// asKubeconfig is a file, possibly with credentials.
func asKubeconfig(path string, data []byte, mode fs.FileMode) ownership.File {
	return ownership.File{Path: path, Data: data, Mode: mode, Secret: mode == 0o600 || host.LooksSecret(data)}
}

func isLocalEndpoint(env *step.Env, endpoint string) bool {
	return env.Config.ControlPlane && endpoint == env.Config.LocalEndpoint()
}

// readKubeconfigEndpoint returns a kubeconfig file, and the host:port in it; empty for a missing file.
func readKubeconfigEndpoint(env *step.Env, path string) (data []byte, endpoint string, err error) {
	if data, err = host.ReadIfExists(env.Host, path); err != nil || data == nil {
		return nil, "", err
	}
	endpoint, err = kubeconfig.Endpoint(data)
	return data, endpoint, errors.Wrap(err, path)
}

func (r *Run) findKubeconfigs(env *step.Env) error {
	files, err := retargetKubeconfigs(env, r.Former)
	for _, f := range files {
		r.addKubeconfig(env, f)
	}
	return err
}

// addKubeconfig adds a file to this node's changes. The kubelet has to read its own again.
func (r *Run) addKubeconfig(env *step.Env, f ownership.File) {
	if f.Path == env.Config.Paths.KubeletKubeconfig() {
		r.kubelet = append(r.kubelet, f)
	} else {
		r.kubeconfigs = append(r.kubeconfigs, f)
	}
}

// redirectClients leads this node's clients to the endpoint, once the API answers there under its name.
func (r *Run) redirectClients(ctx context.Context, env *step.Env) error {
	kubelets := slices.ContainsFunc(r.kubelet, func(f ownership.File) bool { return trial.IsKubeconfig(env, f.Path) })
	if !kubelets && len(r.kubeconfigs) == 0 && !r.MovesEndpoint() {
		return nil
	}
	if r.Reverts == nil || r.MovesEndpoint() {
		if err := awaitEndpoint(ctx, env); err != nil {
			return err
		}
	}
	for _, f := range r.kubeconfigs {
		env.UI.Printf("Writing the API's address to %s", f.Path)
		if err := ownership.Rewrite(env.Host, f.Path, f.Data, f.Mode); err != nil {
			return err
		}
	}
	if r.Reverts != nil {
		return nil
	}
	return r.reportOtherEndpoints(env)
}

// awaitEndpoint also gives this API server the time to read its certificate again.
func awaitEndpoint(ctx context.Context, env *step.Env) error {
	endpoint := env.Config.Endpoint()
	env.UI.Printf("Waiting for the API to answer at %s", endpoint)
	failure := "the API does not answer at " + endpoint
	return env.Guard(ctx, &env.Config.Timeouts.UpgradeManifests, env.NodeTarget(), failure, func(ctx context.Context) error {
		err := node.Poll(ctx, func(ctx context.Context) error {
			err := node.AskServer(ctx, env, endpoint, "")
			if errors.Is(err, host.ErrNotInPlan) {
				return nil
			}
			return err
		})
		return errors.WithMessage(err, failure)
	})
}

// reportOtherEndpoints names the files that lead neither to the endpoint nor to this node's API server: somebody wants it so, or
// they're older than kubeadm's present rules.
func (r *Run) reportOtherEndpoints(env *step.Env) error {
	for _, path := range kubeconfigFiles(env) {
		_, at, err := readKubeconfigEndpoint(env, path)
		if err != nil {
			return err
		}
		if at == "" || isLocalEndpoint(env, at) || at == strings.ToLower(env.Config.Endpoint()) || r.writesLater(path) {
			continue
		}
		env.UI.Warn("keeping "+path+", which leads to "+at, "if it was to follow the endpoint, write https://"+env.Config.Endpoint()+
			" to it, and restart the component that reads it")
	}
	return nil
}

func (r *Run) writesLater(path string) bool {
	return slices.ContainsFunc(r.kubelet, func(f ownership.File) bool { return f.Path == path })
}
