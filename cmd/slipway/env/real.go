// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
)

type Acting struct{ G *cli.Globals }

func (Acting) Options(facts config.HostFacts) config.Options {
	return config.Options{
		Facts:             facts,
		NewToken:          config.NewToken,
		NewCertificateKey: NewCertificateKey,
		Resolve:           config.ResolveLabel,
	}
}

func (Acting) checkReport(r *cli.Report) error {
	if r.Form == "yaml" {
		return errors.New("--output yaml is for plans: add --dry-run; a run reports its events as json")
	}
	return nil
}

func (a Acting) sinks(r *cli.Report) cli.Sinks {
	s := cli.Sinks{UI: cli.PlainUI(a.G, r.Command)}
	if r.Form == "json" {
		s.Events = ui.NewEvents(a.G.Program, a.G.Version(), r.Command, a.G.Streams.Out)
		s.UI = s.Events
	}
	if r.TimelineFile != "" {
		s.Timeline = ui.NewTimeline(s.UI)
		s.UI = s.Timeline
	}
	return s
}

func (a Acting) Discover(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	said, end := cli.NewUI(a.G).Start("discovery")
	node, warnings, err := NewDiscovery(real, said, self.Timeouts.KubernetesAPICall.Duration, opts).Node(ctx, self)
	end(err)
	return node, warnings, err
}

func (Acting) Joined(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error) {
	return joining.JoinedNode(ctx, administrator(real, config.DefaultLimits().KubernetesAPICall), self, opts)
}

func (Acting) Stored(ctx context.Context, real *linux.Host) ([]byte, []string, error) {
	stored, err := joining.StoredConfiguration(ctx, administrator(real, AskTimeout))
	switch {
	case err == nil:
		return stored, nil, nil
	case ctx.Err() != nil:
		return nil, nil, err
	}
	return config.DefaultCluster(), []string{"cannot read the cluster's configuration; using the defaults and this host's files instead: " + err.Error()}, nil
}

// Parts change this host, its cluster and its etcd.
func (a Acting) Parts(node *config.Node, real *linux.Host) *Parts {
	api := cluster.New(ClusterOptions(node, real))
	said := cli.NewUI(a.G)
	if r := a.G.Report; r != nil {
		r.Node = node
	}
	return a.parts(real, &step.Env{Config: node, Cluster: api, Etcd: NewEtcd(node, real, api, said), UI: said})
}

func (a Acting) MachineParts(host *config.Machine, real *linux.Host) *Parts {
	return a.parts(real, &step.Env{Machine: host, Cluster: cluster.New(kubeletOptions(host, real)), UI: cli.NewUI(a.G)})
}

// parts give env the host, and report its changes.
func (a Acting) parts(real *linux.Host, env *step.Env) *Parts {
	env.Host = real
	if r := a.G.Report; r != nil {
		env.Host = plan.NewRecorder(real, r.Did)
	}
	return &Parts{Env: env, begin: real.Lock, Confirm: call, Show: call, Close: real.Close}
}

func (a Acting) LivingParts(node *config.Node, real *linux.Host) *Parts { return a.Parts(node, real) }

func (a Acting) APIParts(kubeconfig UserKubeconfig, _, _ string) (*Parts, error) {
	return NewAPIParts(a.G, kubeconfig, config.DefaultLimits().KubernetesAPICall), nil
}

func NewCertificateKey() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return hex.EncodeToString(key[:])
}

func call(f func() error) error { return f() }

// noLock is for commands that need no exclusive access.
func noLock() (end func(), err error) { return func() {}, nil }

// ClusterOptions lead to the API server this node can use with its own credentials.
func ClusterOptions(node *config.Node, real *linux.Host) cluster.Options {
	o := cluster.Options{
		Kubeconfig: node.Paths.AdminKubeconfig,
		SuperAdmin: filepath.Join(node.Paths.Kubernetes, "super-admin.conf"),
		ReadFile:   kubeconfigReader(real, "`slipway init phase kubeconfig admin` creates it"),
		Endpoint:   localEndpoint(node),
		Timeout:    node.Timeouts.KubernetesAPICall,
	}
	if o.Kubeconfig != config.DefaultAdminKubeconfig {
		o.ReadFile = kubeconfigReader(real, "check the path that was given with --kubeconfig")
	}
	switch {
	case node.Reset != nil: // any API server may know the other etcd members
		o.Endpoint, o.ReadFile = "", real.ReadFile
	case !node.ControlPlane && o.Kubeconfig == config.DefaultAdminKubeconfig: // a worker has only the kubelet's rights
		kubelet := kubeletOptions(&node.Machine, real)
		o.Kubeconfig, o.ReadFile, o.Endpoint = kubelet.Kubeconfig, kubelet.ReadFile, ""
	case len(node.FormerAddresses) > 0:
		o.Endpoint, o.ServerName = movingEndpoint(node, real)
	case node.Join != nil: // this node's own API server comes up last
		o.Endpoint = ""
	}
	return o
}

