// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// hostRuntime is a container runtime that a host has, or will get.
type hostRuntime struct {
	unit, socket string
	// owner is who installed it.
	owner runtimeOwner
}

type runtimeOwner int

const (
	noRuntime      runtimeOwner = iota // there is none
	bundledRuntime                     // from a bundle
	foreignRuntime
)

func (r hostRuntime) foreign() bool { return r.owner == foreignRuntime }

func (r hostRuntime) check(ctx context.Context, env *step.Env) preflight.HostRuntime {
	running := true // assumed if only the socket is known
	if r.unit != "" {
		state, err := unitState(ctx, env, r.unit)
		running = err != nil || state.ActiveState == "active"
	}
	return preflight.HostRuntime{Socket: r.socket, Installed: r.foreign(), Running: running}
}

// knownRuntimes are container runtimes' units and sockets, in the order of config.KnownSockets.
func knownRuntimes() []hostRuntime {
	var list []hostRuntime
	for i, unit := range []string{containerd.Unit, "crio.service", "cri-docker.service"} {
		list = append(list, hostRuntime{unit: unit, socket: "unix://" + config.KnownSockets()[i]})
	}
	list[0].socket = containerd.Socket
	return list
}

// takesImages reports whether images can be imported: only containerd can.
func (r hostRuntime) takesImages() bool { return strings.Contains(r.socket, "containerd") }

// isOwnSocket reports whether a socket is a bundle's containerd's.
func isOwnSocket(socket string) bool { return socketPath(socket) == socketPath(containerd.Socket) }

// socketPath is a socket's path. In a configuration, it's usually below /var/run, which is /run.
func socketPath(socket string) string {
	path := strings.TrimPrefix(socket, "unix://")
	if below, found := strings.CutPrefix(path, "/var/run/"); found {
		return "/run/" + below
	}
	return path
}

// findRuntime looks for the kubelet's runtime: the operator's, or else a bundle's containerd. Containerd's own guide puts its
// unit where a bundle does, so the record tells whose it is. A named socket decides, then a node's kubelet, then a bundle's
// containerd that's here already. Of several others, only a runtime that answers counts: Docker brings a containerd with CRI
// disabled.
func (p *Prepare) findRuntime(ctx context.Context, env *step.Env) (hostRuntime, error) {
	candidates := knownRuntimes()
	own := candidates[0]
	named, kubelets := env.Machine.CRISocket, thisnode.KubeletSocket(env.Host)
	if named != "" && !isOwnSocket(named) {
		return namedRuntime(ctx, env, named)
	}
	if isOwnSocket(cmp.Or(named, kubelets)) {
		candidates = candidates[:1]
	}
	bundled, err := broughtContainerd(env)
	if err != nil {
		return own, err
	}
	var found []hostRuntime
	for _, r := range candidates {
		state, err := unitState(ctx, env, r.unit)
		if err != nil {
			return own, err
		}
		switch {
		case bundled && isBundlesPlace(env.Host, state.Fragment, containerd.Unit):
			own.owner = bundledRuntime
			if kubelets == "" {
				return own, nil
			}
		case state.LoadState == "loaded":
			r.owner = foreignRuntime
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return own, nil
	case 1:
		return found[0], nil
	}
	return chooseRuntime(ctx, env, kubelets, found)
}

// namedRuntime is a runtime of the operator's at a socket. Its unit is known if it's one of the usual ones, and nothing else answers.
func namedRuntime(ctx context.Context, env *step.Env, socket string) (hostRuntime, error) {
	r := hostRuntime{socket: socket, owner: foreignRuntime}
	for _, known := range knownRuntimes() {
		if socketPath(known.socket) != socketPath(socket) {
			continue
		}
		state, err := unitState(ctx, env, known.unit)
		if err != nil {
			return r, err
		}
		_, silent := env.Host.RuntimeInfo(ctx, socket)
		if state.ActiveState == "active" || state.LoadState == "loaded" && silent != nil {
			r.unit = known.unit
		}
	}
	return r, nil
}

// broughtContainerd reports whether a bundle brought containerd here. Earlier releases didn't record it, but marked its unit.
func broughtContainerd(env *step.Env) (bool, error) {
	record, err := readPrepared(env.Host)
	return record.Containerd || broughtUnit(env.Host, containerd.Unit), err
}

// Socket is the path of the socket where the host's runtime answers, or will once it's started.
func (p *Prepare) Socket(ctx context.Context, env *step.Env) (string, error) {
	found, err := p.findRuntime(ctx, env)
	return strings.TrimPrefix(found.socket, "unix://"), err
}

// chooseRuntime prefers the runtime at the socket of a node's kubelet; "" if there's none.
func chooseRuntime(ctx context.Context, env *step.Env, kubelets string, found []hostRuntime) (hostRuntime, error) {
	var answering []hostRuntime
	var names []string
	for _, r := range found {
		if socketPath(r.socket) == socketPath(kubelets) {
			return r, nil
		}
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
