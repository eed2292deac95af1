// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package joining works out the config.Node of a joining host. Discovery.Node finds the cluster through internal/discovery, reads
// its stored configuration, and, for a control plane, fetches the shared certificates, still encrypted (the phase download-certs
// decrypts and writes them). Discovery.Assume guesses all of it for a plan that asks nobody. It changes nothing.
// docs/design/discovery-before-phases.md has the reasons.
package joining

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/discovery"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// Discovery determines the desired state of a joining node. It runs before the phases, which need the result, and changes
// nothing.
type Discovery struct {
	Host host.Host
	UI   ui.UI
	// Connect returns a kubeconfig's API.
	Connect func(kubeconfig []byte) cluster.Cluster
	// Options apply to loading the cluster's stored configuration.
	Options config.Options
}

// Node finds and verifies self's cluster, and reads its nodes' shared configuration. The warnings are for the user.
func (d *Discovery) Node(ctx context.Context, self *config.JoinConfiguration) (*config.Node, []string, error) {
	began := d.Host.Now()
	join, err := d.find(ctx, self)
	if err != nil {
		return nil, nil, err
	}
	join.Began = began
	api := d.Connect([]byte(join.Kubeconfig.Reveal()))
	stored, err := d.stored(ctx, api, join, self)
	if err != nil {
		return nil, nil, err
	}
	kubelet, err := storedKubelet(ctx, api)
	if err != nil {
		return nil, nil, err
	}
	n, warnings, err := config.LoadCluster(stored, kubelet, nil, self, d.Options)
	if err != nil {
		return nil, warnings, err
	}
	n = n.With(func(n *config.Node) { n.Join = join }) // complete once this function returns
	if err = d.nameIsFree(ctx, api, n, join); err == nil && n.ControlPlane {
		join.Shared, err = d.forControlPlane(ctx, api, n, self.Discovery.TLSBootstrapToken)
	}
	return n, warnings, err
}

// forControlPlane checks that the cluster can have more than one control plane, and fetches the encrypted files this host lacks.
// Nodes may not read these, so a host that joins again needs its token here.
func (d *Discovery) forControlPlane(ctx context.Context, api cluster.Cluster, n *config.Node, token string) (map[string][]byte, error) {
	if n.Cluster.ControlPlaneEndpoint == "" {
		return nil, fault.New("the cluster has no controlPlaneEndpoint, an address that leads to all of its control planes, so it cannot have another one",
			"give it one on its control plane: `slipway reconfigure` with the field controlPlaneEndpoint of the ClusterConfiguration")
	}
	shared, err := pki.Store{Host: d.Host, Config: n, UI: d.UI}.MissingShared()
	if err != nil || len(shared.Missing) == 0 || n.CertificateKey.IsZero() {
		return nil, err
	}
	if !n.Join.Rejoins || token == "" {
		return sharedCertificates(ctx, api)
	}
	ca, err := certs.ParseCerts(n.Join.CA)
	if err != nil {
		return nil, err
	}
	credentials, err := bootstrapKubeconfig(discovery.Cluster{Server: n.Join.Server, CA: ca}, token)
	if err != nil {
		return nil, err
	}
	api = d.Connect(credentials)
	files, err := onceKnown(ctx, n.Timeouts.Discovery, func(ctx context.Context) (map[string][]byte, error) {
		return sharedCertificates(ctx, api)
	})
	if apierrors.IsUnauthorized(err) && ctx.Err() == nil {
		err = refused(err, token)
	}
	return files, err
}

const (
	// newTokenTimeout is how long an API server may take to learn of a new token, at least. It watches tokens, so this takes
	// milliseconds, or longer on a slow host, for which a user raises the limit of discovery.
	newTokenTimeout = 3 * time.Second
	newTokenDelay   = 200 * time.Millisecond // before the second request
)

// stored makes the first request with the joining node's credentials.
func (d *Discovery) stored(ctx context.Context, api cluster.Cluster, join *config.Join, self *config.JoinConfiguration) ([]byte, error) {
	stored, err := onceKnown(ctx, self.Timeouts.Discovery.Duration, func(ctx context.Context) ([]byte, error) {
		return StoredConfiguration(ctx, api)
	})
	switch {
	case !apierrors.IsUnauthorized(err) || ctx.Err() != nil:
	case join.Rejoins:
		err = refusedMember(err, join)
	default:
		err = refused(err, self.Discovery.TLSBootstrapToken)
	}
	return stored, err
}

// onceKnown reads again while an API server may still have to learn of a new token. limit is that of discovery.
func onceKnown[T any](ctx context.Context, limit time.Duration, read func(context.Context) (T, error)) (result T, err error) {
	deadline := time.Now().Add(max(newTokenTimeout, limit/100))
	unknown := func(err error) bool { return apierrors.IsUnauthorized(err) && time.Now().Before(deadline) }
	err = retry.Policy{First: newTokenDelay, Retryable: unknown}.Do(ctx, func(ctx context.Context) (err error) {
		result, err = read(ctx)
		return err
	})
	return result, err
}

// refused adds to err which credentials the API server doesn't accept, and a remedy.
func refused(err error, token string) error {
	if id, _, given := strings.Cut(token, "."); given {
		err = errors.Wrapf(err, "the API server does not accept the token with ID %s: it has expired, is unknown, or lacks the usage \"authentication\"", id)
		return fault.WithRemedy(err, "create a new one with `slipway token create --print-join-command` on a control plane")
	}
	err = errors.Wrap(err, "the API server does not accept this node's credentials")
	return fault.WithRemedy(err, "check those in the discovery file: they may have expired, or be from another cluster")
}

