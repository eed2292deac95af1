// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

// leaveLimit bounds the leave of a member, once somebody is there to let it go.
const leaveLimit = 15 * time.Second

func removeEtcdMember() Phase {
	return Phase{
		Name:    "remove-etcd-member",
		Summary: "Take this node's member out of the control planes' etcd",
		Flags:   []string{"dry-run", "kubeconfig"},
		Run:     runRemoveEtcdMember,
	}
}

// runRemoveEtcdMember leaves the static Pod of a member that is out, or that
// nobody can be asked to let go, under a name that the kubelet does not read.
// There cleanup-node learns where the data is, in this run or in a later one.
func runRemoveEtcdMember(ctx context.Context, env *Env) error {
	path := filepath.Join(env.Config.Paths.Manifests, manifests.EtcdName+".yaml")
	data, err := env.Host.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warnOfExternalEtcd(env)
	case errors.Is(err, fs.ErrPermission):
		env.UI.Warnf("whether this node has a member of etcd is not known: %v", err)
		return nil
	case err != nil:
		return err
	}
	if err := leaveEtcd(ctx, env, data); err != nil {
		return err
	}
	if _, err := env.Host.WriteFile(asidePath(env.Config), data, 0o600); err != nil {
		return err
	}
	return env.Host.Remove(path)
}

// asidePath is where the static Pod of a member that has left is kept. The
// kubelet does not read files whose name begins with a dot.
func asidePath(n *config.Node) string {
	return filepath.Join(n.Paths.Manifests, "."+manifests.EtcdName+".yaml")
}

// leaveEtcd returns an error only if the run itself is cut off.
func leaveEtcd(ctx context.Context, env *Env, manifest []byte) error {
	var pod corev1.Pod
	broken := yaml.Unmarshal(manifest, &pod) != nil
	member, found := manifests.ReadEtcd(&pod)
	if broken || !found {
		env.UI.Warnf("the static Pod of etcd does not say which member it is, so no member is removed; look for it with `etcdctl member list` if other members live on")
		return nil //nolint:nilerr // the warning says it
	}
	env.UI.Printf("Taking %s out of etcd, up to %s", member.PeerURL, leaveLimit)
	removed, err := leave(ctx, env, member.PeerURL)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		env.UI.Warnf("etcd cannot be told that member %q leaves: %v. If other members live on, remove it there: "+
			"`etcdctl member list`, then `etcdctl member remove ID`", member.Name, err)
	case removed:
		env.UI.Printf("Member %q has left etcd", member.Name)
	default:
		env.UI.Printf("Member %q is the last of its etcd, or has left already", member.Name)
	}
	return nil
}

// leave asks first whether anybody is there, which needs less patience than a
// change: etcd refuses one for 5 s after any other.
func leave(ctx context.Context, env *Env, peerURL string) (removed bool, err error) {
	most := env.Config.Timeouts.EtcdAPICall
	asking, cancel := context.WithTimeout(ctx, min(askLimit, most))
	defer cancel()
	if _, err := env.Etcd.Members(asking); err != nil {
		return false, err
	}
	leaving, cancel := context.WithTimeout(ctx, min(leaveLimit, most))
	defer cancel()
	return env.Etcd.Leave(leaving, peerURL)
}

// warnOfExternalEtcd says where a control plane without an etcd of its own has
// its cluster's data. An etcd at a loopback address was this node's, or was to be.
func warnOfExternalEtcd(env *Env) error {
	if _, err := env.Host.Lstat(asidePath(env.Config)); err == nil {
		env.UI.Printf("This node's member has left etcd already")
		return nil
	}
	servers := argument(apiServerPod(env), "etcd-servers")
	if servers != "" && !strings.Contains(servers, "//127.0.0.1:") && !strings.Contains(servers, "//[::1]:") {
		env.UI.Warnf("the etcd at %s is not this node's: it keeps the cluster's data, which is nobody's once its last control plane is reset", servers)
	}
	return nil
}

// apiServerPod is the static Pod of this host's API server, as far as there is
// one.
func apiServerPod(env *Env) (pod corev1.Pod) {
	data, err := readIfExists(env.Host, filepath.Join(env.Config.Paths.Manifests, manifests.APIServerName+".yaml"))
	if err != nil || yaml.Unmarshal(data, &pod) != nil {
		return corev1.Pod{}
	}
	return pod
}

// argument is what a Pod's first container is told by a flag.
func argument(pod corev1.Pod, flag string) string {
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	c := pod.Spec.Containers[0]
	for _, arg := range slices.Concat(c.Command, c.Args) {
		if value, found := strings.CutPrefix(arg, "--"+flag+"="); found {
			return value
		}
	}
	return ""
}
