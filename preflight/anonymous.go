// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// clusterInfo is what a node reads before it knows the cluster: the ConfigMap that a bootstrap token signs.
const clusterInfo = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// anonymousAccess checks that an AuthenticationConfiguration allows what has no credentials: the kubelet's probes of the API
// server, and nodes that find the cluster by a token. Patches may give the probes a token.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-authenticator-configuration
func anonymousAccess(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		file, given := config.LastArg(n.Cluster.APIServer.ExtraArgs, "authentication-config")
		there, mounted := onHost(n.Cluster.APIServer, file)
		if !given || !mounted {
			return nil
		}
		data, err := h.ReadFile(there)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fail("%s, which the API server reads as %s (authentication-config), does not exist", there, file).remedy("create it, or remove authentication-config from apiServer.extraArgs")
		case err != nil:
			return warn("cannot read %s (authentication-config): %v", there, err).remedy("see that it allows anonymous requests to /livez, /readyz and %s", clusterInfo)
		}
		return anonymousFindings(there, data, n.PatchesDir != "")
	}
}

func anonymousFindings(file string, data []byte, patched bool) []Finding {
	var c struct {
		Anonymous *struct {
			Enabled    bool                    `json:"enabled"`
			Conditions []struct{ Path string } `json:"conditions"`
		} `json:"anonymous"`
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return warn("%s is not an AuthenticationConfiguration", file).remedy("fix it: the API server does not start with it")
	}
	if c.Anonymous == nil || c.Anonymous.Enabled && len(c.Anonymous.Conditions) == 0 {
		return nil
	}
	allows := func(p string) bool {
		return c.Anonymous.Enabled && slices.ContainsFunc(c.Anonymous.Conditions, func(one struct{ Path string }) bool { return one.Path == p })
	}
	var found []Finding
	if !allows("/livez") || !allows("/readyz") {
		report := fail
		if patched {
			report = warn
		}
		found = report("%s allows no anonymous requests to /livez and /readyz, so the API server's probes fail, and the kubelet kills it", file).
			remedy("add both paths to anonymous.conditions")
	}
	if !allows(clusterInfo) {
		found = append(found, warn("%s allows no anonymous requests to cluster-info, so no node can find the cluster by a token", file).
			remedy("add %s to anonymous.conditions, or let nodes join with --discovery-file", clusterInfo)...)
	}
	return found
}

// onHost returns where a file in the API server's container is on this host.
func onHost(c config.APIServer, file string) (there string, mounted bool) {
	for _, v := range c.ExtraVolumes {
		if rest, within := strings.CutPrefix(path.Clean(file), path.Clean(v.MountPath)); within && (rest == "" || rest[0] == '/') {
			return path.Join(v.HostPath, rest), true
		}
	}
	return "", false
}
