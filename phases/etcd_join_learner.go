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
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	// wakeTime bounds the watch over a learner that starts; after that time it no longer needs a restart.
	wakeTime = 15 * time.Second
	// serveTime is more than a member needs to serve its clients once the cluster knows its name.
	serveTime = 250 * time.Millisecond
	// learnerGrace is the time that a learner gets to stop. It stops at once.
	learnerGrace = 5 * time.Second
)

// wakeLearner restarts an etcd that waits for something that has already happened.
//
// A new member publishes its name to the cluster, and serves no client until it has seen that entry in the log. With a
// single voter, the entry is often written before the member gets its first snapshot, which then contains it already: the
// member waits for seven seconds (etcd's request timeout) before it publishes its name again. After a restart it has the
// data, and sees the entry. As a learner it has no vote, so nothing depends on it.
//
// This only saves time. Errors are left to the promotion, which waits for as long as it may.
func wakeLearner(ctx context.Context, env *Env, peer string) {
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	probe, err := etcdClientProbe(env)
	if err != nil {
		return
	}
	var known time.Time
	_ = retry.Every(pollInterval).Do(ctx, func(ctx context.Context) error {
		if serves(ctx, env.Host, probe, serveTime) {
			return nil
		}
		switch {
		case !known.IsZero() && env.Host.Now().Sub(known) > serveTime:
			restartLearner(ctx, env)
			return nil
		case known.IsZero():
			members, err := env.Etcd.Members(ctx)
			if err == nil && slices.ContainsFunc(members, func(m etcd.Member) bool { return m.PeerURL == peer && m.Learner && m.Name != "" }) {
				known = env.Host.Now()
			}
		}
		return errors.New("it does not serve yet")
	})
}

func restartLearner(ctx context.Context, env *Env) {
	containers, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err != nil {
		return
	}
	for _, c := range containers {
		env.UI.Printf("Restarting the learner, so that it sees what came with its first snapshot")
		_ = env.Host.StopContainer(ctx, env.Config.CRISocket, c.ID, learnerGrace) // see above
	}
}

// etcdClientProbe asks etcd on its client port, where it accepts no connection before it serves.
func etcdClientProbe(env *Env) (host.Probe, error) {
	row, _ := certs.Find(env.Config, certs.APIServerEtcdClient)
	cert, key, err := env.pki().Read(row)
	if err != nil {
		return host.Probe{}, err
	}
	ca, err := env.pki().CA(row.CA)
	return host.Probe{URL: manifests.EtcdLocalURL(env.Config) + "/health", CA: certs.EncodeCerts(ca.Bundle()...), ClientCert: cert, ClientKey: key}, err
}

// serves reports whether there is any answer within limit: a learner may call itself unhealthy.
func serves(ctx context.Context, h host.Host, p host.Probe, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := h.Probe(ctx, p)
	var answer *host.ProbeError
	return err == nil || errors.As(err, &answer)
}
