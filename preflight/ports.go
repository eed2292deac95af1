// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
)

// portUse is a TCP port and the program that is to listen on it.
type portUse struct {
	port    int
	program string
}

// A port that seems to be held by something foreign is looked at this often
// before it is called a fault: an earlier run may have been cut off while
// systemd restarted the kubelet, whose old process lets go of the port between
// the attempt to listen and the look at who does, or before its unit is read.
const (
	portLooks    = 10
	portInterval = 50 * time.Millisecond
)

// portFree accepts that the node's own control plane, which an earlier run
// started, holds its ports. What is there differently than the configuration
// wants is for the check of the static Pod to say.
func portFree(n *config.Node, u portUse) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) (findings []Finding) {
		_ = retry.Policy{First: portInterval, Tries: portLooks}.Do(ctx, func(ctx context.Context) error {
			var foreign bool
			if findings, foreign = lookAtPort(ctx, n, h, u); foreign {
				return errors.New("another program has the port") // findings say so
			}
			return nil
		})
		return findings
	}
}

// lookAtPort says what is to be said of a port, and whether something foreign
// holds it, as far as can be seen at this instant.
func lookAtPort(ctx context.Context, n *config.Node, h View, u portUse) (findings []Finding, foreign bool) {
	err := h.PortFree(u.port)
	if err == nil {
		return nil, false
	}
	holder, found := h.PortHolder(u.port)
	switch {
	case !found:
		return fault("%v: %s needs this port; find what holds it with `ss -ltnp` as root, and stop it", err, u.program), true
	case holder.Name != u.program:
		return fault("port %d, which %s needs, is held by %s (process %d): stop that program or give it another port",
			u.port, u.program, holder.Name, holder.PID), true
	case !ownProcess(ctx, n, h, holder):
		return fault("port %d is held by %s (process %d), which this node's configuration did not start: end it; if it belongs to a cluster that this host is part of, run `slipway reset` first",
			u.port, u.program, holder.PID), true
	}
	return note("%s runs already (process %d, port %d)", u.program, holder.PID, u.port), false
}

// ownProcess tells whether p is a part of the control plane that an earlier
// init set up here: its static Pod is in place; or it is the kubelet that
// systemd runs, or any where there is no systemd, on a host where an init or a
// join has begun.
func ownProcess(ctx context.Context, n *config.Node, h View, p host.Process) bool {
	if p.Name != kubelet {
		return exists(h, manifestPath(n, p.Name))
	}
	unit, err := h.Unit(ctx, kubeletUnit)
	begun := initBegun
	if n.Join != nil {
		begun = joinBegun
	}
	started := err == nil && int(unit.MainPID) == p.PID || errors.Is(err, host.ErrNoSystemd)
	return started && begun(n, h)
}

// initBegun tells a control plane, perhaps one whose init was cut off after it
// had started the kubelet, from a worker of another cluster: a worker has
// neither the CA's key nor the administrator's kubeconfig.
func initBegun(n *config.Node, h View) bool {
	return exists(h, manifestPath(n, apiServer)) || exists(h, filepath.Join(n.Paths.PKI, "ca.key")) ||
		exists(h, filepath.Join(n.Paths.Kubeconfigs, "admin.conf"))
}

// joinBegun tells a host that is a node, or was about to become one. Whether of
// this cluster is for the checks of these files to say.
func joinBegun(n *config.Node, h View) bool {
	return exists(h, filepath.Join(n.Paths.Kubeconfigs, "kubelet.conf")) ||
		exists(h, filepath.Join(n.Paths.Kubeconfigs, "bootstrap-kubelet.conf"))
}

func exists(h View, path string) bool {
	_, err := h.Lstat(path)
	return err == nil
}

// etcdData wants an empty folder, or the data of the member that runs here.
func etcdData(n *config.Node, dir string) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		entries, err := h.ReadDir(dir)
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
			_, being := host.LeftoverOf(e.Name())
			return being // the probe of WritableFolders, which is asked at the same time
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrPermission):
			return fault("whether %s is empty cannot be told: run as root", dir)
		case err != nil:
			return fault("whether %s is empty cannot be told: %v", dir, err)
		case len(entries) == 0:
			return nil
		case exists(h, manifestPath(n, etcd)) && exists(h, filepath.Join(dir, "member")):
			return note("%s holds the data of this node's etcd", dir)
		}
		return fault("%s is not empty, and no etcd of this node put that there: if it is what is left of an old cluster, run `slipway reset` or move it away; or give etcd another folder (etcd.local.dataDir)", dir)
	}
}
