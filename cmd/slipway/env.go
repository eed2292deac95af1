// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases"
)

// parts is what a run works with: the phases' environment, and around it what
// differs between a run and a dry run. This file is the only one that knows
// the difference.
type parts struct {
	env *phases.Env
	// begin takes what a run needs for itself, and gives it back by end.
	begin func() (end func(), err error)
	// finish shows what the run leaves to show.
	finish func() error
	// close ends the connections of the host.
	close  func()
	serial bool
	// kubeconfig is that of a command which only speaks to the API.
	kubeconfig userKubeconfig
}

func (p *parts) run(ctx context.Context, workflow []phases.Phase, skip []string) error {
	defer p.close()
	end, err := p.begin()
	if err != nil {
		return err
	}
	defer end()
	if err := phases.Run(ctx, p.env, workflow, phases.Options{Skip: skip, Serial: p.serial}); err != nil {
		return err
	}
	return p.finish()
}

func newParts(g *globals, node *config.Node, real *host.Real, dryRun bool) *parts {
	if dryRun {
		return dryParts(g, node, real)
	}
	options := cluster.Options{
		Kubeconfig: node.Paths.AdminKubeconfig,
		SuperAdmin: filepath.Join(node.Paths.Kubernetes, "super-admin.conf"),
		ReadFile:   kubeconfigReader(real, "`slipway init phase kubeconfig admin` makes it"),
		Endpoint:   localEndpoint(node),
		Timeout:    node.Timeouts.KubernetesAPICall,
	}
	switch {
	case node.Reset != nil: // any API server may know the other members of etcd
		options.Endpoint, options.ReadFile = "", real.ReadFile
	case !node.ControlPlane: // it has the kubelet's rights only
		options.Kubeconfig, options.Endpoint = filepath.Join(node.Paths.Kubeconfigs, "kubelet.conf"), ""
		options.ReadFile = kubeconfigReader(real, "the kubelet makes it once this node has joined")
	case node.Join != nil: // its own API server is up last
		options.Endpoint = ""
	}
	api := cluster.New(options)
	said := newUI(g)
	env := &phases.Env{Config: node, Host: real, Cluster: api, Etcd: newEtcd(node, real, api, said), UI: said}
	if g.report != nil {
		g.report.node, env.Host = node, host.NewRecorder(real, g.report.did)
	}
	return &parts{env: env, begin: real.Lock, finish: func() error { return nil }, close: real.Close}
}

// newEtcd is the etcd of the cluster's control planes. Its members are asked
// with the certificate that this node's API server has for it.
func newEtcd(node *config.Node, real *host.Real, api cluster.Cluster, said ui.UI) etcd.Etcd {
	pki := node.Paths.PKI
	return etcd.New(etcd.Options{
		Endpoints: etcdmember.Endpoints(real, api, node, said),
		CA:        filepath.Join(pki, "etcd", "ca.crt"),
		Cert:      filepath.Join(pki, "apiserver-etcd-client.crt"),
		Key:       filepath.Join(pki, "apiserver-etcd-client.key"),
		ReadFile:  real.ReadFile,
		Timeout:   node.Timeouts.EtcdAPICall,
	})
}

// localEndpoint is this node's own API server, which answers before a load
// balancer sends anything to it. A kubeconfig of the user's own may lead
// elsewhere, and is followed.
func localEndpoint(node *config.Node) string {
	if node.Paths.AdminKubeconfig != config.DefaultAdminKubeconfig {
		return ""
	}
	return node.LocalEndpoint()
}

// apiParts is for commands that speak to the API and leave this host alone:
// they need no lock, go where the kubeconfig leads, and their dry run reads
// from the cluster that it does not change. form and command are for its plan.
func apiParts(g *globals, node *config.Node, kubeconfig userKubeconfig, dryRun bool, form, command string) *parts {
	real := host.New()
	api := cluster.New(cluster.Options{
		Kubeconfig: node.Paths.AdminKubeconfig,
		ReadFile:   func(string) ([]byte, error) { return kubeconfig.read() },
		Timeout:    node.Timeouts.KubernetesAPICall,
	})
	p := dryParts(g, node, real)
	p.kubeconfig = kubeconfig
	if dryRun {
		plan := &plan{}
		p.env.Cluster = cluster.NewPlan(plan.addCluster, api)
		p.finish = func() error { return plan.write(g.streams.out, form, command, "") }
		return p
	}
	p.env.Host, p.env.Cluster, p.env.UI = real, api, newUI(g)
	p.finish = func() error { return nil }
	return p
}

// kubeconfigReader reads a kubeconfig file, and says what to do where there is
// none.
func kubeconfigReader(h host.Host, advice string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		data, err := h.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; %s", err, advice)
		}
		return data, err
	}
}

