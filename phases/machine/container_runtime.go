// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	// runtimeStart bounds the start of a container runtime, which takes a second, or minutes on a slow host with many unpacked
	// images.
	runtimeStart = 5 * time.Minute
	// runtimeCheck is how often the wait for it asks whether its unit still runs, while a question to the runtime goes on.
	runtimeCheck = 5 * time.Second
)

func (p *Prepare) runContainerRuntime(ctx context.Context, env *step.Env) error {
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return err
	}
	if found.owner == noRuntime && p.program("containerd") == nil {
		return nil // verify says what is missing
	}
	changed := false
	if !found.foreign() {
		if changed, err = p.containerdFiles(ctx, env); err != nil {
			return err
		}
		changed = changed || containerdIsBehind(ctx, env)
	}
	if err := p.runUnit(ctx, env, found, changed); err != nil {
		return err
	}
	if _, err := ensureFiles(ctx, env, ownership.File{Path: containerd.CrictlPath, Data: containerd.CrictlConfig(found.socket), Mode: 0o644}); err != nil {
		return err
	}
	return awaitRuntime(ctx, env, found)
}

// containerdIsBehind reports whether containerd's settings have changed since it started, as after an interrupted run.
func containerdIsBehind(ctx context.Context, env *step.Env) bool {
	state, err := unitState(ctx, env, containerd.Unit)
	if err != nil || state.ActiveState != "active" {
		return false
	}
	paths := append(unitPaths(containerd.Unit), containerd.ConfigPath, containerd.ProxyPath, containerd.ProxyEnvPath, containerd.ConfDir)
	entries, _ := env.Host.ReadDir(containerd.ConfDir) // it needn't exist
	for _, e := range entries {
		paths = append(paths, filepath.Join(containerd.ConfDir, e.Name()))
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		info, err := env.Host.Lstat(path)
		return err == nil && info.ModTime().After(state.ActiveSince)
	})
}

// runtimeDirectories are for an operator's settings and the Pod network's.
func runtimeDirectories() []string {
	return []string{containerd.ConfDir, containerd.CertsDir, "/etc/cni/net.d"}
}

// containerdFiles writes the files a bundle's containerd reads at start, and reports whether anything changed.
func (p *Prepare) containerdFiles(ctx context.Context, env *step.Env) (changed bool, err error) {
	// As containerd would, but so that its earlier mode is known.
	if err := env.Host.EnsureDir(containerd.DataDir, 0o700); err != nil {
		return false, err
	}
	for _, dir := range runtimeDirectories() {
		if err := ensureDir(env, dir); err != nil {
			return false, err
		}
	}
	var files []ownership.File
	if sandbox := p.sandboxImage(); sandbox != "" { // otherwise it stays as an earlier bundle set it
		settings := containerd.Settings{
			SandboxImage:  sandbox,
			SystemdCgroup: systemdManagesCgroups(env.Host),
			Runc:          filepath.Join(programDir, "runc"),
		}
		files = append(files, ownership.File{Path: containerd.ConfigPath, Data: containerd.Config(settings), Mode: 0o644})
	}
	proxies, err := proxiesOf(env)
	if err != nil {
		return false, err
	}
	files = append(files, proxies...)
	changed, err = ensureFiles(ctx, env, files...)
	for _, m := range p.Mirrors { // containerd reads these at each pull
		if err == nil {
			_, err = ensureFiles(ctx, env, ownership.File{Path: m.Path(), Data: m.Hosts(), Mode: 0o644})
		}
	}
	return changed, err
}

// proxiesOf are the files that give containerd the environment's proxies. Without any, existing files stay; but an earlier
// release's drop-in, which shows the proxies' passwords to every user, is replaced.
func proxiesOf(env *step.Env) ([]ownership.File, error) {
	proxies := containerd.ProxyEnv(env.Host.Environ())
	if proxies == nil {
		have, err := host.ReadIfExists(env.Host, containerd.ProxyPath)
		if err != nil || !env.Host.Unchanged(containerd.ProxyPath) {
			return nil, host.IgnoreForbidden(err)
		}
		proxies = containerd.ProxyEnv(containerd.ShownProxies(have))
	}
	if proxies == nil {
		return nil, nil
	}
	theirs, err := operatorsProxies(env)
	if err != nil {
		return nil, err
	}
	if theirs != "" {
		env.UI.Printf("Leaving containerd's proxies to %s", theirs)
		return nil, nil
	}
	return []ownership.File{
		{Path: containerd.ProxyEnvPath, Data: proxies, Mode: 0o600},
		{Path: containerd.ProxyPath, Data: containerd.ProxyDropIn(), Mode: 0o644},
	}, nil
}

// operatorsProxies is an operator's drop-in that gives containerd proxies, or "". systemd would prefer proxies in an
// EnvironmentFile, wherever it's named, to a drop-in's own.
func operatorsProxies(env *step.Env) (string, error) {
	dir := filepath.Dir(containerd.ProxyPath)
	entries, err := env.Host.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if path == containerd.ProxyPath || filepath.Ext(path) != ".conf" {
			continue
		}
		text, err := env.Host.ReadFile(path)
		if err != nil {
			return "", err
		}
		if strings.Contains(strings.ToUpper(string(text)), "_PROXY=") {
			return path, nil
		}
	}
	return "", host.IgnoreForbidden(host.IgnoreMissing(err))
}

