// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// clusterInfo is the ConfigMap that a bootstrap token signs; nodes read it before they know the cluster.
const clusterInfo = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// anonymousAccess checks that an AuthenticationConfiguration allows clients without credentials: the kubelet's probes of the API
// server, and nodes that find the cluster by a token. Patches may give the probes a token.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-authenticator-configuration
func anonymousAccess(_ context.Context, h View, n *config.Node) []fault.Finding {
	pod := plannedServer(n, h)
	file := manifests.FlagOf(pod, "authentication-config")
	if file == "" {
		return nil
	}
	unseen := func(format string, args ...any) []fault.Finding {
		return warn("it was not checked whether the API server's probes can work with authentication-config: "+format, args...).
			remedy("see that the API server finds the file, and that the file allows anonymous requests to /livez, /readyz and %s", clusterInfo)
	}
	there, mounted := thisnode.OnHost(pod, file)
	if !mounted {
		return unseen("%s is in no volume that the API server has from this host", file)
	}
	data, err := h.ReadFile(there)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unseen("%s, which the API server reads as %s, does not exist", there, file)
	case err != nil:
		return unseen("%v", err)
	}
	return anonymousFindings(there, data, n.PatchesDir != "")
}

// plannedServer is the API server's static Pod, with the user's patches if they can be applied; another phase says why not.
func plannedServer(n *config.Node, h View) *corev1.Pod {
	plain := manifests.APIServer(n, manifests.HostView{CertDirs: existing(h, manifests.CertDirs())})
	doc, err := yaml.Marshal(plain)
	if err != nil {
		return plain
	}
	patches, err := config.ReadPatches(h, n.PatchesDir)
	if err != nil {
		return plain
	}
	patched := &corev1.Pod{}
	if doc, err = patches.Apply(manifests.APIServerName, doc, &corev1.Pod{}); err != nil || yaml.Unmarshal(doc, patched) != nil {
		return plain
	}
	return patched
}

func existing(h View, paths []string) []string {
	return slices.DeleteFunc(paths, func(p string) bool {
		_, err := h.Stat(p)
		return err != nil
	})
}

func anonymousFindings(file string, data []byte, patched bool) []fault.Finding {
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
	var found []fault.Finding
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
