// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/x509"
	"io/fs"
	"slices"

	"github.com/pkg/errors"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

func preflightInit() step.Phase {
	return step.Phase{
		Name:    "preflight",
		Summary: "Check that this host can become a control plane, and pull its images",
		Flags:   []string{"config", "cri-socket", "dry-run", "ignore-preflight-errors", "image-repository", "profile"},
		Run:     runPreflightInit,
	}
}

func runPreflightInit(ctx context.Context, env *step.Env) error {
	checks, err := initChecks(ctx, env)
	if err != nil {
		return err
	}
	env.UI.Printf("Checking this host")
	if err := node.Check(ctx, env, checks...); err != nil {
		return err
	}
	return node.PullMissingImages(ctx, env)
}

// wantedManifests returns this configuration's static Pods by path: the checks accept these files.
func wantedManifests(env *step.Env) (map[string][]byte, error) {
	view, err := node.HostView(env)
	if err != nil {
		return nil, err
	}
	wanted := map[string][]byte{}
	for _, c := range manifests.Components(env.Config) {
		data, err := node.StaticPodYAML(env, c, view, nil)
		if err != nil {
			return nil, err
		}
		wanted[env.Config.Paths.StaticPod(c)] = data
	}
	return wanted, nil
}

// CheckInit runs the preflight checks of init and changes nothing: it pulls no image.
func CheckInit(ctx context.Context, env *step.Env) ([]preflight.Result, error) {
	checks, err := initChecks(ctx, env)
	if err != nil {
		return nil, err
	}
	return preflight.RunAll(ctx, checks, env.Host, env.Config.IgnorePreflightErrors), nil
}

// CheckJoin runs the preflight checks of join and changes nothing. If the cluster is unknown, it leaves out the checks that
// depend on it.
func CheckJoin(ctx context.Context, env *step.Env) ([]preflight.Result, error) {
	checks, err := joinChecks(env)
	if err != nil {
		return nil, err
	}
	return preflight.RunAll(ctx, checks, env.Host, env.Config.IgnorePreflightErrors), nil
}

// CheckNames lists the checks of init and join for a control plane.
func CheckNames(n *config.Node) []string {
	var names []string
	for _, c := range slices.Concat(preflight.Init(n, nil), preflight.JoinControlPlane(n, nil)) {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

func initChecks(ctx context.Context, env *step.Env) ([]preflight.Check, error) {
	if _, err := addon.NetworkObjects(env); err != nil { // before creating a cluster it can't be installed in
		return nil, err
	}
	wanted, err := wantedManifests(env)
	if err != nil {
		return nil, err
	}
	n, err := asStarted(env)
	if err != nil {
		return nil, err
	}
	stored := storedCompares(ctx, env)
	switch {
	case stored.same:
		acceptEdited(env, wanted)
	case env.Unfinished:
		acceptReplaced(ctx, env, wanted)
	default:
		acceptOtherStartupTime(env, wanted)
	}
	same := preflight.Configuration(func(context.Context) []fault.Finding { return differences(env, stored) })
	return append(preflight.Init(n, wanted), same), nil
}

func joinChecks(env *step.Env) ([]preflight.Check, error) {
	n, err := asStarted(env)
	if err != nil {
		return nil, err
	}
	if n.ControlPlane {
		return preflight.JoinControlPlane(n, leftovers(env)), nil
	}
	return preflight.JoinWorker(n, leftovers(env)), nil
}

// asStarted returns the node with the settings its kubelet will read, including the user's patches: the checks apply to the
// settings in force.
func asStarted(env *step.Env) (*config.Node, error) {
	data, _, err := kubelet.ConfigYAML(env)
	if err != nil {
		return nil, err
	}
	n := *env.Config
	n.Kubelet = kubeletv1beta1.KubeletConfiguration{}
	return &n, errors.Wrap(yaml.Unmarshal(data, &n.Kubelet), "the patched KubeletConfiguration")
}

func preflightJoin() step.Phase {
	return step.Phase{
		Name:    "preflight",
		Summary: "Check that this host can join the cluster",
		Flags: kubelet.DiscoveryFlags("apiserver-advertise-address", "apiserver-bind-port", "certificate-key", "control-plane",
			"cri-socket", "ignore-preflight-errors", "node-name"),
		Run: runPreflightJoin,
	}
}

func runPreflightJoin(ctx context.Context, env *step.Env) error {
	checks, err := joinChecks(env)
	if err != nil {
		return err
	}
	env.UI.Printf("Checking this host")
	if err := node.Check(ctx, env, checks...); err != nil {
		return err
	}
	if thisnode.CheckMember(env.Host, env.Config) == nil && !env.Config.Join.NodeGone {
		env.UI.Printf("This host is already node %s of the cluster", env.Config.Name)
	}
	if !env.Config.ControlPlane {
		return nil
	}
	if err := env.PKI().CheckJoin(); err != nil {
		return err
	}
	return node.PullMissingImages(ctx, env)
}

// leftovers are the files only a node has, each with a check that it comes from an earlier join to this cluster.
func leftovers(env *step.Env) []preflight.Leftover {
	n := env.Config
	if n.Join.Server == "" { // the cluster is unknown
		return []preflight.Leftover{{Path: n.Paths.KubeletKubeconfig()}, {Path: n.Paths.BootstrapKubeconfig()}, {Path: n.Join.CAPath}}
	}
	ours := func(list []*x509.Certificate, err error) error {
		if err == nil && !thisnode.SharesCA(list, n) {
			err = errors.New("it is of another cluster")
		}
		return err
	}
	return []preflight.Leftover{
		{Path: n.Paths.KubeletKubeconfig(), Foreign: func([]byte) error {
			err := thisnode.CheckMember(env.Host, n)
			var expired *thisnode.ExpiredError
			if errors.As(err, &expired) || errors.Is(err, fs.ErrNotExist) { // not signed yet
				return nil
			}
			return err
		}},
		{Path: n.Paths.BootstrapKubeconfig(), Foreign: func(data []byte) error {
			_, trusted, err := kubeconfig.ServerAt(n.Paths.BootstrapKubeconfig(), data, env.Host.ReadFile)
			return ours(trusted, err)
		}},
		{Path: n.Join.CAPath, Foreign: func(data []byte) error { return ours(certs.ParseCerts(data)) }},
	}
}
