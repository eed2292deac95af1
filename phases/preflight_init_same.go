// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// differences compares what an earlier init has left with what this one would make, before anything is written: a
// control plane is never half changed. Static Pods have checks of their own. Without one of the API server, the
// kubelet may still get any settings. If the cluster keeps exactly this configuration, what differs was edited, and
// stays. What an earlier run that came to no end has made is replaced.
func differences(env *Env, stored stored) []fault.Fault {
	var found []fault.Fault
	for _, err := range env.pki().Faults() {
		found = append(found, fault.Of(err))
	}
	if !thisnode.IsControlPlane(env.Host) || stored.same {
		return found
	}
	found = append(found, kubeletDiffers(env)...)
	if stored.difference.Message != "" {
		found = append(found, stored.difference)
	}
	return found
}

// acceptEdited makes the checks accept an edited static Pod of the same component.
func acceptEdited(env *Env, wanted map[string][]byte) {
	for path := range wanted {
		have, err := host.ReadIfExists(env.Host, path)
		if err == nil && preflight.IsStaticPod(strings.TrimSuffix(filepath.Base(path), ".yaml"), have) {
			wanted[path] = have
		}
	}
}

func kubeletDiffers(env *Env) []fault.Fault {
	files, err := kubeletFiles(env)
	if err != nil {
		return []fault.Fault{fault.Of(err)}
	}
	var faults []fault.Fault
	for _, f := range files {
		have, err := host.ReadIfExists(env.Host, f.Path)
		switch {
		case err != nil:
			faults = append(faults, fault.Of(err))
		case have == nil || string(have) == string(f.Data) || env.Unfinished && env.Host.Unchanged(f.Path):
		default:
			faults = append(faults, fault.Fault{
				Message: fmt.Sprintf("%s differs from what this configuration makes: %s", f.Path, ownership.LineDifference(have, f.Data)),
				Remedy:  preflight.KeepOrReset,
			})
		}
	}
	return faults
}

// askTime is how long an API server that is up may take to answer one question.
const askTime = 3 * time.Second

// stored says how the ClusterConfiguration in the cluster compares with this one. It is empty if there is none, or the cluster
// cannot be asked.
type stored struct {
	same       bool
	difference fault.Fault
}

func storedCompares(ctx context.Context, env *Env) stored {
	if !thisnode.IsControlPlane(env.Host) {
		return stored{}
	}
	wanted, err := env.Config.KubeadmConfigYAML()
	if err != nil {
		return stored{difference: fault.Of(err)}
	}
	have, known := storedConfiguration(ctx, env)
	if !known || have == nil {
		return stored{}
	}
	if have, wanted, err = config.Comparable(have, wanted); err != nil {
		return stored{difference: fault.Of(err)}
	}
	if string(have) == string(wanted) {
		return stored{same: true}
	}
	return stored{difference: fault.Fault{
		Message: fmt.Sprintf("the cluster has a different configuration in %s: %s", config.ClusterSource, ownership.LineDifference(have, wanted)),
		Remedy:  preflight.KeepOrReset,
	}}
}

// storedConfiguration asks the cluster for its ClusterConfiguration, which is nil if it has no ConfigMap for it. known is false
// if it cannot be asked. A plan that asks nobody finds nothing; only Read says so.
func storedConfiguration(ctx context.Context, env *Env) (have []byte, known bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := env.Host.Probe(ctx, host.Probe{URL: "https://" + env.Config.LocalEndpoint() + "/readyz"}); err != nil {
		return nil, false
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: manifests.KubeadmConfigMap}}
	found, err := env.Cluster.Get(ctx, kept)
	if err == nil && !found {
		err = env.Cluster.Read(ctx, cluster.Query{Path: "/readyz"}, func(io.Reader) error { return nil })
	}
	if err != nil || !found {
		return nil, err == nil
	}
	return []byte(kept.Data[manifests.KubeadmConfigKey]), true
}
