// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// reloads is how often an API server is asked what it has loaded: its metrics are several megabytes.
var reloads = retry.Policy{First: time.Second, Slowest: 4 * time.Second, Retryable: func(err error) bool {
	late := notLoadedError{}
	return errors.As(err, &late)
}}

// serverState is what decides about the next step.
type serverState struct {
	own     encryption.Order
	servers []encryption.Server
}

// nextStep waits until this host's API server has loaded its file, looks at all API servers, and says what to do next. lacking
// gets the Secrets whose values don't have the target's prefix, if that matters.
func nextStep(ctx context.Context, env *step.Env, ring encryption.Keyring, lacking func([]string)) (s serverState, next encryption.Step, err error) {
	o, err := ownFile(env)
	if err == nil && o.data == nil {
		err = errors.New("this host has no file with encryption keys: phase `keys` writes it")
	}
	if err == nil {
		err = writeOwn(env, o.data) // it may have another owner
	}
	if err == nil {
		err = awaitLoaded(ctx, env, encryption.Hash(o.data))
	}
	if err != nil {
		return s, next, err
	}
	s.own = o.order
	if s.servers, err = servers(ctx, env, ring); err != nil {
		return s, next, err
	}
	next, err = encryption.Next(ring.Target, s.own, s.servers, func() (now encryption.Values, err error) {
		v, err := readValues(ctx, env, ring.Target)
		if err == nil {
			err = v.check()
		}
		if err == nil {
			now.Others, err = v.providers(ring)
		}
		lacking(v.others)
		return now, err
	})
	return s, next, err
}

// loaded asks an API server for the hash of its loaded file.
func loaded(ctx context.Context, env *step.Env, server string) (hash string, err error) {
	q := cluster.Query{Path: "/metrics", Accept: "text/plain", Server: server}
	err = env.Cluster.Read(ctx, q, func(r io.Reader) (err error) {
		hash, err = encryption.Loaded(r)
		return err
	})
	return hash, err
}

// servers asks each API server of the cluster what it has loaded. It fails if it doesn't see all of them.
func servers(ctx context.Context, env *step.Env, ring encryption.Keyring) (list []encryption.Server, err error) {
	here, err := ownFile(env)
	if err != nil {
		return nil, err
	}
	addresses, err := addresses(ctx, env)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		hash, err := loaded(ctx, env, a.address)
		if err != nil {
			return nil, fault.WithRemedy(errors.WithMessagef(err, "the API server of %s doesn't report the keys it has loaded", a.node),
				"`slipway diagnose` there says what is wrong; remove a control plane that will not come back (`slipway reset node "+a.node+"`)")
		}
		s := encryption.Server{Node: a.node}
		switch found := false; {
		case hash == "":
		case here.data != nil && hash == encryption.Hash(here.data): // with whatever `recall` has added
			s.Order = here.order
		default:
			if s.Order, found = ring.Find(hash, here.order...); !found {
				return nil, fault.New("the API server of "+a.node+" has loaded an EncryptionConfiguration that this host does not know",
					"if the encryption is managed outside Slipway, continue by hand; otherwise, run `slipway encryption enable` there, or `recall` the same old keys here")
			}
		}
		list = append(list, s)
	}
	return list, nil
}

type server struct{ node, address string }

// addresses finds the API servers by their Pods on control planes. The Service's endpoints, which the API servers write themselves,
// and etcd's members show whether one is missing: a control plane that joins is a member before its API server starts.
func addresses(ctx context.Context, env *step.Env) (list []server, err error) {
	nodes, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := env.Cluster.Pods(ctx, metav1.NamespaceSystem, "component="+manifests.APIServerName)
	if err != nil {
		return nil, err
	}
	planes := cluster.ControlPlanesOf(nodes)
	planes.Count(nodes, env.Config.Name)
	list = []server{{env.Config.Name, env.Config.LocalEndpoint()}}
	known, _ := planes.Pods(pods)
	for _, pod := range known {
		s := server{pod.Spec.NodeName, pod.Annotations[manifests.AdvertiseAnnotation]}
		if s.node != env.Config.Name && s.address != "" { // without an address, this host's own API server would answer
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b server) int { return strings.Compare(a.node, b.node) })
	missing, err := unseen(ctx, env, planes, list)
	if err == nil && len(missing) > 0 {
		err = fault.New("not all API servers of the cluster are known: "+strings.Join(missing, ", "),
			"if a control plane is joining or starting, run the same command again afterwards; remove one that will not come back (`slipway reset node NAME`)")
	}
	return list, err
}

// unseen returns the signs of API servers missing from the list.
func unseen(ctx context.Context, env *step.Env, planes cluster.ControlPlanes, list []server) (missing []string, err error) {
	has := func(node string) bool {
		return slices.ContainsFunc(list, func(s server) bool { return s.node == node })
	}
	for name := range planes {
		if !has(name) {
			missing = append(missing, "control plane "+name+" has no Pod of an API server with the annotation "+manifests.AdvertiseAnnotation)
		}
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault}}
	if _, err := env.Cluster.Get(ctx, slice); err != nil {
		return nil, err
	}
	for _, e := range slice.Endpoints {
		for _, address := range e.Addresses {
			if !slices.ContainsFunc(list, func(s server) bool { return cluster.SameHost(hostOf(s.address), address) }) {
				missing = append(missing, "the Service kubernetes has the endpoint "+address)
			}
		}
	}
	if env.Config.Cluster.Etcd.External == nil {
		members, err := env.Etcd.Members(ctx)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if !has(m.Name) {
				missing = append(missing, "etcd has the member "+m.Label())
			}
		}
	}
	slices.Sort(missing)
	return missing, nil
}

func hostOf(endpoint string) string {
	i := strings.LastIndex(endpoint, ":")
	if i < 0 {
		return endpoint
	}
	return strings.Trim(endpoint[:i], "[]")
}
