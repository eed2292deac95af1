// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ServingCertificate is the phase kubelet-serving of join, part of init's kubelet-finalize, and the last one of a change of the configuration.
func ServingCertificate() step.Phase {
	return step.Phase{
		Name:    "kubelet-serving",
		Summary: "Approve this kubelet's own request for a serving certificate",
		Flags:   []string{"config", "dry-run"},
		Run:     ensureServing,
		Skip: func(env *step.Env) string {
			if !env.Config.Kubelet.ServerTLSBootstrap {
				return "the kubelet signs its own serving certificate"
			}
			return ""
		},
	}
}

// ensureServing approves the request on a control plane. A worker's kubelet may only ask, so an administrator gets the command. A
// request that can't be approved is no failure: the kubelet serves with its own certificate until then, and somebody else may know
// more about its addresses.
func ensureServing(ctx context.Context, env *step.Env) error {
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil {
		return err
	}
	if !settings.ServerTLSBootstrap {
		env.UI.Printf("This kubelet doesn't ask the cluster for a serving certificate, by this host's own settings")
		return nil
	}
	name := thisnode.RegisteredName(env.Host, env.Config)
	leaf, err := servingLeaf(env, name)
	if err != nil {
		return err
	}
	if leaf == nil {
		return warnUnlessOtherKey(ctx, env, firstServing(ctx, env, name))
	}
	lacks, err := lacksAddress(ctx, env, name, leaf)
	switch {
	case err != nil:
		return warnUnlessOtherKey(ctx, env, err)
	case lacks:
		return warnUnlessOtherKey(ctx, env, movedServing(ctx, env, name, leaf))
	}
	return warnUnlessOtherKey(ctx, env, renewServing(ctx, env, name, leaf))
}

// RenewServing is ensureServing for a kubelet that has had a serving certificate of the cluster. The request for the next comes
// after most of a year, when nobody may remember.
func RenewServing(ctx context.Context, env *step.Env) error {
	if had, err := host.Exists(env.Host, thisnode.KubeletServingPEM(env.Host, env.Settings())); err != nil || !had {
		return err
	}
	return ensureServing(ctx, env)
}

// warnUnlessOtherKey makes a warning of an error, unless somebody else has this node's credentials.
func warnUnlessOtherKey(ctx context.Context, env *step.Env, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, errAnotherKey) {
		return err
	}
	ui.WarnError(env.UI, fault.WithRemedy(errors.WithMessage(err, "the kubelet has no new serving certificate of the cluster yet"),
		"compare its request with this host, and approve it with `kubectl certificate approve`; `slipway reconfigure node` tries again"))
	return nil
}

// firstServing waits for the request of a kubelet that has no valid certificate of the cluster.
func firstServing(ctx context.Context, env *step.Env, name string) error {
	if hasCloudsAddresses(env) {
		return errors.New("this host can't confirm the kubelet's addresses, which come from a cloud provider")
	}
	former, err := restartAsking(ctx, env, name)
	if err != nil {
		return err
	}
	return awaitRequest(ctx, env, name, former)
}

// movedServing waits for the request of a kubelet whose certificate isn't for its present address: it asks within seconds.
func movedServing(ctx context.Context, env *step.Env, name string, leaf *x509.Certificate) error {
	pending, err := env.Cluster.ServingRequests(ctx, name)
	if err != nil {
		return err
	}
	isFormer, err := olderThanKubelet(ctx, env)
	if err != nil {
		return err
	}
	var former []string
	for _, r := range pending {
		if isFormer(r) || !asksForMore(&r, leaf) {
			former = append(former, r.Metadata.UID)
		}
	}
	return awaitRequest(ctx, env, name, former)
}

