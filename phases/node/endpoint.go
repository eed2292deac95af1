// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"path"
	"slices"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// proxyDelay is how long the nodes' kube-proxies get to notice that an endpoint is gone. They apply changes at most once a
// second by default (minSyncPeriod), and need a moment to do so; after ten seconds, the API server adds itself again.
const proxyDelay = 8 * time.Second

// withdrawEndpoint takes this node's API server out of the Service "kubernetes" while it still serves, if there are others:
// without this, kube-proxy would send connections to it for some seconds after it has stopped. A failure is only a warning,
// because clients can connect again.
//
// Each API server writes a key to etcd every ten seconds, and makes the endpoints of the Service equal to the keys that are
// there, which live for 15 seconds: https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/,
// --endpoint-reconciler-type=lease. So the key has to go, and the endpoint.
func withdrawEndpoint(ctx context.Context, env *step.Env) error {
	address := env.Config.AdvertiseAddress.String()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: kubernetesService()}
	others := false
	if found, err := env.Cluster.Get(ctx, slice); err != nil || !found {
		return errors.WithMessage(err, "find the endpoints of the API servers")
	}
	for _, e := range slice.Endpoints {
		others = others || !slices.Contains(e.Addresses, address)
	}
	if !others {
		return nil
	}
	env.UI.Printf("Moving the clients of the Service kubernetes to the other API servers")
	prefix, _ := config.LastArg(env.Config.Cluster.APIServer.ExtraArgs, "etcd-prefix")
	withdrawn, err := env.Etcd.Withdraw(ctx, path.Join(cmp.Or(prefix, "/registry"), "masterleases", address))
	if err != nil || !withdrawn {
		return err
	}
	enough := time.After(proxyDelay)
	if err := removeEndpoint(ctx, env, address); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-enough:
		return nil
	}
}

func kubernetesService() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault}
}

// removeEndpoint removes an address from what kube-proxy reads, and from the older object that some clients still read.
func removeEndpoint(ctx context.Context, env *step.Env, address string) error {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: kubernetesService()}
	_, err := env.Cluster.Update(ctx, slice, func() (bool, error) {
		before := len(slice.Endpoints)
		slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return slices.Contains(e.Addresses, address)
		})
		return len(slice.Endpoints) < before, nil
	})
	if err != nil {
		return err
	}
	//nolint:staticcheck // The API servers still write this one, too.
	endpoints := &corev1.Endpoints{ObjectMeta: kubernetesService()}
	_, err = env.Cluster.Update(ctx, endpoints, func() (changed bool, err error) {
		for i := range endpoints.Subsets {
			s := &endpoints.Subsets[i]
			before := len(s.Addresses)
			s.Addresses = slices.DeleteFunc(s.Addresses, func(a corev1.EndpointAddress) bool { return a.IP == address })
			changed = changed || len(s.Addresses) < before
		}
		return changed, nil
	})
	return err
}

// prepareTime bounds prepareStop, which waits for the API server to write its key, within ten seconds, and then for
// kube-proxy.
const prepareTime = proxyDelay + 20*time.Second

// prepareStop does what has to be done while a component still runs, so that its clients do not notice that it stops. For a
// component that is down already, there is nothing to do.
func prepareStop(ctx context.Context, env *step.Env, component string) {
	prepare, missed := withdrawEndpoint, "some clients may have to connect again"
	switch component {
	case manifests.APIServerName:
	case manifests.EtcdName:
		prepare, missed = giveUpLead, "etcd will elect another leader while this member restarts"
	default:
		return
	}
	if !IsHealthy(ctx, env, component) {
		return
	}
	limited, cancel := context.WithTimeoutCause(ctx, prepareTime, errors.Errorf("not within %s", prepareTime))
	defer cancel()
	if err := prepare(limited, env); err != nil && ctx.Err() == nil {
		ui.WarnError(env.UI, errors.WithMessage(err, missed))
	}
}
