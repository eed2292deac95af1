// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/kubeletconfig"
)

// kubeletUnit is the name of the kubelet's unit in the distributions' packages.
const kubeletUnit = "kubelet.service"

func kubeletStart() Phase {
	return Phase{
		Name:    "kubelet-start",
		Summary: "Write the kubelet's settings and start it",
		Flags:   []string{"config", "cri-socket", "dry-run", "enable-kubelet", "image-repository", "node-name", "patches"},
		Run:     runKubeletStart,
	}
}

func runKubeletStart(ctx context.Context, env *Env) error {
	wanted, err := kubeletFiles(env)
	if err == nil {
		wanted, err = env.keeper().Pending("init phase kubelet-start", wanted...)
	}
	if err == nil {
		err = forgetOtherName(ctx, env)
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
	// A kubelet that is still starting may miss a static Pod that is written now, and look again only after 20 s. A
	// healthy one watches the directory.
	return waitKubelet(ctx, env)
}

// ensureKubelet stops the kubelet before it changes a file that the kubelet reads, and does not touch a kubelet that
// already runs with these files. Without an init system it only writes the files.
func ensureKubelet(ctx context.Context, env *Env, wanted []ownership.File) (started bool, err error) {
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

// restartWith restarts the kubelet with files that differ.
func restartWith(ctx context.Context, env *Env, pending []ownership.File) error {
	if env.Config.EnableKubelet {
		if err := env.Host.EnableUnit(ctx, kubeletUnit); err != nil {
			return err
		}
	}
	unit, err := env.Host.Unit(ctx, kubeletUnit)
	if err != nil && len(pending) == 0 {
		return err
	}
	running := err == nil && unit.ActiveState == "active"
	if running && len(pending) == 0 {
		env.UI.Printf("The kubelet is already running with these settings")
		return nil
	}
	env.UI.Printf("Stopping the kubelet")
	if err := env.Host.StopUnit(ctx, kubeletUnit); err != nil {
		return explainedJob(ctx, env, err)
	}
	if err := prepareKubelet(ctx, env, pending); err != nil {
		if running {
			return startAgain(ctx, env, err)
		}
		return err
	}
	env.UI.Printf("Starting the kubelet")
	return explainedJob(ctx, env, env.Host.StartUnit(ctx, kubeletUnit))
}

// prepareKubelet does what a stopped kubelet needs before it starts.
func prepareKubelet(ctx context.Context, env *Env, pending []ownership.File) error {
	if err := writeKubeletFiles(env, pending); err != nil {
		return err
	}
	if err := ensureServingPair(env); err != nil {
		return err
	}
	return ensureUnitIsCurrent(ctx, env)
}

// writeKubeletFiles writes what the kubelet reads when it starts.
func writeKubeletFiles(env *Env, pending []ownership.File) error {
	if err := env.Host.EnsureDir(env.Config.Paths.Kubelet, 0o700); err != nil {
		return err
	}
	// A kubelet that finds no directory of static Pods looks again after 20 s.
	if env.Config.ControlPlane {
		if err := env.Host.EnsureDir(env.Config.Paths.Manifests, 0o700); err != nil {
			return err
		}
	}
	return env.keeper().Replace(pending)
}

// startAgain starts the kubelet of a working node whose new files could not be written, for example on a full disk:
// each file is either old or new, and without a kubelet the node would lose its Pods. It returns cause, the error
// that made it necessary.
func startAgain(ctx context.Context, env *Env, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	if err := env.Host.StartUnit(ctx, kubeletUnit); err != nil {
		return errors.WithMessagef(cause, "the kubelet is stopped and could not be started again (%v): fix the problem, then run `systemctl start kubelet`", err)
	}
	env.UI.Warnf("not all of the kubelet's files could be written; the kubelet is running again")
	return cause
}

// explainedJob says why systemd cannot do a job on the kubelet's unit, if the unit is at fault. Other errors say
// enough by themselves.
func explainedJob(ctx context.Context, env *Env, err error) error {
	if err == nil {
		return nil
	}
	unit, unknown := env.Host.Unit(ctx, kubeletUnit)
	if unknown != nil || unit.LoadState == "loaded" && unit.UnitFileState != "masked" {
		return err
	}
	return diagnose.Explain(ctx, env.Host, env.Host.Now(), env.kubeletTarget(), err)
}

// ensureUnitIsCurrent makes systemd read the kubelet's unit as it is on disk: its drop-in may have just been
// installed. Reading all units takes systemd a tenth of a second, so it is done only if needed.
func ensureUnitIsCurrent(ctx context.Context, env *Env) error {
	if unit, err := env.Host.Unit(ctx, kubeletUnit); err == nil && unit.Current {
		return nil
	}
	return env.Host.ReloadUnits(ctx)
}

// kubeletFiles are what the kubelet reads when it starts. Only root may read them: CIS Kubernetes Benchmark 4.1.9.
func kubeletFiles(env *Env) ([]ownership.File, error) {
	n := env.Config
	cfg, err := kubeletConfigYAML(env)
	if err != nil {
		return nil, err
	}
	flags, err := kubeletconfig.FlagsEnv(n)
	if err != nil {
		return nil, err
	}
	file := func(name string, data []byte) ownership.File {
		return ownership.File{Path: filepath.Join(n.Paths.Kubelet, name), Data: data, Mode: 0o600}
	}
	return []ownership.File{
		file("kubeadm-flags.env", flags),
		file("instance-config.yaml", kubeletconfig.InstanceConfigYAML(n)),
		file("config.yaml", cfg),
	}, nil
}

func kubeletConfigYAML(env *Env) ([]byte, error) {
	data, err := kubeletconfig.ConfigYAML(env.Config)
	if err != nil {
		return nil, err
	}
	patches, err := env.patches()
	if err != nil {
		return nil, err
	}
	if data, err = patches.Apply(config.PatchKubelet, data, kubeletconfig.New()); err != nil {
		return nil, err
	}
	return env.Config.KubeletWithExtra(data)
}
