// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
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
	"github.com/slipway-k8s/slipway/preflight"
)

// runtimeStart bounds the start of a container runtime, which takes a second.
const runtimeStart = time.Minute

// A hostRuntime is a container runtime that a host has, or is to get.
type hostRuntime struct {
	unit, socket string
	// by is who installed it.
	by runtimeOwner
}

type runtimeOwner int

const (
	nobody   runtimeOwner = iota // there is none
	slipways                     // from a bundle
	operators
)

func (r hostRuntime) foreign() bool { return r.by == operators }

// check is what preflight looks at.
func (r hostRuntime) check(ctx context.Context, env *Env) preflight.HostRuntime {
	running := true // as far as the socket is all that is known
	if r.unit != "" {
		state, err := unitState(ctx, env, r.unit)
		running = err != nil || state.ActiveState == "active"
	}
	return preflight.HostRuntime{Socket: r.socket, Installed: r.foreign(), Running: running}
}

// knownRuntimes are the units of container runtimes, with their sockets, in the order of config.KnownSockets.
func knownRuntimes() []hostRuntime {
	var list []hostRuntime
	for i, unit := range []string{containerd.Unit, "crio.service", "cri-docker.service"} {
		list = append(list, hostRuntime{unit: unit, socket: "unix://" + config.KnownSockets()[i]})
	}
	list[0].socket = containerd.Socket
	return list
}

// findRuntime looks for the runtime that the kubelet is to use: one that the operator has installed, or else containerd
// from a bundle. Of several, the one that answers counts: Docker brings a containerd with CRI disabled.
func (p *Prepare) findRuntime(ctx context.Context, env *Env) (hostRuntime, error) {
	own := knownRuntimes()[0]
	if socket := env.Config.CRISocket; socket != "" && socket != own.socket {
		return hostRuntime{socket: socket, by: operators}, nil
	}
	var found []hostRuntime
	for _, r := range knownRuntimes() {
		state, err := unitState(ctx, env, r.unit)
		if err != nil {
			return own, err
		}
		switch {
		case state.Fragment == containerd.UnitPath:
			own.by = slipways
		case state.LoadState == "loaded":
			r.by = operators
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return own, nil
	case 1:
		return found[0], nil
	}
	return chooseRuntime(ctx, env, found)
}

// Socket is the path of the socket where the host's runtime answers, or will answer once it is started.
func (p *Prepare) Socket(ctx context.Context, env *Env) (string, error) {
	found, err := p.findRuntime(ctx, env)
	return strings.TrimPrefix(found.socket, "unix://"), err
}

// chooseRuntime returns the one of several runtimes that answers.
func chooseRuntime(ctx context.Context, env *Env, found []hostRuntime) (hostRuntime, error) {
	var answering []hostRuntime
	var names []string
	for _, r := range found {
		names = append(names, r.unit)
		if _, err := env.Host.RuntimeInfo(ctx, r.socket); err == nil {
			answering = append(answering, r)
		}
	}
	if len(answering) == 1 {
		return answering[0], nil
	}
	return hostRuntime{}, fault.New("this host has several container runtimes: "+strings.Join(names, ", "), "name the one for Kubernetes with --cri-socket")
}

func (p *Prepare) containerRuntime() Phase {
	return Phase{
		Name:    "container-runtime",
		Summary: "Write containerd's settings and unit, or check the runtime that is there, and start it",
		Flags:   prepareFlags("registry-mirror"),
		Run:     p.runContainerRuntime,
	}
}

func (p *Prepare) runContainerRuntime(ctx context.Context, env *Env) error {
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return err
	}
	if found.by == nobody && !p.has("containerd") {
		return nil // verify says what is missing
	}
	changed := false
	if !found.foreign() {
		if changed, err = p.containerdFiles(ctx, env); err != nil {
			return err
		}
		changed = changed || containerdIsBehind(ctx, env)
	}
	if err := p.runUnit(ctx, env, found.unit, changed); err != nil {
		return err
	}
	if _, err := ensureFiles(ctx, env, ownership.File{Path: containerd.CrictlPath, Data: containerd.CrictlConfig(found.socket), Mode: 0o644}); err != nil {
		return err
	}
	return awaitRuntime(ctx, env, found.socket)
}

