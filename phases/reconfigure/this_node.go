// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

func (r *Run) preflight(ctx context.Context, env *step.Env) error {
	for _, f := range r.Fields {
		changes := []ui.Field{{Source: f.Source, Path: f.Path}}
		ui.SayEffect(env.UI, ui.Effect{Text: "Changing " + f.Path + " in " + f.Source, Changes: changes})
	}
	if err := r.recordInspectedFiles(env); err != nil {
		return err
	}
	if r.Reverts != nil {
		return r.revertPreflight(ctx, env)
	}
	if len(r.Fields) == 0 {
		env.UI.Printf("The cluster has this configuration already")
	}
	checks := append(r.controlPlaneChecks(env), question(env, pendingCheck, "this control plane runs with the cluster's configuration", r.pending), kubeletCheck(env), r.overridesQuestion(env),
		r.coreDNSQuestion(env))
	return check(ctx, env, append(checks, r.endpointChecks(env)...))
}

// prepare finds the changes on this node and, if there are any, takes the turn and keeps the files.
func (r *Run) prepare(ctx context.Context, env *step.Env) error {
	if err := r.find(ctx, env); err != nil {
		return err
	}
	if len(r.certificates)+len(r.kubeconfigs)+len(r.components)+len(r.profiles)+len(r.kubelet)+len(r.others)+len(r.Fields) == 0 {
		env.UI.Printf("This node already runs with this configuration")
		return nil
	}
	if _, err := env.Host.Unit(ctx, node.KubeletUnit); err != nil {
		return fault.WithRemedy(err, "a change restarts the kubelet, and puts it back if it doesn't work, through systemd")
	}
	if err := r.recordWrittenFiles(env); err != nil {
		return err
	}
	if err := r.acquireLease(ctx, env); err != nil {
		return err
	}
	if err := r.unchanged(ctx, env, slices.Sorted(maps.Keys(r.Stored))...); err != nil {
		return err
	}
	if len(r.components) > 0 {
		if err := announceOutage(ctx, env, r.components); err != nil {
			return err
		}
		if err := node.AwaitChecks(ctx, env, clusterChecks(env), env.Config.IgnorePreflightErrors); err != nil {
			return err
		}
	}
	return r.begin(ctx, env)
}

// apiOutage is how long the API of a single control plane is away when etcd or the API server restarts.
const apiOutage = 10 * time.Second

// announceOutage says how long the API of a single control plane is away. docs/design/upgrade-swap.md has the measurements.
func announceOutage(ctx context.Context, env *step.Env, components []node.Replacement) error {
	nodes, err := env.Cluster.Nodes(ctx)
	if err == nil && slices.ContainsFunc(components, node.TakesAPIAway) && len(cluster.ControlPlanesOf(nodes)) < 2 {
		ui.SayEffect(env.UI, ui.Effect{Text: fmt.Sprintf("The API will be away for about %s", apiOutage), APIAway: apiOutage})
	}
	return err
}

// begin makes sure that this node goes back whatever happens to this run.
func (r *Run) begin(ctx context.Context, env *step.Env) (err error) {
	writes, err := r.writes(env)
	for _, w := range writes {
		if err == nil {
			err = r.unedited(env, w.Path)
		}
	}
	if err != nil {
		return err
	}
	texts, err := r.configMaps(ctx, env)
	if err != nil {
		return err
	}
	change := trial.Record{ConfigMaps: texts}
	if r.Reverts != nil {
		change.RevertOf = &r.Reverts.Began
	}
	if r.record, err = trial.Begin(ctx, env, r.Program, writes, change); err != nil {
		return err
	}
	env.UI.Printf("Keeping the previous files in %s", r.record.Dir())
	return nil
}

// writes are the files this run is about to write.
func (r *Run) writes(env *step.Env) (list []trial.Write, err error) {
	for _, row := range r.certificates {
		list = append(list, trial.Write{Path: env.PKI().Files(row)[0]})
	}
	for _, c := range r.components {
		list = append(list, trial.Write{Path: env.Config.Paths.StaticPod(c.Name), Data: c.Wanted})
	}
	for _, f := range slices.Concat(r.kubeconfigs, r.profiles, r.kubelet) {
		list = append(list, trial.Write{Path: f.Path, Data: f.Data})
	}
	for _, f := range r.others {
		data, err := r.Reverts.OriginalContent(env, f)
		if err != nil {
			return nil, err
		}
		list = append(list, trial.Write{Path: f.Path, Data: data})
	}
	for i := range list {
		of, err := backup.DetectEdit(env, list[i].Path)
		if err != nil {
			return nil, err
		}
		list[i].Edited = of == backup.Edited
		list[i].WritesEdit = r.Reverts != nil && slices.ContainsFunc(r.Reverts.Files, func(f trial.File) bool { return f.Path == list[i].Path && f.Edited })
	}
	return list, nil
}

