// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// nodeOptions are the flags of commands that inspect this node as it is.
type nodeOptions struct{ config.DiagnoseFlags }

// rootHost is this host for commands that need to see all of it.
func rootHost() (*linux.Host, error) {
	real := linux.New()
	if real.EffectiveUID() != 0 {
		return nil, errors.New("run this as root: other users cannot read the journal or ask the container runtime")
	}
	return real, nil
}

func (o *nodeOptions) target(ctx context.Context, real *linux.Host) diagnose.Target {
	socket := cmp.Or(o.CRISocket, thisnode.Current(real).NodeRegistration.CRISocket)
	if found := env.Existing(real, config.KnownSockets()); socket == "" && len(found) > 0 {
		socket = "unix://" + found[0]
	}
	return diagnose.Target{
		Socket: cmp.Or(socket, "unix://"+config.KnownSockets()[0]), Kubelet: config.DefaultKubeletDir,
		Kubeconfigs: config.DefaultKubernetesDir, Manifests: filepath.Join(config.DefaultKubernetesDir, "manifests"),
		Since: journalSince(ctx, real),
	}
}

// recent limits how far back the journal of a running kubelet is read.
const recent = 15 * time.Minute

// journalSince is where the relevant journal begins: at the kubelet's last start, or recently if it has been running longer.
func journalSince(ctx context.Context, real *linux.Host) time.Time {
	lately := real.Now().Add(-recent)
	unit, err := real.Unit(ctx, "kubelet.service")
	if err != nil || unit.ActiveState == "active" && unit.ActiveSince.Before(lately) || unit.ActiveSince.IsZero() {
		return lately
	}
	return unit.ActiveSince
}