// kubeletOptions lead to the API with the kubelet's rights.
func kubeletOptions(host *config.Machine, real *linux.Host) cluster.Options {
	return cluster.Options{
		Kubeconfig: host.Paths.KubeletKubeconfig(),
		ReadFile:   kubeconfigReader(real, "the kubelet creates it when this node joins"),
		Timeout:    host.Timeouts.KubernetesAPICall,
	}
}

// NewEtcd is the control planes' etcd. It accepts the client certificate of this node's API server.
func NewEtcd(node *config.Node, real *linux.Host, api cluster.Cluster, said ui.UI) etcd.Etcd {
	if external := node.Cluster.Etcd.External; external != nil {
		return externalEtcd(external, real, node.Timeouts.EtcdAPICall)
	}
	pki := node.Paths.PKI
	if node.Reset != nil && pki == config.DefaultCertificatesDir { // the user may not know that the cluster has another
		pki = thisnode.CertificatesDir(real)
	}
	o := etcd.Options{
		Endpoints:  thisnode.EtcdEndpoints(real, api, node, said),
		CA:         filepath.Join(pki, "etcd", "ca.crt"),
		Cert:       filepath.Join(pki, "apiserver-etcd-client.crt"),
		Key:        filepath.Join(pki, "apiserver-etcd-client.key"),
		ReadFile:   real.ReadFile,
		Own:        thisnode.OwnEtcdEndpoints(real, node.Paths),
		OwnCluster: ownEtcdCluster(real, node),
		Warn:       said.Warn,
		Timeout:    node.Timeouts.EtcdAPICall,
	}
	if len(node.FormerAddresses) > 0 {
		o.Endpoints = movingEtcd(node, o.Endpoints)
	}
	if node.Upgrade != nil { // this node's API server is replaced
		o.Endpoints = thisnode.OwnEtcdEndpoints(real, node.Paths)
	}
	return etcd.New(o)
}

// externalEtcd is managed elsewhere. Slipway only asks for its health.
func externalEtcd(e *config.ExternalEtcd, real *linux.Host, limit time.Duration) etcd.Etcd {
	return etcd.New(etcd.Options{
		Endpoints: func(context.Context) ([]string, error) { return e.Endpoints, nil },
		CA:        e.CAFile,
		Cert:      e.CertFile,
		Key:       e.KeyFile,
		ReadFile:  real.ReadFile,
		Plain:     true,
		Timeout:   limit,
	})
}

// localEndpoint is this node's own API server, which answers before a load balancer sends it any requests. A kubeconfig other
// than the default names its own server.
func localEndpoint(node *config.Node) string {
	if node.Paths.AdminKubeconfig != config.DefaultAdminKubeconfig {
		return ""
	}
	return node.LocalEndpoint()
}

// kubeconfigReader reads a kubeconfig file, and adds advice to the error if there's none.
func kubeconfigReader(real *linux.Host, advice string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		data, err := real.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fault.WithRemedy(err, advice)
		}
		return data, err
	}
}

// NewDiscovery gives the cluster at most limit to answer each request. It only reads, so plans may use it.
func NewDiscovery(real *linux.Host, said ui.UI, limit time.Duration, opts config.Options) *joining.Discovery {
	connect := func(kubeconfig []byte) cluster.Cluster {
		return cluster.New(cluster.Options{
			Kubeconfig: "the joining node's kubeconfig",
			ReadFile:   func(string) ([]byte, error) { return kubeconfig, nil },
			Timeout:    limit,
		})
	}
	return &joining.Discovery{Host: real, UI: said, Connect: connect, Options: opts}
}

// administrator is the API with admin.conf, which a join's earlier phases have written. It's only read from, so plans may use it.
func administrator(real *linux.Host, limit time.Duration) cluster.Cluster {
	return cluster.New(cluster.Options{Kubeconfig: config.DefaultAdminKubeconfig, ReadFile: real.ReadFile, Timeout: limit})
}

// ClusterOfNode is this node's cluster as seen by its administrator or, on a worker, by its kubelet.
func ClusterOfNode(real *linux.Host, kubeconfig string, limit time.Duration) *cluster.Real {
	if kubeconfig == "" {
		kubeconfig = config.DefaultAdminKubeconfig
		if !thisnode.IsControlPlane(real) {
			kubeconfig = "/etc/kubernetes/kubelet.conf"
		}
	}
	return cluster.New(cluster.Options{
		Kubeconfig: kubeconfig,
		ReadFile:   kubeconfigReader(real, "run this on a node of the cluster, or name a kubeconfig file with --kubeconfig"),
		Timeout:    limit,
	})
}