func (r *Run) find(ctx context.Context, env *step.Env) (err error) {
	if r.Reverts != nil {
		return r.findChanged(ctx, env)
	}
	if env.Config.ControlPlane {
		if r.components, err = node.Outdated(ctx, env); err != nil {
			return err
		}
		restarts := node.HasComponent(r.components, manifests.APIServerName)
		if r.profiles, err = node.MissingProfileFiles(env, restarts); err != nil {
			return err
		}
		if r.serverAlone {
			r.components = slices.DeleteFunc(r.components, func(c node.Replacement) bool { return c.Name != manifests.APIServerName })
			return nil
		}
		if err := r.findNames(ctx, env); err != nil {
			return err
		}
	}
	files, err := kubelet.NextFiles(env)
	if err == nil {
		r.kubelet, err = ownership.Differing(env.Host, files)
	}
	if err != nil {
		return err
	}
	return r.findKubeconfigs(env)
}

// lackingNames returns the certificates without a name or an address of the configuration.
func lackingNames(env *step.Env) (rows []certs.Spec, err error) {
	store := env.PKI()
	for _, row := range certs.Specs(env.Config) {
		if !row.Renewable() || row.Kubeconfig != "" {
			continue
		}
		cert, err := store.Current(row)
		if err != nil {
			return nil, err
		}
		lacks := func(f fault.Finding) bool { return f.Name == certs.MissingSAN }
		if cert != nil && slices.ContainsFunc(certs.Faults(row, certs.Pair{Cert: cert}, nil, env.Host.Now()), lacks) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// issueCertificates keeps the keys. The API server and etcd read their certificates again by themselves.
func (r *Run) issueCertificates(ctx context.Context, env *step.Env) error {
	if len(r.certificates)+len(r.others) == 0 {
		return nil
	}
	if err := r.restoreOthers(env); err != nil {
		return err
	}
	for _, row := range r.certificates {
		cert, err := env.PKI().Current(row)
		if err != nil {
			return err
		}
		store := env.PKI()
		store.Config = store.Config.With(func(n *config.Node) { n.Cluster.EncryptionAlgorithm = certs.AlgorithmOf(cert.PublicKey) })
		renewal := pki.Renewal{Store: store, Name: row.Name, KeepKey: true}
		if isAPIServers(row) {
			renewal.Without = r.lost
		}
		if err := renewal.Renew(row.Name); err != nil {
			return err
		}
	}
	return r.lease.AwaitStable(ctx, env)
}

// restartComponents swaps etcd and the API server first, then the components that need the API. A profile's files are there before
// the API server needs them, and until it doesn't.
func (r *Run) restartComponents(ctx context.Context, env *step.Env) error {
	if r.Reverts == nil && len(r.components)+len(r.profiles) > 0 {
		if err := edits.RefuseLoss(ctx, env); err != nil {
			return err
		}
		if err := node.RefuseOtherVersions(env); err != nil {
			return err
		}
		if err := node.EnsureProfileFiles(env, r.profiles); err != nil {
			return err
		}
	}
	for _, group := range node.SplitAPIClients(r.components) {
		if err := r.unchanged(ctx, env, manifests.KubeadmConfigMap, manifests.KubeletConfigMap); err != nil {
			return err
		}
		for _, c := range group {
			if err := r.unedited(env, env.Config.Paths.StaticPod(c.Name)); err != nil {
				return err
			}
		}
		names := restarting(group)
		ui.SayEffect(env.UI, ui.Effect{Text: "Restarting " + strings.Join(names, " and "), Restarts: names})
		if _, err := node.ReplaceStaticPods(ctx, env, r.lease, group); err != nil {
			return err
		}
		if err := r.lease.AwaitStable(ctx, env); err != nil {
			return err
		}
	}
	return r.removeOthers(env)
}

// restarting names the restarting components: the API server always does with etcd.
func restarting(components []node.Replacement) (names []string) {
	for _, c := range components {
		names = append(names, c.Name)
		if c.Name == manifests.EtcdName && !node.HasComponent(components, manifests.APIServerName) {
			names = append(names, manifests.APIServerName)
		}
	}
	return names
}

func (r *Run) restartKubelet(ctx context.Context, env *step.Env) error {
	if len(r.kubelet) == 0 {
		return nil
	}
	if err := r.unchanged(ctx, env, manifests.KubeadmConfigMap, manifests.KubeletConfigMap); err != nil {
		return err
	}
	for _, f := range r.kubelet {
		if err := r.unedited(env, f.Path); err != nil {
			return err
		}
	}
	r.lease.KeepOnFailure()
	if err := env.Keeper().Replace(r.kubelet); err != nil {
		return err
	}
	if err := kubelet.EnsureTemporaryPair(env); err != nil {
		return err
	}
	ui.SayEffect(env.UI, ui.Effect{
		Text: "Restarting the kubelet, so that it reads " + filepath.Dir(r.kubelet[0].Path), Restarts: []string{kubeletName},
	})
	if err := node.RestartKubeletAndWait(ctx, env); err != nil {
		return err
	}
	return r.lease.AwaitStable(ctx, env)
}
