// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// runKubelet makes the unit start the bundle's kubelet, whatever a package has installed. It's enabled but not started: init and
// join start it with its settings.
func (p *Prepare) runKubelet(ctx context.Context, env *step.Env) error {
	if !p.startsKubelet(ctx, env) {
		return p.enableInstalled(ctx, env)
	}
	if err := p.refuseHidden(ctx, env); err != nil {
		return err
	}
	dropIn := ownership.File{Path: kubeletconfig.DropInPath, Data: kubeletconfig.DropIn(bundledKubelet), Mode: kubeletconfig.UnitMode}
	changed, err := ensureFiles(ctx, env, dropIn)
	if err == nil {
		err = reloadFor(ctx, env, node.KubeletUnit, changed)
	}
	if err != nil {
		return err
	}
	if err := p.enable(ctx, env, node.KubeletUnit); err != nil {
		return err
	}
	return p.restartReplaced(ctx, env, changed)
}

// bundledKubelet is the path of a bundle's kubelet.
const bundledKubelet = programDir + "/kubelet"

// refuseHidden refuses a drop-in that systemd reads after the bundle's, and that has another kubelet's command. Other programs may
// start the bundle's. It asks the files, because systemd doesn't know those of a plan.
func (p *Prepare) refuseHidden(ctx context.Context, env *step.Env) error {
	const own = kubeletconfig.DropInPath
	path, file := thisnode.KubeletProgram(env.Host)
	name := filepath.Base(file)
	if path == "" || filepath.Ext(name) != ".conf" || name <= filepath.Base(own) || isSameFile(env.Host, path, bundledKubelet) || !p.startsKubelet(ctx, env) {
		return nil
	}
	remedy := "remove it, or rename it so that its name sorts before " + filepath.Base(own)
	if dir := filepath.Dir(own); filepath.Dir(file) != dir {
		remedy = "hide it with `ln -s /dev/null " + filepath.Join(dir, name) + "`, or " + remedy
	}
	return fault.New(
		"systemd would not start the bundle's kubelet: ExecStart in "+file+" takes precedence over "+own+", and starts "+path,
		remedy+", then run the same command again; to keep it, skip the phase with --skip-phases="+p.phase("kubelet"))
}

