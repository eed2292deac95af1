// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"slices"

	"github.com/pkg/errors"
	api "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// parsed is a kubeconfig file whose current context leads to a cluster and a
// user, which are at these places of its lists.
type parsed struct {
	api.Config
	cluster, user int
}

// parse reads a kubeconfig file. Errors hold nothing of its content but names.
func parse(data []byte) (*parsed, error) {
	file := &parsed{}
	if err := yaml.Unmarshal(data, &file.Config); err != nil {
		// What the decoder says may quote a key.
		return nil, errors.New("the file is not a kubeconfig in YAML form")
	}
	if file.Kind != "Config" || file.APIVersion != "v1" {
		return nil, errors.Errorf("the file is not a kubeconfig: apiVersion v1 and kind Config are expected, not %q and %q",
			file.APIVersion, file.Kind)
	}
	if file.CurrentContext == "" {
		return nil, errors.New("the kubeconfig has no current-context")
	}
	at := slices.IndexFunc(file.Contexts, func(c api.NamedContext) bool { return c.Name == file.CurrentContext })
	if at < 0 {
		return nil, errors.Errorf("the kubeconfig has no context %q, which is its current-context", file.CurrentContext)
	}
	context := file.Contexts[at].Context
	file.cluster = slices.IndexFunc(file.Clusters, func(c api.NamedCluster) bool { return c.Name == context.Cluster })
	file.user = slices.IndexFunc(file.AuthInfos, func(u api.NamedAuthInfo) bool { return u.Name == context.AuthInfo })
	if file.cluster < 0 {
		return nil, errors.Errorf("the kubeconfig has no cluster %q, which its current context names", context.Cluster)
	}
	if file.user < 0 {
		return nil, errors.Errorf("the kubeconfig has no user %q, which its current context names", context.AuthInfo)
	}
	return file, nil
}
