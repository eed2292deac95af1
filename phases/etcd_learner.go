// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	// wakeTime bounds looking after a learner that starts; after it, the
	// learner has found its way by itself.
	wakeTime = 15 * time.Second
	// serveTime is ample for a member whose name the cluster knows to serve
	// its clients.
	serveTime = 250 * time.Millisecond
	// learnerGrace is what a learner gets to end in. It ends at once.
	learnerGrace = 5 * time.Second
)

// wakeLearner restarts an etcd that waits for what has happened already.
//
// A new member tells the cluster its name, and serves nobody until it sees
// that written. Where one voter decides alone, it is written before the member
// has its first snapshot, which then holds it already: the member waits for
// seven seconds (etcd's request timeout), then tells its name once more. After
// a restart it has the data, and sees what is written. As a learner it has no
// vote: nobody misses it.
//
// This only saves time. Whatever goes wrong in it is left to the promotion,
// which waits for as long as it may.
func wakeLearner(ctx context.Context, env *Env, peer string) {
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	probe, err := etcdClientProbe(env)
	if err != nil {
		return
	}
	var known time.Time
	for {
		if serves(ctx, env.Host, probe, serveTime) {
			return
		}
		switch {
		case !known.IsZero() && env.Host.Now().Sub(known) > serveTime:
			restartLearner(ctx, env)
			return
		case known.IsZero():
			members, err := env.Etcd.Members(ctx)
			if err == nil && slices.ContainsFunc(members, func(m etcd.Member) bool { return m.PeerURL == peer && m.Learner && m.Name != "" }) {
				known = env.Host.Now()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollInterval):
		}
	}
}

func restartLearner(ctx context.Context, env *Env) {
	containers, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err != nil {
		return
	}
	for _, c := range containers {
		env.UI.Printf("Restarting the learner, which waits for what it has got with its first snapshot")
		_ = env.Host.StopContainer(ctx, env.Config.CRISocket, c.ID, learnerGrace) // see above
	}
}

// etcdClientProbe asks etcd where its clients do. It accepts nobody there
// before it serves.
func etcdClientProbe(env *Env) (host.Probe, error) {
	row, _ := certs.Find(env.Config, certs.APIServerEtcdClient)
	cert, key, err := env.pki().Read(row)
	if err != nil {
		return host.Probe{}, err
	}
	ca, err := env.pki().CA(row.CA)
	return host.Probe{URL: manifests.EtcdLocalURL(env.Config) + "/health", CA: certs.EncodeCerts(ca.Bundle()...), ClientCert: cert, ClientKey: key}, err
}

// serves reports whether there is an answer within limit, whatever it is: a
// learner may call itself unhealthy.
func serves(ctx context.Context, h host.Host, p host.Probe, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := h.Probe(ctx, p)
	var answer *host.ProbeError
	return err == nil || errors.As(err, &answer)
}
