// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/preflight"
)

// differences holds what an earlier init has left against what this one would
// make, before anything is written: a control plane is not half changed. The
// static Pods have checks of their own. As long as there is none of the API
// server, the kubelet may still get any settings; and where the cluster keeps
// this very configuration, what differs was edited, and stays.
func differences(env *Env, stored stored) []string {
	var found []string
	for _, err := range env.pki().Faults() {
		found = append(found, err.Error())
	}
	if !thisnode.IsControlPlane(env.Host) || stored.same {
		return found
	}
	found = append(found, kubeletDiffers(env)...)
	if stored.difference != "" {
		found = append(found, stored.difference)
	}
	return found
}

// startOver is what to do about a difference.
const startOver = "use the configuration of the earlier run; an edit stays, once the API server answers and the cluster keeps this configuration " +
	"(a plan asks with --diff); the reset command starts over, and deletes this node's data"

// acceptEdited makes the checks of static Pods take what is there for wanted
// where it is a static Pod of the component, with edits.
func acceptEdited(env *Env, wanted map[string][]byte) {
	for path := range wanted {
		have, err := host.ReadIfExists(env.Host, path)
		if err == nil && preflight.IsStaticPod(strings.TrimSuffix(filepath.Base(path), ".yaml"), have) {
			wanted[path] = have
		}
	}
}

func kubeletDiffers(env *Env) []string {
	files, err := kubeletFiles(env)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for _, f := range files {
		have, err := host.ReadIfExists(env.Host, f.Path)
		switch {
		case err != nil:
			faults = append(faults, err.Error())
		case have != nil && string(have) != string(f.Data):
			faults = append(faults, fmt.Sprintf("%s differs from what this configuration makes: %s; %s", f.Path, ownership.LineDifference(have, f.Data), startOver))
		}
	}
	return faults
}

// askTime is how long an API server that is up may take for one question.
const askTime = 3 * time.Second

// stored is how the ClusterConfiguration that the cluster keeps compares with the
// one that is asked for: neither is said where the cluster cannot be asked, or
// keeps none yet.
type stored struct {
	same       bool
	difference string
}

func storedCompares(ctx context.Context, env *Env) stored {
	if !thisnode.IsControlPlane(env.Host) {
		return stored{}
	}
	wanted, err := env.Config.KubeadmConfigYAML()
	if err != nil {
		return stored{difference: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := env.Host.Probe(ctx, host.Probe{URL: "https://" + env.Config.LocalEndpoint() + "/readyz"}); err != nil {
		return stored{}
	}
	have, err := StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return stored{}
	}
	if have, wanted, err = config.Comparable(have, wanted); err != nil {
		return stored{difference: err.Error()}
	}
	if string(have) == string(wanted) {
		return stored{same: true}
	}
	return stored{difference: fmt.Sprintf("the cluster keeps another configuration in %s: %s; %s", config.ClusterSource, ownership.LineDifference(have, wanted), startOver)}
}
