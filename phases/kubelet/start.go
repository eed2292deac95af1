// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet has the phases that configure and start the kubelet (Start for init, StartJoin for join), and the phases
// after its start: WaitBootstrap, Finalize, ServingCertificate and WaitNode. Files makes its files for a new node, NextFiles
// for an upgrade or a reconfiguration. To restart a running kubelet, see phases/node.
package kubelet

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Start is the phase kubelet-start of init.
func Start() step.Phase {
	return step.Phase{
		Name:    "kubelet-start",
		Summary: "Write the kubelet's settings and start it",
		Flags:   []string{"config", "cri-socket", "dry-run", "enable-kubelet", "image-repository", "node-name", "patches", "profile"},
		Run:     runKubeletStart,
	}
}

func runKubeletStart(ctx context.Context, env *step.Env) error {
	wanted, err := Files(env)
	if err == nil {
		wanted, err = env.Keeper().Pending("init phase kubelet-start", wanted...)
	}
	if err == nil {
		err = forgetForeign(ctx, env)
	}
	if err != nil {
		return err
	}
	if started, err := ensureKubelet(ctx, env, wanted); err != nil || !started {
		return err
	}
	if err := restartForConf(ctx, env); err != nil {
		return err
	}
	// A kubelet that's still starting may miss a static Pod written now, and look again only after 20 s. A healthy kubelet
	// watches the directory.
	return node.WaitKubelet(ctx, env)
}

// ensureKubelet stops the kubelet before it changes a file the kubelet reads, and doesn't touch a kubelet already running with
// these files. Without an init system it only writes the files.
func ensureKubelet(ctx context.Context, env *step.Env, wanted []ownership.File) (started bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	pending, err := ownership.Differing(env.Host, wanted)
	if err != nil {
		return false, err
	}
	err = restartWith(ctx, env, pending)
	if !errors.Is(err, host.ErrNoSystemd) {
		return err == nil, err
	}
	env.UI.Warn(err.Error()+": the kubelet is neither stopped nor started", "start it some other way once its files are written")
	return false, writeKubeletFiles(env, pending)
}

// restartWith restarts the kubelet with pending files.
func restartWith(ctx context.Context, env *step.Env, pending []ownership.File) error {
	if env.Config.EnableKubelet {
		if err := env.Host.OrderUnit(ctx, host.EnableUnit, node.KubeletUnit); err != nil {
			return err
		}
	}
	unit, err := env.Host.Unit(ctx, node.KubeletUnit)
	if err != nil && len(pending) == 0 {
		return err
	}
	running := err == nil && unit.ActiveState == "active"
	if running && len(pending) == 0 {
		env.UI.Printf("The kubelet is already running with these settings")
		return nil
	}
	env.UI.Printf("Stopping the kubelet")
	if err := env.Host.OrderUnit(ctx, host.StopUnit, node.KubeletUnit); err != nil {
		return explainedJob(ctx, env, err)
	}
	if err := prepareKubelet(ctx, env, pending); err != nil {
		if running {
			return startAgain(ctx, env, err)
		}
		return err
	}
	env.UI.Printf("Starting the kubelet")
	return explainedJob(ctx, env, env.Host.OrderUnit(ctx, host.StartUnit, node.KubeletUnit))
}

func prepareKubelet(ctx context.Context, env *step.Env, pending []ownership.File) error {
	if err := writeKubeletFiles(env, pending); err != nil {
		return err
	}
	if err := ensureServingPair(env); err != nil {
		return err
	}
	return EnsureUnitIsCurrent(ctx, env)
}

// startAgain starts the kubelet of a working node whose new files couldn't be written, for example on a full disk: each file is
// either old or new, and without a kubelet the node would lose its Pods. It returns cause.
func startAgain(ctx context.Context, env *step.Env, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	if err := env.Host.OrderUnit(ctx, host.StartUnit, node.KubeletUnit); err != nil {
		return errors.WithMessagef(cause, "the kubelet is stopped and could not be started again (%v): fix the problem, then run `systemctl start kubelet`", err)
	}
	env.UI.Warnf("not all of the kubelet's files could be written; the kubelet is running again")
	return cause
}

// explainedJob explains why systemd can't do a job, if the kubelet's unit is at fault. Other errors explain themselves.
func explainedJob(ctx context.Context, env *step.Env, err error) error {
	if err == nil {
		return nil
	}
	unit, unknown := env.Host.Unit(ctx, node.KubeletUnit)
	if unknown != nil || unit.LoadState == "loaded" && unit.UnitFileState != "masked" {
		return err
	}
	return diagnose.Explain(ctx, env.Host, env.Host.Now(), env.KubeletTarget(), err)
}

// EnsureUnitIsCurrent makes systemd reload the kubelet's unit if it has changed on disk: reloading takes a tenth of a second.
func EnsureUnitIsCurrent(ctx context.Context, env *step.Env) error {
	if unit, err := env.Host.Unit(ctx, node.KubeletUnit); err == nil && unit.Current {
		return nil
	}
	return env.Host.ReloadUnits(ctx)
}

func writeKubeletFiles(env *step.Env, pending []ownership.File) error {
	if err := env.Host.EnsureDir(env.Config.Paths.Kubelet, 0o700); err != nil {
		return err
	}
	// A kubelet that finds no directory of static Pods looks again only after 20 s.
	if env.Config.ControlPlane {
		if err := env.Host.EnsureDir(env.Config.Paths.Manifests, 0o700); err != nil {
			return err
		}
	}
	return env.Keeper().Replace(pending)
}

// Files returns the files the kubelet reads when it starts. Only root may read them: CIS Kubernetes Benchmark 4.1.9.
func Files(env *step.Env) ([]ownership.File, error) {
	n := env.Config
	cfg, _, err := ConfigYAML(env)
	if err != nil {
		return nil, err
	}
	flags, err := kubeletconfig.FlagsEnv(n)
	if err != nil {
		return nil, err
	}
	return []ownership.File{
		settingsFile(n.Paths.KubeletFlags(), flags),
		settingsFile(n.Paths.InstanceConfig(), kubeletconfig.InstanceConfigYAML(n)),
		settingsFile(n.Paths.KubeletConfig(), cfg),
	}, nil
}

func settingsFile(path string, data []byte) ownership.File {
	return ownership.File{Path: path, Data: data, Mode: 0o600}
}

// restartForConf restarts a kubelet running with an unfinished init's kubelet.conf.
func restartForConf(ctx context.Context, env *step.Env) error {
	if !env.Rerun || !env.Unfinished {
		return nil
	}
	return node.RestartStaleKubelet(ctx, env, env.Config.Paths.KubeletKubeconfig())
}
