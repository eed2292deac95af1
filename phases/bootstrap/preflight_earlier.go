// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// differences compares an earlier init's files with this run's before anything is written: a control plane is never half changed.
// Static Pods have checks of their own. Without an API server's static Pod, the kubelet may still get any settings. If the
// cluster has exactly this configuration, the differences are edits, and stay. Files from an unfinished run are replaced.
func differences(env *step.Env, stored stored) []fault.Finding {
	var found []fault.Finding
	for _, err := range env.PKI().Faults() {
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
func acceptEdited(env *step.Env, wanted map[string][]byte) {
	for path := range wanted {
		have, err := host.ReadIfExists(env.Host, path)
		if err == nil && preflight.IsStaticPod(strings.TrimSuffix(filepath.Base(path), ".yaml"), have) {
			wanted[path] = have
		}
	}
}

// acceptOtherStartupTime makes the checks accept an unedited static Pod that only allows its component another time to start. Where an
// init was too slow, the remedy is a longer timeout, and nobody may answer yet to say how far that init got.
func acceptOtherStartupTime(env *step.Env, wanted map[string][]byte) {
	for path, asked := range wanted {
		have, err := host.ReadIfExists(env.Host, path)
		if err == nil && env.Host.Unchanged(path) && manifests.SameButStartupTime(have, asked) {
			wanted[path] = have
		}
	}
}

func kubeletDiffers(env *step.Env) []fault.Finding {
	files, err := kubelet.Files(env)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	var faults []fault.Finding
	for _, f := range files {
		have, err := host.ReadIfExists(env.Host, f.Path)
		switch {
		case err != nil:
			faults = append(faults, fault.Of(err))
		case have == nil || string(have) == string(f.Data) || env.Unfinished && env.Host.Unchanged(f.Path):
		default:
			faults = append(faults, fault.NewFinding("", fault.Error, preflight.KeepOrReset,
				"%s differs from what this configuration makes: %s", f.Path, ownership.LineDifference(have, f.Data)))
		}
	}
	return faults
}

// askTimeout is how long a running API server or etcd may take to answer one question: 3 seconds, or longer on a host where components
// may take longer than usual to start.
func askTimeout(n *config.Node) time.Duration {
	return max(3*time.Second, n.Timeouts.ControlPlaneComponentHealthCheck/80)
}

// stored says how the ClusterConfiguration in the cluster compares with this run's. It's empty if there is none, or the cluster
// can't be asked.
type stored struct {
	same       bool
	difference fault.Finding
}

func storedCompares(ctx context.Context, env *step.Env) stored {
	if !thisnode.IsControlPlane(env.Host) {
		return stored{}
	}
	wanted, err := env.Config.KubeadmConfigYAML()
	if err != nil {
		return stored{difference: fault.Of(err)}
	}
	ask := storedConfiguration
	if !env.Unfinished { // without an answer, edits are refused
		ask = awaitedConfiguration
	}
	have, known := ask(ctx, env)
	if !known || have == nil {
		return stored{}
	}
	if have, wanted, err = config.NormalizeStored(have, wanted); err != nil {
		return stored{difference: fault.Of(err)}
	}
	if string(have) == string(wanted) {
		return stored{same: true}
	}
	return stored{difference: fault.NewFinding("", fault.Error, preflight.KeepOrReset,
		"the cluster has a different configuration in %s: %s", config.ClusterSource, ownership.LineDifference(have, wanted))}
}

// storedConfiguration asks the cluster for its ClusterConfiguration, which is nil if there's no ConfigMap for it. known is false
// if the cluster can't be asked. A plan that asks nobody finds nothing; only Read says so.
func storedConfiguration(ctx context.Context, env *step.Env) (have []byte, known bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout(env.Config))
	defer cancel()
	if err := probeAPIServer(ctx, env); err != nil {
		return nil, false
	}
	return readConfiguration(ctx, env)
}

// awaitedConfiguration is storedConfiguration, but gives an API server that's running and busy the time of an API call.
func awaitedConfiguration(ctx context.Context, env *step.Env) (have []byte, known bool) {
	limit := max(askTimeout(env.Config), env.Config.Timeouts.KubernetesAPICall)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := probeAPIServer(ctx, env)
	if busy(err) {
		env.UI.Printf("The API server isn't ready (%v). Waiting up to %s for the cluster's configuration", err, limit)
		again := retry.Policy{First: time.Second, Retryable: busy}
		err = again.Do(ctx, func(ctx context.Context) error { return probeAPIServer(ctx, env) })
	}
	if err != nil {
		return nil, false
	}
	return readConfiguration(ctx, env)
}

// busy reports whether an error of probeAPIServer comes from an API server that's running: it isn't ready, was too slow, or forbids
// everything, as it does until it has read its roles.
func busy(err error) bool {
	status := probeStatus(err)
	return errors.Is(err, context.DeadlineExceeded) || status >= http.StatusInternalServerError || status == http.StatusForbidden
}

// probeAPIServer is nil for an API server that takes no anonymous requests, too: it says nothing about itself without a certificate.
func probeAPIServer(ctx context.Context, env *step.Env) error {
	err := env.Host.Probe(ctx, host.Probe{URL: "https://" + env.Config.LocalEndpoint() + "/readyz"})
	if probeStatus(err) == http.StatusUnauthorized {
		return nil
	}
	return err
}

// probeStatus returns the status of a probe's response; zero if there was none.
func probeStatus(err error) int {
	var answer *host.ProbeError
	if errors.As(err, &answer) {
		return answer.Status
	}
	return 0
}

func readConfiguration(ctx context.Context, env *step.Env) (have []byte, known bool) {
	kept := node.ConfigMap(manifests.KubeadmConfigMap)
	found, err := env.Cluster.Get(ctx, kept)
	if err == nil && !found {
		err = env.Cluster.Read(ctx, cluster.Query{Path: "/readyz"}, func(io.Reader) error { return nil })
	}
	if err != nil || !found {
		return nil, err == nil
	}
	return []byte(kept.Data[manifests.KubeadmConfigKey]), true
}

// etcdLacksConfiguration asks etcd whether the cluster has no configuration when its API server doesn't answer: a first init with
// a wrong API server flag leaves a healthy etcd. An etcd without data has none. If neither can be seen, it's false.
func etcdLacksConfiguration(ctx context.Context, env *step.Env) bool {
	if !knowsEtcd(env) {
		return false
	}
	if !etcdHasData(env) {
		return true
	}
	found, err := hasKey(ctx, env, "configmaps", "kube-system", manifests.KubeadmConfigMap)
	return err == nil && !found
}

// knowsEtcd reports whether this configuration leads to the etcd that this host's API server uses. Any other etcd would say
// there's nothing.
func knowsEtcd(env *step.Env) bool {
	have, err := staticPodThere(env, manifests.APIServerName)
	if err != nil || have == nil {
		return err == nil
	}
	asked, err := node.StaticPodYAML(env, manifests.APIServerName, manifests.HostView{}, nil)
	if err != nil || podFlag(have, "etcd-servers") != podFlag(asked, "etcd-servers") || podFlag(have, "etcd-servers-overrides") != "" {
		return false
	}
	if env.Config.Cluster.Etcd.Local == nil {
		return true
	}
	member, err := staticPodThere(env, manifests.EtcdName)
	return err == nil && member != nil
}

func staticPodThere(env *step.Env, component string) ([]byte, error) {
	return host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(component))
}