// isSameFile reports whether two paths lead to the same file.
func isSameFile(h host.FileReader, a, b string) bool {
	if a == b {
		return true
	}
	infoA, errA := h.Stat(a)
	infoB, errB := h.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// startsKubelet reports whether the bundle has a kubelet, and this host's unit isn't to start its own of the same version.
func (p *Prepare) startsKubelet(ctx context.Context, env *step.Env) bool {
	return p.program("kubelet") != nil && !hasMatchingKubelet(ctx, env, p.Bundle.Index().KubernetesVersion)
}

// restartReplaced restarts a kubelet whose program or settings were replaced, now or by an earlier run, after which it doesn't
// come up. Its Pods go on, except static Pods that another minor version takes for new.
func (p *Prepare) restartReplaced(ctx context.Context, env *step.Env, changed bool) error {
	state, err := unitState(ctx, env, node.KubeletUnit)
	crashing := state.ActiveState == "activating" || state.ActiveState == "failed"
	if err != nil || state.ActiveState != "active" && !crashing {
		return err
	}
	if !changed && !state.Replaced && !crashing && !runsAnother(env, state.MainPID) {
		return p.releaseInterruptedLease(ctx, env)
	}
	if _, err := env.Host.Lstat(env.Machine.Paths.KubeletKubeconfig()); err != nil {
		return host.IgnoreMissing(err) // it waits for its settings
	}
	if p.ControlPlane != nil {
		return p.restartWithLease(ctx, env)
	}
	return restartKubelet(ctx, env)
}

// runsAnother reports whether the running kubelet isn't the bundle's, which systemd would start now: an earlier run has written the
// drop-in, and ended before the restart.
func runsAnother(env *step.Env, pid uint32) bool {
	command, err := env.Host.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	running, _, _ := strings.Cut(string(command), "\x00")
	if err != nil || !strings.HasSuffix(running, "/kubelet") || running == bundledKubelet {
		return false
	}
	path, _ := thisnode.KubeletProgram(env.Host)
	return path == bundledKubelet
}

func restartKubelet(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Restarting the kubelet")
	return node.RestartKubeletAndWait(ctx, env)
}

// hasMatchingKubelet reports whether the host already has this version of the kubelet from elsewhere, and its unit starts it.
func hasMatchingKubelet(ctx context.Context, env *step.Env, version string) bool {
	state, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil || state.Program == "" || strings.HasPrefix(state.Program, programDir+"/") {
		return false
	}
	text, err := env.Host.ProgramVersion(ctx, state.Program)
	return err == nil && text == "Kubernetes "+version
}

func (p *Prepare) enableInstalled(ctx context.Context, env *step.Env) error {
	state, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil || state.LoadState != "loaded" {
		return err
	}
	return p.enable(ctx, env, node.KubeletUnit)
}

// reloadFor makes systemd reread a unit's files if this or an interrupted run changed them.
func reloadFor(ctx context.Context, env *step.Env, unit string, changed bool) error {
	state, err := unitState(ctx, env, unit)
	if err != nil || !changed && state.LoadState == "loaded" && state.Current {
		return err
	}
	return env.Host.ReloadUnits(ctx)
}

// DetectControlPlane notes whether this host is a control plane; env is from that node's workflow.
func (p *Prepare) DetectControlPlane(env *step.Env) {
	if thisnode.IsControlPlane(env.Host) {
		p.ControlPlane = env.Config
	}
}

// restartWithLease restarts a control plane's kubelet while no other restarts. A kubelet of another minor version may take the
// static Pods for new and replace them, etcd and the API server among them.
func (p *Prepare) restartWithLease(ctx context.Context, env *step.Env) error {
	here := env.ForNode(p.ControlPlane)
	mine, err := node.AcquireLeaseIfReachable(ctx, here, node.ForPreparation)
	if err != nil {
		return err
	}
	others := []preflight.Check{node.NewQuorumCheck(here)}
	if mine.Held { // only the API knows whether they're Ready
		others = append(others, node.NewNodesReadyCheck(here))
	}
	if err := node.AwaitChecks(ctx, here, others, env.Machine.IgnorePreflightErrors); err != nil {
		return mine.Cancel(ctx, err)
	}
	mine.KeepOnFailure()
	if err := restartKubelet(ctx, env); err != nil || !mine.Held {
		return err
	}
	if err := awaitAdopted(ctx, here); err != nil {
		return err
	}
	return mine.Release(ctx, here, nil)
}

// releaseInterruptedLease gives back an interrupted run's Lease, once the kubelet that it has restarted works.
func (p *Prepare) releaseInterruptedLease(ctx context.Context, env *step.Env) error {
	if p.ControlPlane == nil {
		return nil
	}
	return node.ReleaseInterruptedLease(ctx, env.ForNode(p.ControlPlane), node.ForPreparation, node.WaitKubelet, awaitAdopted)
}

// awaitAdopted waits until the newly started kubelet runs this control plane's static Pods. It makes their UIDs from their
// contents, and replaces Pods with other UIDs some seconds after it has become healthy.
func awaitAdopted(ctx context.Context, env *step.Env) error {
	const failure = "the kubelet does not run the static Pods of this control plane yet"
	limit := &env.Config.Timeouts.UpgradeManifests
	return env.Guard(ctx, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		return env.Cluster.AwaitNode(ctx, env.Config.Name, func(reported *corev1.Node, _ []corev1.Pod) error {
			if err := node.NodeReady(reported); err != nil {
				return err
			}
			return adopted(ctx, env)
		})
	})
}

// adopted compares the kubelet's UIDs of the static Pods with the running Pods'.
func adopted(ctx context.Context, env *step.Env) error {
	var known corev1.PodList
	pods := cluster.Query{Path: cluster.KubeletPath(env.Config.Name, "pods")}
	if err := cluster.ReadJSON(ctx, env.Cluster, pods, cluster.LargestKubelet, &known); err != nil {
		return err
	}
	running, err := env.Host.Sandboxes(ctx, env.Config.CRISocket, metav1.NamespaceSystem)
	if err != nil {
		return err
	}
	wanted := map[string]string{}
	for i := range known.Items {
		if pod := &known.Items[i]; pod.Namespace == metav1.NamespaceSystem {
			wanted[pod.Name] = string(pod.UID)
		}
	}
	for _, component := range node.StaticPods(env) {
		pod, found := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(component))
		if !found {
			continue
		}
		name, there := pod.Name+"-"+env.Config.Name, false
		for _, s := range running {
			switch {
			case s.Pod != name || !s.Ready:
			case s.UID != wanted[name]:
				return errors.Errorf("the kubelet replaces Pod %s", name)
			default:
				there = true
			}
		}
		if !there {
			return errors.Errorf("the kubelet has not started Pod %s yet", name)
		}
	}
	return nil
}