// sandboxImage is the bundle's image for sandboxes, or the usual image if it has none; "" without a bundle.
func (p *Prepare) sandboxImage() string {
	for _, part := range p.parts() {
		if part.Type == bundle.Image && strings.Contains(part.Name, "/pause:") {
			return part.Name
		}
	}
	if p.Bundle == nil {
		return ""
	}
	return config.SandboxImage()
}

// checkSandboxImage refuses a bundle without the runtime's configured sandbox image, unless that's already here.
func (p *Prepare) checkSandboxImage(ctx context.Context, env *step.Env, found hostRuntime) error {
	info, err := env.Host.RuntimeInfo(ctx, found.socket)
	if err != nil || info.SandboxImage == "" || p.bundled()[info.SandboxImage] != "" {
		return err
	}
	present, err := env.Host.ImagePresent(ctx, found.socket, info.SandboxImage)
	if err != nil || present || p.Bundle == nil {
		return err
	}
	return fault.New(fmt.Sprintf("the container runtime uses the sandbox image %s, which is neither on this host nor in the bundle", info.SandboxImage),
		fmt.Sprintf("set the sandbox image to %s in its configuration, and restart it", p.sandboxImage()))
}

// warnOfSandbox says that containerd must pull the sandbox image if the bundle's images are left out: no image repository given
// to init changes its name. It also warns if somebody else's runtime doesn't name its image, as containerd 2 doesn't.
func (p *Prepare) warnOfSandbox(ctx context.Context, env *step.Env, found hostRuntime) {
	image := p.sandboxImage()
	if found.foreign() && p.Bundle != nil {
		if info, err := env.Host.RuntimeInfo(ctx, found.socket); err == nil && info.SandboxImage == "" {
			env.UI.Warn("the container runtime does not report its sandbox image, so Slipway couldn't check that this host has it",
				"compare it with "+image+" of the bundle: for containerd, `containerd config dump` shows it as sandbox below pinned_images")
		}
		return
	}
	if image == "" || found.foreign() || !slices.Contains(env.Machine.SkipPhases, "images") {
		return
	}
	registry, _, _ := strings.Cut(image, "/")
	if _, err := env.Host.Lstat(containerd.Mirror{Registry: registry}.Path()); err == nil {
		return
	}
	if present, err := env.Host.ImagePresent(ctx, found.socket, image); err == nil && present {
		return
	}
	env.UI.Warn("containerd begins each Pod with "+image+", which is not on this host, whatever the image repository of the cluster is",
		"if "+registry+" is out of reach, name a mirror with --registry-mirror "+registry+"=URL, or leave out --skip-phases="+p.phase("images"))
}

// systemdManagesCgroups reports whether containers belong in systemd's cgroups. With cgroup v2, systemd must be the only manager:
// https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers
func systemdManagesCgroups(h host.Host) bool {
	_, err := h.Stat("/run/systemd/system")
	return err == nil
}

// runUnit enables and starts a runtime's unit. A bundle's is restarted if its files or its program have changed.
func (p *Prepare) runUnit(ctx context.Context, env *step.Env, r hostRuntime, changed bool) error {
	if r.unit == "" { // only its socket is known
		return nil
	}
	if err := reloadFor(ctx, env, r.unit, changed); err != nil {
		return err
	}
	if err := p.enable(ctx, env, r.unit); err != nil {
		return err
	}
	state, err := unitState(ctx, env, r.unit)
	switch {
	case err != nil:
		return err
	case state.ActiveState != "active":
		env.UI.Printf("Starting %s", r.unit)
		return env.Host.OrderUnit(ctx, host.StartUnit, r.unit)
	case !r.foreign() && (changed || state.Replaced): // no container ends with it: see containerd.ServiceUnit
		env.UI.Printf("Restarting %s", r.unit)
		return env.Host.OrderUnit(ctx, host.RestartUnit, r.unit)
	}
	return nil
}

// awaitRuntime also ends if the runtime's unit has ended.
func awaitRuntime(ctx context.Context, env *step.Env, r hostRuntime) error {
	limited, cancel := context.WithTimeout(ctx, runtimeStart)
	defer cancel()
	stop := node.Repeat(limited, runtimeCheck, func(ctx context.Context) {
		if r.unit == "" {
			return
		}
		if state, err := unitState(ctx, env, r.unit); err == nil && state.ActiveState != "active" && state.SubState != "start" {
			cancel()
		}
	})
	err := env.Host.AwaitRuntime(limited, r.socket)
	stop()
	return fault.WithRemedy(errors.Wrapf(err, "the container runtime at %s does not work", r.socket),
		fmt.Sprintf("see `journalctl -u %s`", cmp.Or(r.unit, containerd.Unit)))
}
