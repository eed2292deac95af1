// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/parallel"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

const certificatesCheck = "KubeletCertificates"

// kubeletCertificates finds kubelets that the API server would refuse once it verifies their certificates: kubectl logs and exec would
// fail for their Pods. If it verifies them with the same file
// already, they aren't asked.
func kubeletCertificates(ctx context.Context, env *step.Env) []fault.Finding {
	path, _ := config.LastArg(env.Config.Cluster.APIServer.ExtraArgs, profile.KubeletAuthorityFlag)
	if path == "" || verifiesKubelets(env, path) {
		return nil
	}
	ca, err := env.Host.ReadFile(path)
	if err != nil {
		return []fault.Finding{fault.NewFinding(certificatesCheck, fault.Warning, "make sure that it has the CA of all kubelets' serving certificates",
			"not checked whether the API server will accept the kubelets: %v", err)}
	}
	nodes, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	refused, first := refusedKubelets(ctx, env, nodes, ca)
	switch {
	case len(refused) == 0:
		return nil
	case errors.Is(first, host.ErrNotInPlan):
		return []fault.Finding{fault.NewFinding(certificatesCheck, fault.Unasked, "", "whether the kubelets have certificates of %s", path)}
	}
	return []fault.Finding{fault.NewFinding(certificatesCheck, fault.Error,
		"with serverTLSBootstrap, `slipway reconfigure node` on each of them gets the certificate, or says what an administrator has to approve",
		"with --%s=%s, kubectl logs and exec would fail on %s: %v", profile.KubeletAuthorityFlag, path, namesOf(refused), first)}
}

// verifiesKubelets reports whether this node's API server verifies kubelets with the CA at path.
func verifiesKubelets(env *step.Env, path string) bool {
	pod, _ := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	return manifests.FlagOf(pod, profile.KubeletAuthorityFlag) == path
}

// askedAtOnce is how many kubelets are asked side by side.
const askedAtOnce = 32

// refusedKubelets are the Nodes whose kubelets don't prove themselves with a certificate of the CA, and the first one's error.
func refusedKubelets(ctx context.Context, env *step.Env, nodes []corev1.Node, ca []byte) (names []string, first error) {
	type answer struct {
		node string
		err  error
	}
	answers := parallel.Map(nodes, askedAtOnce, func(n corev1.Node) answer {
		_, err := env.Host.Date(ctx, host.Probe{URL: "https://" + kubeletAddress(&n) + "/healthz", CA: ca})
		return answer{n.Name, err}
	})
	for _, a := range answers {
		if a.err != nil {
			names, first = append(names, a.node), cmp.Or(first, a.err)
		}
	}
	return names, first
}

// kubeletAddress is where API servers connect to a Node's kubelet, by the order of addresses that Slipway gives them.
func kubeletAddress(n *corev1.Node) string {
	at := n.Name
	for _, kind := range []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeExternalIP, corev1.NodeInternalIP} {
		i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == kind })
		if i >= 0 {
			at = n.Status.Addresses[i].Address
		}
	}
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	return net.JoinHostPort(at, strconv.Itoa(int(port)))
}