// containerdIsBehind reports whether containerd runs with settings that were changed since it started, as after a run that
// was interrupted.
func containerdIsBehind(ctx context.Context, env *Env) bool {
	state, err := unitState(ctx, env, containerd.Unit)
	if err != nil || state.ActiveState != "active" {
		return false
	}
	paths := []string{containerd.ConfigPath, containerd.UnitPath, containerd.ProxyPath, containerd.ConfDir}
	entries, _ := env.Host.ReadDir(containerd.ConfDir) // it need not exist
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

// containerdFiles writes what containerd from a bundle reads when it starts, and reports whether anything changed.
func (p *Prepare) containerdFiles(ctx context.Context, env *Env) (changed bool, err error) {
	// As containerd would, but so that its earlier mode is known.
	if err := env.Host.EnsureDir(containerd.DataDir, 0o700); err != nil {
		return false, err
	}
	for _, dir := range runtimeDirectories() {
		if err := env.Host.EnsureDir(dir, 0o755); err != nil {
			return false, err
		}
	}
	var files []ownership.File
	if sandbox := p.sandboxImage(); sandbox != "" { // else it stays as an earlier bundle has it
		settings := containerd.Settings{
			SandboxImage:  sandbox,
			SystemdCgroup: systemdManagesCgroups(env.Host),
			Runc:          filepath.Join(programDir, "runc"),
		}
		files = append(files, ownership.File{Path: containerd.ConfigPath, Data: containerd.Config(settings), Mode: 0o644})
	}
	if proxies := containerd.ProxyDropIn(env.Host.Environ()); proxies != nil {
		files = append(files, ownership.File{Path: containerd.ProxyPath, Data: proxies, Mode: 0o600})
	}
	changed, err = ensureFiles(ctx, env, files...)
	for _, m := range p.Mirrors { // containerd reads these at each pull
		if err == nil {
			_, err = ensureFiles(ctx, env, ownership.File{Path: m.Path(), Data: m.Hosts(), Mode: 0o644})
		}
	}
	return changed, err
}

// sandboxImage is the bundle's image for sandboxes, or the usual one if it has none. It is empty without a bundle.
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

// checkSandboxImage makes sure that the image is there with which the runtime, as it is configured, begins each Pod.
func (p *Prepare) checkSandboxImage(ctx context.Context, env *Env, found hostRuntime) error {
	info, err := env.Host.RuntimeInfo(ctx, found.socket)
	if err != nil || info.SandboxImage == "" || p.bundled()[info.SandboxImage] != "" {
		return err
	}
	present, err := env.Host.ImagePresent(ctx, found.socket, info.SandboxImage)
	if err != nil || present || p.Bundle == nil {
		return err
	}
	return fault.New(fmt.Sprintf("the container runtime begins each Pod with %s, which is neither here nor in the bundle", info.SandboxImage),
		fmt.Sprintf("set the sandbox image to %s in its configuration, and restart it", p.sandboxImage()))
}

// warnOfSandbox says that containerd has to pull the image of sandboxes if the bundle's images are left out: no image
// repository that init is given changes its name. It also says so if a runtime of somebody else's does not name its image, as
// containerd 2 does not.
func (p *Prepare) warnOfSandbox(ctx context.Context, env *Env, found hostRuntime) {
	image := p.sandboxImage()
	if found.foreign() && p.Bundle != nil {
		if info, err := env.Host.RuntimeInfo(ctx, found.socket); err == nil && info.SandboxImage == "" {
			env.UI.Warn("the container runtime does not say with which image it begins each Pod, so it was not checked that this image is here",
				"compare it with "+image+" of the bundle: for containerd, `containerd config dump` shows it as sandbox below pinned_images")
		}
		return
	}
	if image == "" || found.foreign() || !slices.Contains(env.Config.SkipPhases, "images") {
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

// systemdManagesCgroups reports whether containers belong into systemd's cgroups. With cgroup v2, systemd has to be the
// only manager: https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers
func systemdManagesCgroups(h host.Host) bool {
	_, err := h.Stat("/run/systemd/system")
	return err == nil
}

// runUnit enables and starts a unit, or restarts it if its files have changed. It is empty for a runtime of which only
// the socket is known.
func (p *Prepare) runUnit(ctx context.Context, env *Env, unit string, changed bool) error {
	if unit == "" {
		return nil
	}
	if err := reloadFor(ctx, env, unit, changed); err != nil {
		return err
	}
	if err := p.enable(ctx, env, unit); err != nil {
		return err
	}
	state, err := unitState(ctx, env, unit)
	switch {
	case err != nil:
		return err
	case state.ActiveState != "active":
		env.UI.Printf("Starting %s", unit)
		return env.Host.StartUnit(ctx, unit)
	case changed || state.Replaced: // no container ends with it: see containerd.ServiceUnit
		env.UI.Printf("Restarting %s", unit)
		return env.Host.RestartUnit(ctx, unit)
	}
	return nil
}

// awaitRuntime waits until the runtime answers.
func awaitRuntime(ctx context.Context, env *Env, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeStart)
	defer cancel()
	err := env.Host.AwaitRuntime(ctx, socket)
	return fault.WithRemedy(errors.Wrapf(err, "the container runtime at %s does not work", socket), fmt.Sprintf("see `journalctl -u %s`", containerd.Unit))
}