// etcdHasData looks in the directories of etcd's static Pod and of this configuration. It's true for an external etcd, and if a
// directory can't be read.
func etcdHasData(env *step.Env) bool {
	if env.Config.Cluster.Etcd.Local == nil {
		return true
	}
	trees, _, err := node.EtcdPlaces(env)
	return err != nil || slices.ContainsFunc(trees, func(dir string) bool {
		entries, err := env.Host.ReadDir(dir)
		return host.IgnoreMissing(err) != nil || len(entries) > 0
	})
}

// hasKey asks etcd for an API object. A local etcd without a static Pod can't be asked.
func hasKey(ctx context.Context, env *step.Env, object ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, thisnode.EtcdAPITimeout+askTimeout(env.Config))
	defer cancel()
	if _, found := thisnode.EtcdMember(env.Host, env.Config.Paths); !found && env.Config.Cluster.Etcd.Local != nil {
		return false, errors.New("etcd has no static Pod")
	}
	have, err := staticPodThere(env, manifests.APIServerName)
	if err != nil {
		return false, err
	}
	prefix := cmp.Or(podFlag(have, "etcd-prefix"), "registry")
	return env.Etcd.Has(ctx, path.Join(append([]string{"/", prefix}, object...)...))
}

// acceptReplaced makes the checks accept an earlier init's unedited static Pods: this run replaces them, unless it's too late to
// give the new cluster this configuration.
func acceptReplaced(ctx context.Context, env *step.Env, wanted map[string][]byte) {
	for path, asked := range wanted {
		have, err := host.ReadIfExists(env.Host, path)
		component := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if err != nil || have == nil || bytes.Equal(have, asked) || !env.Host.Unchanged(path) || !preflight.IsStaticPod(component, have) {
			continue
		}
		if !changesStoredSetting(ctx, env, component, have, asked) {
			wanted[path] = have
		}
	}
}

// changesStoredSetting reports whether a component differs in a setting its data already contains: the address of etcd's member,
// or the network of the Services.
func changesStoredSetting(ctx context.Context, env *step.Env, component string, have, asked []byte) bool {
	switch component {
	case manifests.EtcdName:
		const peer = "initial-advertise-peer-urls"
		return podFlag(have, peer) != podFlag(asked, peer) && etcdHasData(env)
	case manifests.APIServerName:
		const network = "service-cluster-ip-range"
		if podFlag(have, network) == podFlag(asked, network) || !etcdHasData(env) {
			return false
		}
		found, err := hasKey(ctx, env, "services", "specs", "default", "kubernetes")
		return err != nil || found
	}
	return false
}

// podFlag returns the last value of a flag in a static Pod.
func podFlag(manifest []byte, name string) string {
	pod, err := manifests.DecodePod(manifest)
	if err != nil {
		return ""
	}
	return manifests.FlagOf(pod, name)
}
