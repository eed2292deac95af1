// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"net"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

// proxyDelay gives kube-proxies time to notice that an endpoint is gone. By default they apply changes at most once a second
// (minSyncPeriod), and need a moment to do so. After ten seconds, the API server would add itself again.
const proxyDelay = 8 * time.Second

// withdrawEndpoint takes this node's API server out of the Service "kubernetes" before it stops, if there are others. Otherwise,
// kube-proxy would still send it connections for some seconds. Failures only cause a warning: clients can connect again.
//
// Each API server writes a key with a TTL of 15 seconds to etcd every ten seconds, and makes the Service's endpoints match all
// keys: https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/, --endpoint-reconciler-type=lease. So
// both the key and the endpoint have to go.
func withdrawEndpoint(ctx context.Context, env *step.Env) error {
	address := cmp.Or(thisnode.Advertised(env.Host).AdvertiseAddress, env.Config.AdvertiseAddress.String())
	slice := &discoveryv1.EndpointSlice{ObjectMeta: kubernetesService()}
	if found, err := env.Cluster.Get(ctx, slice); err != nil || !found {
		return errors.WithMessage(err, "find the endpoints of the API servers")
	}
	other := func(e discoveryv1.Endpoint) bool { return !slices.Contains(e.Addresses, address) }
	if !slices.ContainsFunc(slice.Endpoints, other) {
		return nil
	}
	env.UI.Printf("Moving the clients of the Service kubernetes to the other API servers")
	withdrawn, err := withdrawKey(ctx, env, address)
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

func withdrawKey(ctx context.Context, env *step.Env, address string) (bool, error) {
	prefix, _ := config.LastArg(env.Config.Cluster.APIServer.ExtraArgs, "etcd-prefix")
	return env.Etcd.Withdraw(ctx, path.Join("/", cmp.Or(prefix, "/registry"), "masterleases", address))
}

// ForgetEndpoint takes an address without an API server out of the Service "kubernetes", once its key has expired.
func ForgetEndpoint(ctx context.Context, env *step.Env, address string) error {
	if _, err := withdrawKey(ctx, env, address); err != nil {
		return err
	}
	return removeEndpoint(ctx, env, address)
}

// AskServer asks the API server at host:port with the CAs that this node's kubelet trusts, and without credentials. Its certificate has
// to be for name, or for the host if that's empty. Any answer will do.
func AskServer(ctx context.Context, env *step.Env, endpoint, name string) error {
	conf, err := thisnode.ReadKubeletFile(env.Host, env.Config.Paths.KubeletKubeconfig())
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	_, err = env.Host.Date(limited, host.Probe{URL: "https://" + endpoint + "/readyz", CA: certs.EncodeCerts(conf.Trusted...), ServerName: name})
	return err
}

// OtherServers returns the host:port of each other API server, by the Service "kubernetes", which only API servers write.
func OtherServers(ctx context.Context, env *step.Env) (others []string, err error) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: kubernetesService()}
	if _, err := env.Cluster.Get(ctx, slice); err != nil {
		return nil, err
	}
	port := int32(config.DefaultBindPort)
	if len(slice.Ports) > 0 && slice.Ports[0].Port != nil {
		port = *slice.Ports[0].Port
	}
	for _, e := range slice.Endpoints {
		for _, address := range e.Addresses {
			if address != env.Config.AdvertiseAddress.String() {
				others = append(others, net.JoinHostPort(address, strconv.Itoa(int(port))))
			}
		}
	}
	return others, nil
}

func kubernetesService() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault}
}

// removeEndpoint removes an address from the object for kube-proxy, and from its predecessor, which some clients still read.
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
	//nolint:staticcheck // The API servers still write this object, too.
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