// awaitRequest waits for a request other than the former ones, which have these UIDs, and approves it.
func awaitRequest(ctx context.Context, env *step.Env, name string, former []string) error {
	limit := env.Config.Timeouts.TLSBootstrap
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	env.UI.Printf("Waiting for the kubelet's request for a serving certificate, up to %s", limit)
	var refused error
	request, err := env.Cluster.AwaitServing(ctx, name, former, func(r *cluster.CertificateRequest) error {
		if r != nil {
			refused = checkServing(env, name, r)
			return nil
		}
		serves, err := hasCurrentServingCert(ctx, env, name) // somebody else may have approved it
		if err == nil && !serves {
			err = errors.Errorf("the kubelet of Node %s has not asked for a serving certificate; `journalctl -u kubelet` shows why", name)
		}
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return err
	}
	serves, err := hasCurrentServingCert(ctx, env, name)
	if err != nil || serves || request == nil {
		return err
	}
	return approveServing(ctx, env, request)
}

// hasCurrentServingCert reports whether the kubelet has a valid certificate of the cluster for its present addresses.
func hasCurrentServingCert(ctx context.Context, env *step.Env, name string) (bool, error) {
	leaf, err := servingLeaf(env, name)
	if err != nil || leaf == nil {
		return false, err
	}
	lacks, err := lacksAddress(ctx, env, name, leaf)
	return !lacks, err
}

// hasCloudsAddresses reports whether a cloud provider gives the Node its addresses, some time after the kubelet has registered it.
func hasCloudsAddresses(env *step.Env) bool {
	return slices.ContainsFunc(thisnode.EffectiveFlags(env.Host, env.Settings()), func(f thisnode.KubeletFlag) bool {
		return f.Name == "cloud-provider" && f.Value == "external"
	})
}

// restartAsking restarts a control plane's kubelet that has asked already, and returns the UIDs of its requests: they outlive the
// process that has their keys, so nobody can tell which is still wanted.
func restartAsking(ctx context.Context, env *step.Env, name string) (former []string, err error) {
	if !env.Config.ControlPlane {
		return nil, nil
	}
	pending, err := env.Cluster.ServingRequests(ctx, name)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	for _, r := range pending {
		former = append(former, r.Metadata.UID)
	}
	env.UI.Printf("Restarting the kubelet, so that its next request is certainly one of the running kubelet")
	return former, node.RestartKubelet(ctx, env)
}

// olderThanKubelet recognizes requests of a former kubelet process, whose keys are lost. Without systemd, none is recognized.
func olderThanKubelet(ctx context.Context, env *step.Env) (func(cluster.CertificateRequest) bool, error) {
	unit, err := env.Host.Unit(ctx, node.KubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		err = nil
	}
	since := unit.ActiveSince.Truncate(time.Second) // as requests are
	return func(r cluster.CertificateRequest) bool { return r.Metadata.CreationTimestamp.Time.Before(since) }, err
}

// renewServing approves the request for the next certificate, if the running kubelet has made one: after 70 percent of the present one's
// time, at the earliest, or when the host has another name or address. After a restart, it may ask weeks later.
func renewServing(ctx context.Context, env *step.Env, name string, leaf *x509.Certificate) error {
	until := leaf.NotAfter.UTC().Format(time.DateOnly)
	pending, err := env.Cluster.ServingRequests(ctx, name)
	if err != nil {
		return err
	}
	isFormer, err := olderThanKubelet(ctx, env)
	if err != nil {
		return err
	}
	pending = slices.DeleteFunc(slices.Clone(pending), isFormer)
	due := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 10 * 7)
	if len(pending) == 0 || env.Host.Now().Before(due) && !asksForMore(&pending[len(pending)-1], leaf) {
		env.UI.Printf("The kubelet has a serving certificate of the cluster, until %s", until)
		return nil
	}
	newest := &pending[len(pending)-1]
	if err = checkServing(env, name, newest); err == nil {
		limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.TLSBootstrap)
		defer cancel()
		err = approveServing(limited, env, newest)
	}
	return errors.WithMessagef(err, "its present one expires on %s", until)
}

// approveServing approves a request with nothing but this host's names and addresses, or tells a worker's administrator to.
func approveServing(ctx context.Context, env *step.Env, request *cluster.CertificateRequest) error {
	if !env.Config.ControlPlane {
		env.UI.Nextf("The kubelet has asked for a serving certificate, for names and addresses of this host. Compare and approve its newest request\n"+
			"as an administrator; after a quarter of an hour, it makes another one:\n  kubectl certificate approve %s", request.Name())
		return nil
	}
	before, err := host.ReadIfExists(env.Host, thisnode.KubeletServingPEM(env.Host, env.Settings()))
	if err != nil {
		return err
	}
	env.UI.Printf("Approving %s, which has only names and addresses of this host", request.Name())
	if err := env.Cluster.Approve(ctx, request, "its names and addresses are those of the host, as slipway found there"); err != nil {
		return err
	}
	return awaitServing(ctx, env, request, before)
}

var errAnotherKey = errors.New("it has a certificate with another key")

// awaitServing waits for the certificate after the one before. A request that the kubelet hasn't made was made by somebody with this
// node's credentials: a kubelet keeps the key in its memory until it has the certificate, so nobody can compare it before.
func awaitServing(ctx context.Context, env *step.Env, request *cluster.CertificateRequest, before []byte) error {
	path, own := thisnode.KubeletServingPEM(env.Host, env.Settings()), true
	err := env.Host.AwaitFile(ctx, path, func(data []byte) error {
		if bytes.Equal(data, before) {
			return errors.New("it has the previous one")
		}
		chain, err := certs.ParseChain(data)
		if err != nil {
			return err
		}
		asked, err := parseRequest(request.Spec.Request)
		own = err != nil || certs.SameKey(chain[0].PublicKey, asked.PublicKey)
		return err
	})
	if err == nil && !own {
		err = errAnotherKey
	}
	return fault.WithRemedy(errors.WithMessagef(err, "the kubelet has not got the certificate of %s in %s", request.Name(), path),
		"`journalctl -u kubelet` shows why; if the kubelet has not made this request, somebody else has this node's credentials")
}

// servingLeaf is the kubelet's certificate of the cluster's CA; nil if it has none that's valid now.
func servingLeaf(env *step.Env, name string) (*x509.Certificate, error) {
	data, err := host.ReadIfExists(env.Host, thisnode.KubeletServingPEM(env.Host, env.Settings()))
	if err != nil || data == nil {
		return nil, err
	}
	chain, err := certs.ParseChain(data)
	if err != nil {
		return nil, errors.WithMessage(err, thisnode.KubeletServingPEM(env.Host, env.Settings()))
	}
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil {
		return nil, err
	}
	ca, err := env.Host.ReadFile(settings.Authentication.X509.ClientCAFile)
	if err != nil {
		return nil, err
	}
	trusted, err := certs.ParseCerts(ca)
	if err != nil {
		return nil, errors.WithMessage(err, settings.Authentication.X509.ClientCAFile)
	}
	leaf, now := chain[0], env.Host.Now()
	valid := !now.Before(leaf.NotBefore) && !now.After(leaf.NotAfter)
	if valid && leaf.Subject.CommonName == cluster.NodeUser(name) && pki.Verify(chain, trusted, now) == nil {
		return leaf, nil
	}
	return nil, nil
}