// joining is the API as a kubeconfig leads to it that discovery has made. It
// is only read, by a dry run, too.
func joining(limit time.Duration) func(kubeconfig []byte) cluster.Cluster {
	return func(kubeconfig []byte) cluster.Cluster {
		return cluster.New(cluster.Options{
			Kubeconfig: "of the joining node",
			ReadFile:   func(string) ([]byte, error) { return kubeconfig, nil },
			Timeout:    limit,
		})
	}
}

// administrator is the API as admin.conf leads to it, which earlier phases of
// a join have written. It is only read, by a dry run, too.
func administrator(real *host.Real) cluster.Cluster {
	return cluster.New(cluster.Options{Kubeconfig: config.DefaultAdminKubeconfig, ReadFile: real.ReadFile, Timeout: askTime})
}

// discoveryUI is told what a discovery does, in a dry run as well as phases
// tell theirs.
func discoveryUI(g *globals, dryRun bool) ui.UI {
	if dryRun {
		return planUI{newPlanUI(g), nil}
	}
	return newUI(g)
}

// dryParts only records. Its steps run one after another, so that the same
// input gives the same plan.
func dryParts(g *globals, node *config.Node, real *host.Real) *parts {
	plan := &plan{}
	if node.Join != nil && node.Join.Assumed {
		plan.assumed = &assumed{node}
	}
	said := newPlanUI(g)
	api := cluster.NewPlan(plan.addCluster, nil)
	finish := func() error { return plan.print(g.streams.out) }
	if r := g.report; r != nil {
		finish = func() error { return plan.write(g.streams.out, r.form, r.command, node.Name) }
		if r.diff {
			plan.now, plan.warn = newPresent(real), said.Warnf
			if now := presentCluster(node, real); now != nil {
				api.CompareWith(now)
			}
		}
	}
	env := &phases.Env{
		Config:  node,
		Host:    host.NewOverlay(real, plan.addHost),
		Cluster: api,
		Etcd:    etcd.NewPlan(plan.addEtcd, etcdmember.Known(real, node)...),
		UI:      planUI{said, plan},
	}
	return &parts{
		env:    env,
		begin:  func() (func(), error) { return func() {}, nil },
		finish: finish,
		close:  real.Close,
		serial: true,
	}
}

// compareTime bounds a question to a cluster that a plan is compared with, and
// that may be down.
const compareTime = 2 * time.Second

// asksCluster tells whether what a joining node does is to go by what its
// cluster says: a plan asks it only for what would change.
func asksCluster(g *globals, dryRun bool) bool { return !dryRun || g.report.diff }

// presentCluster is the cluster to compare a plan with: the one that this host
// administrates, if it does. It is only read.
func presentCluster(node *config.Node, real *host.Real) *cluster.Real {
	if _, err := real.Lstat(node.Paths.AdminKubeconfig); err != nil {
		return nil
	}
	return cluster.New(cluster.Options{
		Kubeconfig: node.Paths.AdminKubeconfig,
		ReadFile:   real.ReadFile,
		Endpoint:   localEndpoint(node),
		Timeout:    compareTime,
	})
}

// hostFacts asks this host for what defaults depend on. What cannot be known
// stays empty: the configuration may say it.
func hostFacts() (*host.Real, config.HostFacts, error) {
	real := host.New()
	name, err := real.Hostname()
	if err != nil {
		return nil, config.HostFacts{}, err
	}
	return real, config.HostFacts{
		Hostname: name,
		IPv4:     defaultAddress(real, false),
		IPv6:     defaultAddress(real, true),
		Sockets:  existing(real, config.KnownSockets()),
		// Where systemd-resolved runs, it keeps this file.
		ResolvConf: resolvConf(real),
	}, nil
}

func resolvConf(h host.Host) string {
	if _, err := h.Lstat(config.ResolvedConf); err != nil {
		return ""
	}
	return config.ResolvedConf
}

func defaultAddress(h host.Host, ipv6 bool) netip.Addr {
	addr, err := h.DefaultAddress(ipv6)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

func existing(h host.Host, paths []string) []string {
	var found []string
	for _, path := range paths {
		if info, err := h.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			found = append(found, path)
		}
	}
	return found
}

// loadOptions are what loading a configuration takes from outside. A dry run
// gets placeholders for secrets: its plan is the same every time.
func loadOptions(facts config.HostFacts, dryRun bool) config.Options {
	o := config.Options{Facts: facts, NewToken: makeToken, NewCertificateKey: newCertificateKey, Resolve: config.ResolveLabel}
	if dryRun {
		o.NewToken = func() (string, string, error) { return "abcdef", "0123456789abcdef", nil }
		o.NewCertificateKey = func() (string, error) { return strings.Repeat("0", 64), nil }
	}
	return o
}

func makeToken() (id, secret string, err error) {
	id, secret = config.NewToken()
	return id, secret, nil
}

func newCertificateKey() (string, error) {
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(key[:]), nil
}
