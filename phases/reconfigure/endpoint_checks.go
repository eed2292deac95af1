// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

const (
	endpointCheck = "NextEndpoint"
	namesCheck    = "EndpointName"
)

// endpointChecks are those of a node whose clients follow the cluster's endpoint: one that can't reach the API is lost.
func (r *Run) endpointChecks(env *step.Env) []preflight.Check {
	return []preflight.Check{
		question(env, endpointCheck, "the cluster's next endpoint leads to its API servers", r.checkEndpoint),
		question(env, namesCheck, "the other API servers' certificates are for the next endpoint, too", r.checkNames),
	}
}

func (r *Run) checkEndpoint(ctx context.Context, env *step.Env) []fault.Finding {
	files, err := retargetKubeconfigs(env, r.Former)
	switch {
	case err != nil:
		return []fault.Finding{fault.Of(err)}
	case !r.MovesEndpoint() && len(files) == 0:
		return nil
	case r.MovesEndpoint() && env.Config.Cluster.ControlPlaneEndpoint == "":
		return checkAlone(ctx, env)
	}
	endpoint := env.Config.Endpoint()
	err = node.AskServer(ctx, env, endpoint, "")
	if err != nil && getsName(env) {
		err = node.AskServer(ctx, env, endpoint, "kubernetes") // a name in every API server's certificate
	}
	wrong := x509.HostnameError{}
	remedy := fmt.Sprintf("make it lead there first, from every node: DNS or /etc/hosts, and a load balancer that passes TLS through; "+
		"`curl --cacert /etc/kubernetes/pki/ca.crt https://%s/readyz` shows what answers", endpoint)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, host.ErrNotInPlan):
		return []fault.Finding{fault.NewFinding("", fault.Unasked, "", "whether an API server answers at %s", endpoint)}
	case errors.As(err, &wrong):
		remedy = "run `slipway reconfigure node` on the control planes first, which gives their certificates the name"
	}
	return []fault.Finding{fault.NewFinding("", fault.Error, remedy, "%s does not lead to an API server of this cluster: %v", endpoint, err)}
}

// checkAlone is for a change that takes the only endpoint away, as taking one back may.
func checkAlone(ctx context.Context, env *step.Env) []fault.Finding {
	others, err := node.OtherServers(ctx, env)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	if len(others) == 0 {
		return nil
	}
	return []fault.Finding{fault.NewFinding("", fault.Error, "name another controlPlaneEndpoint with `slipway reconfigure --config`",
		"without an endpoint, nodes would know only this control plane, and there are others: %s", strings.Join(others, ", "))}
}

// getsName reports whether this run gives the API server's certificate a name.
func getsName(env *step.Env) bool {
	if !env.Config.ControlPlane {
		return false
	}
	rows, err := lackingNames(env)
	return err == nil && slices.ContainsFunc(rows, isAPIServers)
}

func isAPIServers(row certs.Spec) bool { return row.Name == certs.APIServer }

// checkNames asks each of the other API servers: the endpoint leads clients to any of them.
func (r *Run) checkNames(ctx context.Context, env *step.Env) []fault.Finding {
	name := env.Config.EndpointHost()
	if !r.MovesEndpoint() || name == "" {
		return nil
	}
	others, err := node.OtherServers(ctx, env)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	names := append(slices.Clone(env.Config.Upgrade.Before.Cluster.APIServer.CertSANs), name)
	var found []fault.Finding
	for _, at := range others {
		err := node.AskServer(ctx, env, at, name)
		switch {
		case err == nil:
		case errors.Is(err, host.ErrNotInPlan):
			found = append(found, fault.NewFinding("", fault.Unasked, "", "whether the API server at %s has a certificate for %s", at, name))
		default:
			found = append(found, fault.NewFinding("", fault.Error,
				fmt.Sprintf("first run `slipway reconfigure` with apiServer.certSANs: [%s], and `slipway reconfigure node` on the other control planes; then this again",
					strings.Join(names, ", ")),
				"clients that look for %s would not trust the API server at %s: %v", name, at, err))
		}
	}
	return found
}
