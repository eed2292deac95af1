// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// checkData compares the member that etcd has at peer with the data on this host, before that etcd is started. A
// member that has run has promised the others what its log says. Without the log it must not go on, because it would
// vote as if it had promised nothing: it is removed, and joins as a new member. Data that no member at peer can have
// written is refused.
func checkData(ctx context.Context, env *Env, peer string) error {
	members, err := membersToJoin(ctx, env)
	if err != nil {
		return etcd.WithStanding(ctx, env.Etcd, err)
	}
	here, err := readEtcdData(env)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(m etcd.Member) bool { return m.PeerURL == peer })
	if i < 0 {
		if here.log != "" {
			return here.foreign()
		}
		return nil
	}
	m := members[i]
	switch {
	case m.Name != "" && m.Name != env.Config.Name: // Join refuses it
		return nil
	case here.log == "" && m.Name == "": // it has not run yet
		return nil
	case here.log == "":
		return replaceMember(ctx, env, m, fmt.Sprintf("its data is not on this host (%s)", env.Config.Cluster.Etcd.Local.DataDir))
	case m.ID == 0: // a plan knows no IDs
		return nil
	case here.Cluster != m.Cluster || here.Member != m.ID && isMember(members, here.Member):
		return here.foreign()
	case here.Member != m.ID:
		return replaceMember(ctx, env, m, fmt.Sprintf("the data on this host (%s) belongs to member %x, which was removed", here.log, here.Member))
	case here.Empty && m.Name != "" && (!m.Learner || !fills(ctx, env)):
		return replaceMember(ctx, env, m, fmt.Sprintf("it was started on an empty disk: its data is no longer on this host (%s)", here.log))
	}
	return nil
}

// podInterval is the longest wait between two questions for the Pods of etcd.
const podInterval = time.Second

// membersToJoin lists the members. The cluster may be seconds old, and its API without a Pod of etcd yet: the kubelet of
// its first control plane is waited for. (A command for a cluster that should have these Pods does not wait for them.)
func membersToJoin(ctx context.Context, env *Env) (members []etcd.Member, err error) {
	limit := env.Config.Timeouts.EtcdAPICall
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	told := false
	err = retry.Policy{First: pollInterval, Slowest: podInterval, Passes: isNoPod}.Do(ctx, func(ctx context.Context) error {
		members, err = env.Etcd.Members(ctx)
		if isNoPod(err) && !told {
			env.UI.Printf("Waiting until the API has a Pod of etcd, up to %s", limit)
			told = true
		}
		return err
	})
	return members, err
}

func isNoPod(err error) bool {
	var none *etcdmember.NoPodError
	return errors.As(err, &none)
}

// fillTime is how long a learner that runs on this host gets to receive its first entry. On a host that is busy it takes
// seconds; without its data it never does.
const fillTime = 10 * time.Second

// fills waits for the first entry in the log of a learner that runs on this host. The others may know its name before: the
// leader stores that without the learner's vote.
func fills(ctx context.Context, env *Env) bool {
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName)
	if err != nil || len(running) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, fillTime)
	defer cancel()
	return poll(ctx, func(context.Context) error {
		here, err := readEtcdData(env)
		if err == nil && here.Empty {
			err = errors.New("the log is empty")
		}
		return err
	}) == nil
}

func isMember(all []etcd.Member, id uint64) bool {
	return slices.ContainsFunc(all, func(m etcd.Member) bool { return m.ID == id })
}

// etcdData is what an etcd on this host has written.
type etcdData struct {
	// log is the directory of its write-ahead log; empty if there is none.
	log string
	etcd.Data
}

func (d etcdData) foreign() error {
	return errors.Errorf("%s holds the data of member %x of etcd cluster %x, which is not this host's member: reset this host, or move the directory away",
		d.log, d.Member, d.Cluster)
}

