// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// addonPhase is the phase addon. The Pod network's only configuration here is the endpoint.
func (r *Run) addonPhase() step.Phase {
	p := addon.Upgrade(r.changesAddon)
	p.Summary, p.SideBySide = "Change the cluster's DNS and service proxy, on trial", false
	p.Children[0].Summary, p.Children[1].Summary = "Change CoreDNS", "Change kube-proxy"
	if r.MovesEndpoint() {
		p.Children[2].Summary = "Point flannel at the endpoint, if `init --network flannel` has installed it"
		p.Children[2].Run = r.changesAddon(manifests.FlannelDaemonSet, addon.MoveFlannel)
	} else {
		p.Children = p.Children[:2]
	}
	return p
}

// changesAddon notes that the add-ons change before one does, which then is on trial. It leaves an add-on alone that the change doesn't
// concern.
func (r *Run) changesAddon(name string, change func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return r.rollBackOnFailure(func(ctx context.Context, env *step.Env) error {
		if r.record == nil { // nothing differs, and nothing would put an add-on back
			return nil
		}
		if changed, err := addon.Changed(env, name); err != nil || !changed {
			return err
		}
		read := []string{manifests.KubeadmConfigMap, manifests.KubeletConfigMap}
		if name == manifests.KubeProxyName && r.Changes(config.KubeProxySource) {
			read = append(read, manifests.KubeProxyConfigMap)
		}
		if err := r.unchanged(ctx, env, read...); err != nil {
			return err
		}
		before, err := rolloutOf(ctx, env, name)
		if err != nil {
			return err
		}
		if before.isCoreDNS() {
			if change, err = r.coreDNSChange(ctx, env, change); err != nil {
				return err
			}
		}
		r.record.Addons = true
		if err := r.record.Set(env, trial.OnTrial); err != nil {
			return err
		}
		if err := change(ctx, env); err != nil {
			return err
		}
		return r.proveAddon(ctx, env, before)
	})
}

// rollout is an add-on's workload before a change, and its Pods.
type rollout struct {
	workload cluster.Object
	template *corev1.PodTemplateSpec // nil if the cluster doesn't have the add-on
	selector string
	pods     []corev1.Pod
}

func rolloutOf(ctx context.Context, env *step.Env, name string) (*rollout, error) {
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
	o := &rollout{workload: daemons}
	switch name {
	case manifests.KubeProxyName:
	case manifests.FlannelDaemonSet:
		daemons.Namespace = manifests.FlannelNamespace
	default:
		o.workload = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: manifests.CoreDNSName}}
	}
	found, err := env.Cluster.Get(ctx, o.workload)
	if err != nil || !found {
		return o, err
	}
	template, selector := o.spec()
	o.template, o.selector = template.DeepCopy(), metav1.FormatLabelSelector(selector)
	o.pods, err = env.Cluster.Pods(ctx, o.workload.GetNamespace(), o.selector)
	return o, err
}

func (o *rollout) isCoreDNS() bool {
	return o.workload.GetName() == manifests.CoreDNSName
}

func (o *rollout) spec() (*corev1.PodTemplateSpec, *metav1.LabelSelector) {
	if d, is := o.workload.(*appsv1.Deployment); is {
		return &d.Spec.Template, d.Spec.Selector
	}
	d := o.workload.(*appsv1.DaemonSet)
	return &d.Spec.Template, d.Spec.Selector
}

// changed reports whether the workload's Pods are being replaced.
func (o *rollout) changed(ctx context.Context, env *step.Env) (bool, error) {
	if o.template == nil {
		return false, nil
	}
	found, err := env.Cluster.Get(ctx, o.workload)
	template, _ := o.spec()
	return found && !reflect.DeepEqual(o.template, template), err
}

// proveAddon waits until a new Pod of a changed add-on is Ready, and has been for the time of a trial without a restart. An
// add-on that wasn't Ready before needn't be Ready now.
func (r *Run) proveAddon(ctx context.Context, env *step.Env, before *rollout) error {
	changed, err := before.changed(ctx, env)
	if err != nil || !changed {
		return err
	}
	if !slices.ContainsFunc(before.pods, func(p corev1.Pod) bool { return before.provesRollout(env, &p) && cluster.PodReady(&p) }) {
		env.UI.Warn("no Pod of "+before.workload.GetName()+" was Ready before the change, so nothing shows whether it works now",
			"see what its Pods need: `kubectl -n "+before.workload.GetNamespace()+" describe pods -l "+before.selector+"`")
		return nil
	}
	if err := before.deleteOldPod(ctx, env); err != nil {
		return err
	}
	first, err := before.await(ctx, env, nil)
	if err != nil {
		return err
	}
	if err := r.lease.AwaitStable(ctx, env); err != nil {
		return err
	}
	last, err := before.await(ctx, env, first)
	if err == nil && first != nil && restarts(last) != restarts(first) {
		return before.podError(ctx, env, last)
	}
	return err
}

