// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// check runs the checks of this node, and pulls a control plane's images.
func check(ctx context.Context, env *step.Env, more []preflight.Check) error {
	err := node.Check(ctx, env, preflight.Upgrade(env.Config, append(more, kubelet.NewKernelCheck(env)))...)
	if err != nil || !env.Config.ControlPlane {
		return err
	}
	return node.PullMissingImages(ctx, env)
}

func question(env *step.Env, name, asks string, find func(context.Context, *step.Env) []fault.Finding) preflight.Check {
	return preflight.Check{Name: name, Description: asks, Run: func(ctx context.Context, _ preflight.View) []fault.Finding { return find(ctx, env) }}
}

func (r *Run) controlPlaneChecks(env *step.Env) []preflight.Check {
	return append(clusterChecks(env), r.quotaQuestion(env), r.etcdTag(env), question(env, node.EncryptionFileCheck, "the API server finds the file with the encryption keys", encryptionFile),
		r.upgradeQuestion(env),
		question(env, certificatesCheck, "the API server will accept all kubelets' certificates, if it verifies them", kubeletCertificates),
		question(env, edits.StaticPodCheck, "nobody has edited the static Pods, or the patches keep the edits", edits.StaticPodFindings), node.NewPatchedImagesCheck(env))
}

// etcdTag checks the version of an etcd whose static Pod this run replaces.
func (r *Run) etcdTag(env *step.Env) preflight.Check {
	c := preflight.EtcdImageTag(env.Config, " in ConfigMap kube-system/kubeadm-config, and run `slipway upgrade apply`")
	run := c.Run
	c.Run = func(ctx context.Context, h preflight.View) []fault.Finding {
		if r.serverAlone || !replacesEtcd(ctx, env) {
			return nil
		}
		return run(ctx, h)
	}
	return c
}

// replacesEtcd reports whether a change of this control plane replaces etcd; if in doubt, it does.
func replacesEtcd(ctx context.Context, env *step.Env) bool {
	list, err := node.Outdated(ctx, env)
	return err != nil || node.HasComponent(list, manifests.EtcdName)
}

func kubeletCheck(env *step.Env) preflight.Check {
	return question(env, edits.KubeletCheck, "nobody has edited the kubelet's configuration, or the patches keep the edits", edits.KubeletFindings)
}

// clusterChecks are the checks of the rest of the cluster, and of this control plane as it runs.
func clusterChecks(env *step.Env) []preflight.Check {
	stops := func(ctx context.Context) bool { return replacesEtcd(ctx, env) }
	return []preflight.Check{
		node.NewNodesReadyCheck(env),
		node.NewQuorumCheckIf(env, stops, node.AwaitPeers),
		node.NewComponentProbeCheck(env),
	}
}

func encryptionFile(_ context.Context, env *step.Env) []fault.Finding {
	return node.EncryptionFileFindings(env)
}

const upgradeCheck = "UnfinishedUpgrade"

// unfinishedUpgrade finds another version than the configuration's on this control plane: the change would end up there. It also finds
// others that an upgrade hasn't reached yet, if add-ons change: with the change, these would get the next version.
func (r *Run) unfinishedUpgrade(ctx context.Context, env *step.Env) []fault.Finding {
	runs, wanted := node.RunningVersion(env), env.Config.Cluster.KubernetesVersion
	if !sameRelease(runs, wanted) {
		return []fault.Finding{fault.NewFinding(upgradeCheck, fault.Error, "finish the upgrade: `slipway upgrade apply` or, if another control plane was upgraded first, `slipway upgrade node`",
			"this control plane's API server is %s, and the cluster's configuration says %s", runs, wanted)}
	}
	if len(r.Fields) == 0 {
		return nil
	}
	changed, err := addon.AnyChanged(env)
	var behind []string
	severity := fault.Warning
	if err == nil && changed {
		var older bool
		if behind, older, err = addon.ControlPlanesBehind(ctx, env); older {
			severity = fault.Error
		}
	}
	switch {
	case err != nil:
		return []fault.Finding{failedLook(err)}
	case len(behind) == 0:
		return nil
	}
	return []fault.Finding{fault.NewFinding(upgradeCheck, severity, "finish any upgrade first, with `slipway upgrade node` on each of them",
		"the change concerns add-ons, which should stay as they are until all control planes have %s; not upgraded yet, or not known to be: %s", wanted, strings.Join(behind, ", "))}
}

// sameRelease reports whether an API server's version is the wanted one. A vendor's suffix to it is no other version, but a pre-release
// is.
func sameRelease(runs, wanted string) bool {
	a, err := version.ParseSemantic(runs)
	b, wrong := version.ParseSemantic(wanted)
	if err != nil || wrong != nil {
		return runs == wanted
	}
	return slices.Equal(a.Components(), b.Components()) && preRelease(a) == preRelease(b)
}

// preRelease returns a version's suffix if it's Kubernetes' own; empty for a vendor's.
func preRelease(v *version.Version) string {
	if kind, _, _ := strings.Cut(v.PreRelease(), "."); slices.Contains([]string{"alpha", "beta", "rc"}, kind) {
		return v.PreRelease()
	}
	return ""
}

// failedLook is the finding of a check that couldn't look. Only a plan is made by users who may not read the host's files.
func failedLook(err error) fault.Finding {
	f := fault.Of(err)
	if errors.Is(err, fs.ErrPermission) {
		f.Severity = fault.Unasked
	}
	return f
}

func (r *Run) upgradeQuestion(env *step.Env) preflight.Check {
	return question(env, upgradeCheck, "no upgrade of the control planes is unfinished", r.unfinishedUpgrade)
}