// readEtcdData looks for the log of an etcd in each place where it may be.
func readEtcdData(env *Env) (etcdData, error) {
	_, logs, err := etcdPlaces(env)
	if err != nil {
		return etcdData{}, err
	}
	for _, dir := range logs {
		name, err := newestLog(env, dir)
		if err != nil {
			return etcdData{}, err
		}
		if name == "" {
			continue
		}
		path := filepath.Join(dir, name)
		head, err := env.Host.ReadHead(path, etcd.DataHead)
		if err != nil {
			return etcdData{}, err
		}
		data, err := etcd.ReadData(head)
		return etcdData{dir, data}, errors.Wrapf(err, "%s does not say which member of etcd it belongs to: reset this host, or move the directory away", path)
	}
	return etcdData{}, nil
}

// newestLog returns the last file of the log in dir, empty if there is none. Each file says whose log it is.
func newestLog(env *Env, dir string) (string, error) {
	entries, err := env.Host.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	name := ""
	for _, e := range entries { // sorted
		if strings.HasSuffix(e.Name(), ".wal") {
			name = e.Name()
		}
	}
	return name, nil
}

// etcdPlaces returns the directories that only an etcd on this host uses, and those that may hold its log: of the
// static Pod that this run would write, with its patches, and of the one that is here.
func etcdPlaces(env *Env) (trees, logs []string, err error) {
	have, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, manifests.EtcdName))
	if err != nil {
		return nil, nil, err
	}
	pods := [][]byte{have}
	if env.Config.Cluster.Etcd.Local != nil { // a reset only looks at what is here
		view, err := hostView(env)
		if err != nil {
			return nil, nil, err
		}
		wanted, err := staticPodYAML(env, manifests.EtcdName, view, nil)
		if err != nil {
			return nil, nil, err
		}
		pods = [][]byte{wanted, have}
	}
	for _, pod := range pods {
		if dir := etcdWALDir(pod); filepath.IsAbs(dir) {
			trees, logs = append(trees, dir), append(logs, dir)
		}
	}
	for _, pod := range pods {
		if dir := etcdDataDir(pod); filepath.IsAbs(dir) {
			trees, logs = append(trees, filepath.Join(dir, "member")), append(logs, filepath.Join(dir, "member", "wal"))
		}
	}
	return trees, logs, nil
}

// etcdWALDir returns the directory on this host in which a static Pod of etcd keeps its log, if it is not below its
// data: a patch can mount it from another disk.
func etcdWALDir(manifest []byte) string {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	member, _ := manifests.ReadEtcd(&pod)
	dir, deepest := member.WALDir, ""
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		below, inside := strings.CutPrefix(member.WALDir+"/", strings.TrimSuffix(mount.MountPath, "/")+"/")
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name && v.HostPath != nil })
		if inside && i >= 0 && len(mount.MountPath) > len(deepest) {
			dir, deepest = filepath.Join(pod.Spec.Volumes[i].HostPath.Path, mount.SubPath, below), mount.MountPath
		}
	}
	return dir
}

// replaceMember removes a member whose data is lost, so that a new one can take its place. The others lose nothing as
// long as they are a quorum without it.
func replaceMember(ctx context.Context, env *Env, lost etcd.Member, why string) error {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	name := cmp.Or(lost.Name, fmt.Sprintf("%x", lost.ID))
	for _, m := range all {
		if m.PeerURL == lost.PeerURL && m.Answers {
			return errors.Errorf("etcd member %q answers at %s, but %s. If this is another host's address, give this node its own (--apiserver-advertise-address); "+
				"if etcd runs on this host, reset the host first", name, strings.Join(m.ClientURLs, ", "), why)
		}
	}
	if !lost.Learner && !etcd.QuorumWithout(all, lost.PeerURL) {
		return errors.Errorf("etcd has a member %q at %s, but %s. It must be removed before it can join again, but the others have no quorum without it: %s. "+
			"Start the members that are down or, if they are lost, restore etcd from a snapshot", name, lost.PeerURL, why, etcd.Standing(all, lost.PeerURL))
	}
	env.UI.Warnf("etcd has a member %q at %s, but %s. Removing it; this node joins again as a learner", name, lost.PeerURL, why)
	ending, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	if err := removeMember(ending, env); err != nil { // so that nothing starts it in the meantime
		return err
	}
	_, err = env.Etcd.Leave(ctx, lost.PeerURL)
	return errors.WithMessagef(err, "etcd member %q must be removed before it can join again; `etcdctl member remove %x` on another control plane removes it, too", name, lost.ID)
}
