// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// portUse is a TCP port and the program that will listen on it, on one address or, if that's empty, on all of them.
type portUse struct {
	address string
	port    int
	program string
}

// A port that a foreign process seems to hold is checked this often before it's an error: an earlier run may have been
// interrupted while systemd restarted the kubelet, whose old process may release the port between the attempt to listen and the
// search for the holder, or before its unit is read.
const (
	portLooks    = 10
	portInterval = 50 * time.Millisecond
)

// portFree accepts ports of the node's own control plane from an earlier run; the static Pod's check compares configurations.
func portFree(n *config.Node, u portUse) func(context.Context, View) []fault.Finding {
	return func(ctx context.Context, h View) (findings []fault.Finding) {
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

// lookAtPort returns a port's findings at this instant, and whether a foreign process seems to hold it.
func lookAtPort(ctx context.Context, n *config.Node, h View, u portUse) (findings []fault.Finding, foreign bool) {
	address := u.address
	if a, err := netip.ParseAddr(address); err != nil || a.IsUnspecified() {
		address = "" // also for both families
	}
	err := h.PortFree(address, u.port)
	switch {
	case err == nil:
		return nil, false
	case errors.Is(err, fs.ErrPermission): // a port below 1024
		return skip("only root can see whether port %d is free", u.port), false
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fail("%s cannot listen on port %d of %s, which is not an address of this host", u.program, u.port, address).
			remedy("choose another address (localAPIEndpoint.advertiseAddress, --apiserver-advertise-address, or the component's bind-address)"), false
	}
	holder, found := h.PortHolder(u.port)
	switch {
	case !found:
		return fail("%v, and %s needs this port", err, u.program).
			remedy("find the program that holds it with `ss -ltnp` as root, and stop it"), true
	case holder.Name != u.program:
		return fail("port %d, which %s needs, is held by %s (process %d)", u.port, u.program, holder.Name, holder.PID).
			remedy("stop that program, or give it another port"), true
	case !ownProcess(ctx, n, h, holder):
		return fail("port %d is held by %s (process %d), which this node's configuration did not start", u.port, u.program, holder.PID).
			remedy("stop it; if it belongs to a cluster that this host is part of, run `slipway reset` first"), true
	}
	return note("%s is already running (process %d, port %d)", u.program, holder.PID, u.port), false
}

// ownProcess reports whether p belongs to a node set up by an earlier run on this host: its static Pod exists; or an init or join
// has begun, and p is systemd's kubelet, or any kubelet if there's no systemd.
func ownProcess(ctx context.Context, n *config.Node, h View, p host.Process) bool {
	switch p.Name {
	case kubelet:
	case etcd:
		return hasEtcd(n, h)
	default:
		return exists(h, n.Paths.StaticPod(p.Name))
	}
	unit, err := h.Unit(ctx, kubeletUnit)
	begun := initBegun
	if n.Join != nil {
		begun = joinBegun
	}
	started := err == nil && int(unit.MainPID) == p.PID || errors.Is(err, host.ErrNoSystemd)
	return started && begun(n, h)
}

// initBegun reports whether this host is a control plane, even if its init was interrupted after it started the kubelet. A worker
// of another cluster has neither the CA's key nor the administrator's kubeconfig.
func initBegun(n *config.Node, h View) bool {
	return exists(h, n.Paths.StaticPod(apiServer)) || exists(h, filepath.Join(n.Paths.PKI, "ca.key")) ||
		exists(h, filepath.Join(n.Paths.Kubeconfigs, "admin.conf"))
}

// joinBegun reports whether this host is a node or was about to be. These files' checks say whether it's this cluster's.
func joinBegun(n *config.Node, h View) bool {
	return exists(h, n.Paths.KubeletKubeconfig()) || exists(h, n.Paths.BootstrapKubeconfig())
}

func exists(h View, path string) bool {
	_, err := h.Lstat(path)
	return err == nil
}

// notListed reports that a directory couldn't be checked for files.
func notListed(dir string, err error) []fault.Finding {
	if errors.Is(err, fs.ErrPermission) {
		return fail("cannot check that %s is empty: permission denied", dir).remedy("run as root")
	}
	return fail("cannot check that %s is empty: %v", dir, err).remedy("make sure that it is a directory that can be read")
}

// etcdData checks that the directory is empty or holds the data of this node's own member.
func etcdData(n *config.Node, dir string) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding {
		entries, err := content(h, dir)
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
			_, being := host.LeftoverOf(e.Name()) // the probe of WritableFolders, which runs at the same time
			at, _ := thisnode.ParseOldEtcdData(e.Name())
			return being || !at.IsZero() // data of a former etcd, which `reset` keeps
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return notListed(dir, err)
		case len(entries) == 0:
			return nil
		case hasEtcd(n, h) && exists(h, filepath.Join(dir, "member")):
			return note("%s holds the data of this node's etcd", dir)
		}
		return fail("%s is not empty, and its content is not from this node's etcd", dir).
			remedy("if it is left from an old cluster, run `slipway reset` or move it away; otherwise give etcd another directory (etcd.local.dataDir)")
	}
}

// hasEtcd reports whether this host has, or had, an etcd of the node. A join that ended while it took its member back has left only the
// data. The next run compares that with the cluster's members.
func hasEtcd(n *config.Node, h View) bool {
	return exists(h, n.Paths.StaticPod(etcd)) ||
		n.Join != nil && (exists(h, thisnode.JoinUnfinished(n)) || exists(h, n.Paths.StaticPod(apiServer)))
}