// deleteOldPod deletes a DaemonSet's old Pod on this node, once its controller knows the change: it replaces the others one by one,
// and none while a node is down.
func (o *rollout) deleteOldPod(ctx context.Context, env *step.Env) error {
	daemons, is := o.workload.(*appsv1.DaemonSet)
	if !is {
		return nil
	}
	failure := "the controller manager has not seen the change of DaemonSet " + daemons.Name
	err := env.Guard(ctx, &env.Config.Timeouts.UpgradeManifests, env.NodeTarget(), failure, func(ctx context.Context) error {
		return env.Cluster.AwaitObserved(ctx, daemons.Namespace, daemons.Name)
	})
	for i := range o.pods {
		if err == nil && o.provesRollout(env, &o.pods[i]) {
			err = env.Cluster.EnsureAbsent(ctx, &o.pods[i])
		}
	}
	return err
}

// await waits for a new Ready Pod, or for a certain one; nil in a plan.
func (o *rollout) await(ctx context.Context, env *step.Env, certain *corev1.Pod) (ready *corev1.Pod, err error) {
	failure := "the new Pod of " + o.workload.GetName() + " does not run"
	var failed error
	err = env.Guard(ctx, &env.Config.Timeouts.UpgradeManifests, env.NodeTarget(), failure, func(ctx context.Context) error {
		return env.Cluster.AwaitPods(ctx, o.workload.GetNamespace(), o.selector, func(pods []corev1.Pod) error {
			missing := "there is none yet"
			for i := range pods {
				p := &pods[i]
				if !o.provesRollout(env, p) || slices.ContainsFunc(o.pods, sameAs(p)) || certain != nil && certain.UID != p.UID {
					continue
				}
				if cluster.PodReady(p) {
					ready, failed = p, nil
					return nil
				}
				missing = fmt.Sprintf("Pod %s on node %s is not Ready%s", p.Name, p.Spec.NodeName, waitingReasons(p))
				if isStuck(p) {
					failed = o.podError(ctx, env, p)
				}
			}
			if failed != nil {
				return nil //nolint:nilerr // ends the wait, and is returned below
			}
			return errors.Errorf("%s: %s", failure, missing)
		})
	})
	return ready, cmp.Or(err, failed)
}

// provesRollout reports whether a Pod shows that the add-on works: a DaemonSet's own Pod on this node does, and any of a
// Deployment.
func (o *rollout) provesRollout(env *step.Env, p *corev1.Pod) bool {
	daemons, is := o.workload.(*appsv1.DaemonSet)
	return p.DeletionTimestamp == nil && (!is || p.Spec.NodeName == env.Config.Name && metav1.IsControlledBy(p, daemons))
}

// longestLine limits the part of a Pod's log in an error, in bytes.
const longestLine = 1000

// podError is the error of a broken Pod, with the last line of its log.
func (o *rollout) podError(ctx context.Context, env *step.Env, p *corev1.Pod) error {
	said := ""
	for _, c := range p.Status.ContainerStatuses {
		if c.RestartCount == 0 {
			continue
		}
		q := cluster.Query{
			Path:   path.Join("/api/v1/namespaces", p.Namespace, "pods", p.Name, "log"),
			Params: url.Values{"container": {c.Name}, "previous": {"true"}, "tailLines": {"1"}, "limitBytes": {strconv.Itoa(longestLine)}},
		}
		_ = env.Cluster.Read(ctx, q, func(r io.Reader) error { // it's only more to say
			line, err := io.ReadAll(io.LimitReader(r, longestLine)) // a kubelet may answer with more
			said += "; the last line of its log: " + strings.TrimSpace(string(line))
			return err
		})
	}
	return errors.Errorf("Pod %s of %s on node %s does not run with the change%s (restarts: %d)%s",
		p.Name, o.workload.GetName(), p.Spec.NodeName, waitingReasons(p), restarts(p), said)
}

func sameAs(p *corev1.Pod) func(corev1.Pod) bool {
	return func(other corev1.Pod) bool { return other.UID == p.UID }
}

// containers are the states of all containers of a Pod, in the order in which they start.
func containers(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

func restarts(p *corev1.Pod) (n int32) {
	for _, c := range containers(p) {
		n += c.RestartCount
	}
	return n
}

// waitingReasons says what the containers of a Pod wait for; empty if none does.
func waitingReasons(p *corev1.Pod) (why string) {
	for _, c := range containers(p) {
		if c.State.Waiting != nil {
			why += fmt.Sprintf("; container %s: %s %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	return why
}

// isStuck reports whether a container can't start without help: it keeps ending, or can't be created.
func isStuck(p *corev1.Pod) bool {
	reasons := []string{"CrashLoopBackOff", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"}
	return slices.ContainsFunc(containers(p), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && slices.Contains(reasons, c.State.Waiting.Reason)
	})
}
