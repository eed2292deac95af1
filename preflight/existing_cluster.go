// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// endpointLimit is how long an API server behind the control plane's endpoint may take to answer. An address nobody has yet may
// give no answer at all.
const endpointLimit = 3 * time.Second

// existingCluster keeps init from making a second cluster behind a living cluster's endpoint, for example when the tool that
// created its first control plane rebuilds that host. With the same CA, kubelets would take the empty cluster's answers for their
// own cluster's, and stop their Pods. A host with a static Pod of the API server, or with data of etcd, belongs to that cluster.
func existingCluster(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		if n.Cluster.ControlPlaneEndpoint == "" || n.Cluster.Etcd.Local == nil ||
			exists(h, manifestPath(n, apiServer)) || exists(h, filepath.Join(n.Cluster.Etcd.Local.DataDir, "member")) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, endpointLimit)
		defer cancel()
		_, err := h.Fetch(ctx, host.Probe{URL: "https://" + n.Endpoint() + "/version"})
		var answer *host.ProbeError
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("whether %s serves a cluster already", n.Endpoint())
		case err == nil, errors.As(err, &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden):
			return fail("an API server answers at %s already, and this host would make a second cluster behind the same endpoint", n.Endpoint()).
				remedy("join the cluster that is there, as a control plane: `slipway token create --print-join-command --control-plane` on one of its control planes prints the command; if that cluster is no longer wanted, stop it first")
		}
		return nil
	}
}