// find discovers the cluster within the configured time. A member needs no token.
func (d *Discovery) find(ctx context.Context, self *config.JoinConfiguration) (*config.Join, error) {
	if join := d.memberAlready(self); join != nil {
		return d.reachable(ctx, join, "https://"+self.Discovery.BootstrapToken.APIServerEndpoint)
	}
	limit := self.Timeouts.Discovery.Duration
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, credentials, err := d.ask(ctx, &self.Discovery, limit.String())
	if err != nil {
		return nil, err
	}
	join, err := d.joinTo(found, credentials, self)
	if err != nil {
		return nil, err
	}
	return d.reachable(ctx, join, found.Server)
}

// memberAlready returns this host's membership if it has already joined the cluster in a token's configuration; otherwise nil.
func (d *Discovery) memberAlready(self *config.JoinConfiguration) *config.Join {
	if t := self.Discovery.BootstrapToken; t != nil {
		return d.membership(self, d.askedFor(t))
	}
	return nil
}

// joinTo says how this node joins the discovered cluster.
func (d *Discovery) joinTo(found discovery.Cluster, credentials []byte, self *config.JoinConfiguration) (*config.Join, error) {
	if join := d.membership(self, sharedWith(found.CA)); join != nil {
		return join, nil
	}
	if token := self.Discovery.TLSBootstrapToken; token != "" {
		var err error
		if credentials, err = bootstrapKubeconfig(found, token); err != nil {
			return nil, err
		}
	}
	if credentials == nil {
		return nil, fault.New("the discovery file has no credentials for this node", "give a token with --tls-bootstrap-token (discovery.tlsBootstrapToken)")
	}
	d.UI.Printf("Found the cluster at %s", found.Server)
	return &config.Join{Server: found.Server, CA: certs.EncodeCerts(found.CA...), CAPath: self.CACertPath,
		Kubeconfig: config.NewSecret(string(credentials))}, nil
}

func (d *Discovery) ask(ctx context.Context, how *config.Discovery, limit string) (discovery.Cluster, []byte, error) {
	if how.File != nil {
		d.UI.Printf("Reading the cluster's address and CA from %s", discovery.Shown(how.File.KubeConfigPath))
		return discovery.ByFile(ctx, discovery.File{
			Location: how.File.KubeConfigPath, ReadFile: d.Host.ReadFile, Progress: d.UI.Printf,
		})
	}
	t := how.BootstrapToken
	d.UI.Printf("Asking %s for the cluster, up to %s", t.APIServerEndpoint, limit)
	if t.UnsafeSkipCAVerification {
		d.UI.Warnf("the CA is not verified by its hash: anyone who knows the token can pose as this cluster")
	}
	id, secret, _ := strings.Cut(t.Token, ".")
	found, err := discovery.ByToken(ctx, discovery.Token{
		Endpoint: t.APIServerEndpoint, ID: id, Secret: secret,
		Pins: t.CACertHashes, NoPins: t.UnsafeSkipCAVerification && len(t.CACertHashes) == 0,
		Now: d.Host.Now, Progress: d.UI.Printf,
	})
	return found, nil, err
}

// bootstrapKubeconfig lets the kubelet ask for its certificate with a token:
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/
func bootstrapKubeconfig(found discovery.Cluster, token string) ([]byte, error) {
	spec := kubeconfig.Spec{Certificate: certs.Spec{CommonName: "tls-bootstrap-token-user"}, Server: found.Server}
	named := &config.Node{Cluster: config.ClusterConfiguration{ClusterName: "kubernetes"}}
	return kubeconfig.BuildWithToken(spec, named, found.CA, config.NewSecret(token))
}

// nameIsFree refuses the name of a working node: two kubelets would fight over it. A node that isn't Ready may be an earlier
// installation of this host, and a node whose expired certificate is here is this host. nameIsFree also records in join, for a host
// that's a member, whether the cluster still has its Node, and, for any host, whether the Node is marked as a control plane.
func (d *Discovery) nameIsFree(ctx context.Context, api cluster.Cluster, n *config.Node, join *config.Join) error {
	registered := cluster.NewNode(n.Name)
	found, err := api.Get(ctx, registered)
	if err != nil {
		return err
	}
	_, join.Marked = registered.Labels[cluster.LabelControlPlane]
	err = thisnode.CheckMember(d.Host, n)
	if err == nil {
		join.NodeGone = !found
		return nil
	}
	var expired *thisnode.ExpiredError
	if errors.As(err, &expired) { // its Node may look Ready for a while
		return nil
	}
	ready := slices.ContainsFunc(registered.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !found || !ready {
		return nil
	}
	return fault.WithRemedy(errors.Errorf("the cluster already has a node %q, which is Ready", n.Name),
		"join with another name (--node-name) or, if it was this host, delete that node first: `kubectl delete node "+n.Name+"`")
}

// StartedNode is this node as described by its kubelet's files, for phases after kubelet-start with no need to know the cluster.
func StartedNode(h host.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, error) {
	kubelet, err := host.ReadIfExists(h, config.DefaultPaths().KubeletConfig())
	if err != nil {
		return nil, err
	}
	n, _, err := config.LoadCluster(config.DefaultCluster(), kubelet, nil, self, opts)
	return n, err
}

// JoinedNode is a control plane as described by the cluster's configuration, for phases after control-plane-prepare: they have an
// administrator's credentials. The warnings are for the user.
func JoinedNode(ctx context.Context, api cluster.Cluster, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	stored, err := StoredConfiguration(ctx, api)
	if err != nil {
		return nil, nil, err
	}
	n, warnings, err := config.LoadCluster(stored, nil, nil, self, opts)
	if err != nil {
		return nil, warnings, err
	}
	return n.With(func(n *config.Node) { n.Join = &config.Join{} }), warnings, nil
}
