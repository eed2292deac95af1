// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// The versions between which the scenes upgrade.
const crashFrom, crashTo = "v1.35.8", "v1.36.4" // with another etcd and another CoreDNS

const leaseWrite = "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slipway-upgrade"

var crashingApply = applying(Init, UpgradeApply)

// applying upgrades a control plane.
func applying(init, apply func() []Phase) crashing {
	return crashing{
		name: "upgrade-apply", prepare: prepareApply(init), run: runUpgrade("apply", apply), reads: "/etc/kubernetes/manifests/etcd.yaml",
		renews: []string{leaseWrite}, rewrites: renewed,
	}
}

// crashingNodePlane is a control plane whose cluster was upgraded on another one.
var crashingNodePlane = crashing{
	name: "upgrade-node-control-plane",
	prepare: func(t *testing.T, s *scene) error {
		if err := prepareApply(Init)(t, s); err != nil {
			return err
		}
		old, err := oldPlane(Init)
		if err != nil {
			return err
		}
		const path = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
		data, _ := old.objects[path]["data"].(map[string]any)
		stored := strings.ReplaceAll(fmt.Sprint(data["ClusterConfiguration"]), crashFrom, crashTo)
		s.api.Put(path, fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", stored))
		return nil
	},
	run:      runUpgrade("node", UpgradeNode),
	reads:    "/etc/kubernetes/manifests/etcd.yaml",
	renews:   []string{leaseWrite},
	rewrites: renewed,
}

// renewed reports whether a file changes with each upgrade, because it renews the certificates.
func renewed(path string) bool {
	return path == "/etc/kubernetes" || strings.HasPrefix(path, "/etc/kubernetes/pki") || filepath.Ext(path) == ".conf"
}

var crashingNode = crashing{
	name:    "upgrade-node",
	prepare: prepareNode(Join, LookBack),
	run:     runUpgrade("node", UpgradeNode),
	reads:   "/proc/sys/net/ipv4/ip_forward", // by anything but the kubelet, which is not restarted
	renews:  []string{"PUT /api/v1/nodes/worker-1"},
}

// runUpgrade does what the commands of upgrade do.
func runUpgrade(command string, workflow func() []Phase) runner {
	return func(ctx context.Context, h *lastingHost, endpoint string, say io.Writer) error {
		n, err := upgradedNode(ctx, h, endpoint, say, command)
		if err != nil {
			return err
		}
		return crashRun(ctx, n, h, endpoint, say, workflow(), nil)
	}
}

func upgradedNode(ctx context.Context, h *lastingHost, endpoint string, say io.Writer, command string) (*config.Node, error) {
	version, flags := crashTo, config.Flags{Given: []string{"yes"}, Yes: true}
	controlPlane := thisnode.IsControlPlane(h)
	if command == "node" {
		version, flags = "", config.Flags{}
	}
	if command == "node" && !controlPlane {
		flags = config.Flags{Given: []string{"drain"}, Drain: true, DrainTimeout: time.Minute}
	}
	opts := config.Options{Facts: config.HostFacts{Hostname: "host"}}
	self, _, err := config.LoadUpgrade(ctx, nil, flags, "upgrade "+command, version, opts)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(h.limit, 30*time.Second)
	self.Timeouts.ControlPlaneComponentHealthCheck.Duration = 30 * time.Second // as in crashDocuments: probes depend on it
	for _, timeout := range []*metav1.Duration{self.Timeouts.KubernetesAPICall, self.Timeouts.UpgradeManifests, self.Timeouts.EtcdAPICall} {
		timeout.Duration = limit
	}
	api := cluster.New(crashOptions(h, endpoint, controlPlane, config.DefaultAdminKubeconfig, "/etc/kubernetes/kubelet.conf", limit))
	n, _, err := upgrading.Node(ctx, api, h, ui.NewLines(say, say).Printf, self, opts)
	return n, err
}

// tree is the files of a host.
type tree map[string]treeFile

type treeFile struct {
	mode     fs.FileMode
	data     []byte
	modified time.Time
}

func readTree(root string) (tree, error) {
	files := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := treeFile{mode: info.Mode(), modified: info.ModTime()}
		if !d.IsDir() {
			f.data, err = os.ReadFile(path)
		}
		files[strings.TrimPrefix(path, root)] = f
		return err
	})
	return files, err
}

func (files tree) write(root string) error {
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f, to := files[path], root+path
		if f.mode.IsDir() {
			errs = append(errs, os.MkdirAll(to, f.mode.Perm()))
			continue
		}
		errs = append(errs, os.WriteFile(to, f.data, f.mode.Perm()), os.Chtimes(to, time.Time{}, f.modified))
	}
	return errors.Join(errs...)
}

// oldNode is a complete node and its cluster.
type oldNode struct {
	files   tree
	objects map[string]map[string]any
}

// oldPlane is a control plane as init of an earlier version makes it. It is made once, because that takes most of the time
// of a scene.
func oldPlane(init func() []Phase) (oldNode, error) {
	olderPlane.Do(func() { olderPlane.node, olderPlane.err = makeOldPlane(init) })
	return olderPlane.node, olderPlane.err
}

var olderPlane struct {
	sync.Once
	node oldNode
	err  error
}

func makeOldPlane(init func() []Phase) (oldNode, error) {
	return makeNode(func(h *lastingHost, endpoint string) error {
		h.skip = []string{"preflight", "kubelet-finalize"} // the kubelet of this host is newer, and does not rotate its certificate
		documents := strings.ReplaceAll(crashDocuments, config.DefaultKubernetesVersion, crashFrom)
		return errors.Join(initWith(context.Background(), h, endpoint, io.Discard, documents, init()), h.startPods())
	})
}

// makeNode is what do leaves on a fresh host, and in its API.
func makeNode(do func(h *lastingHost, endpoint string) error) (made oldNode, err error) {
	root, err := os.MkdirTemp("", "slipway-old-")
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := furnish(root); err != nil {
		return made, err
	}
	api := ownAPI(root, nil)
	defer api.Close()
	defer api.CloseClientConnections()
	if err := do(newLastingHost(root), api.Listener.Addr().String()); err != nil {
		return made, err
	}
	made.objects = api.Objects()
	made.files, err = readTree(root)
	return made, err
}

// prepareApply makes a control plane whose Corefile has to be migrated, and whose kubelet has a flag of an older version.
func prepareApply(init func() []Phase) func(*testing.T, *scene) error {
	return func(_ *testing.T, s *scene) error {
		old, err := oldPlane(init)
		if err != nil {
			return err
		}
		return s.becomes(old)
	}
}

func (s *scene) becomes(old oldNode) error {
	s.api = ownAPI(s.root, s.spoil)
	for path, obj := range old.objects {
		s.api.Put(path, obj)
	}
	s.api.Put("/api/v1/nodes/cp-1", upgradableNode("cp-1"))
	server := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "cp-1", Containers: []corev1.Container{{
		Name: manifests.APIServerName, Image: "registry.k8s.io/kube-apiserver:" + crashFrom,
	}}}}
	server.Name, server.Labels = "kube-apiserver-cp-1", map[string]string{"component": manifests.APIServerName, "tier": "control-plane"}
	s.api.Put("/api/v1/namespaces/kube-system/pods/kube-apiserver-cp-1", server)
	return errors.Join(old.files.write(s.root), leaveFlag(s.root))
}

// upgradableNode is the Node of a control plane as kubeadm left it until 1.35.
func upgradableNode(name string) *corev1.Node {
	n := cluster.NewNode(name)
	n.Labels = map[string]string{cluster.LabelControlPlane: ""}
	n.Annotations = map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"}
	n.Status.NodeInfo.KubeletVersion = crashFrom
	return n
}

// oldFlags is kubeadm-flags.env with a flag that kubelets since 1.35 do not accept.
const oldFlags = `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.9 --v=2"` + "\n"

// leaveFlag adds a flag that older versions gave to the kubelet.
func leaveFlag(root string) error {
	path := filepath.Join(root, "/var/lib/kubelet/kubeadm-flags.env")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(oldFlags), 0o600)
}

// prepareNode makes a worker with two Pods whose cluster was upgraded.
func prepareNode(join func() []Phase, lookBack lookingBack) func(*testing.T, *scene) error {
	return func(t *testing.T, s *scene) error {
		err := prepareJoin(t, s)
		if err == nil {
			err = runJoin(join, lookBack)(t.Context(), newLastingHost(s.root), s.api.Listener.Addr().String(), io.Discard)
		}
		return errors.Join(err, s.isBehind())
	}
}

// isBehind makes the worker one whose cluster was upgraded since it joined.
func (s *scene) isBehind() error {
	s.writing = 0
	s.api.Put("/api/v1/namespaces/kube-system/configmaps/kubelet-config", fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration+"podPidsLimit: 99\n"))
	for _, name := range []string{"a", "b"} {
		p := podOf(name, "ReplicaSet")
		p.Namespace, p.Spec.NodeName = "default", "worker-1"
		s.api.Put("/api/v1/namespaces/default/pods/"+name, &p)
	}
	return leaveFlag(s.root)
}

// The containers of the lasting host: a directory for each, NANOSECONDS IMAGE, below one for its component. Each order to
// the runtime makes or removes one, so a kill cannot come in between.
const fakeContainers = "/var/fake/containers"

func (h *lastingHost) containers(_ context.Context, _, _, name string) (list []host.Container, err error) {
	entries, err := os.ReadDir(filepath.Join(h.root, fakeContainers, name))
	for _, e := range entries {
		created, image, _ := strings.Cut(e.Name(), " ")
		nanoseconds, err := strconv.ParseInt(created, 10, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, host.Container{ID: name + "/" + e.Name(), Created: time.Unix(0, nanoseconds), Image: strings.ReplaceAll(image, "!", "/")})
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return list, err
}

func (h *lastingHost) stopContainer(_ context.Context, _, id string, _ time.Duration) error {
	return removeFake(filepath.Join(h.root, fakeContainers, id))
}

// awaitContainer lets the kubelet, if it runs, look at its static Pods.
func (h *lastingHost) awaitContainer(ctx context.Context, socket, namespace, name string, accept func(host.Container) bool) error {
	for {
		if h.has(kubeletActive) {
			if err := h.startPods(); err != nil {
				return err
			}
		}
		list, err := h.containers(ctx, socket, namespace, name)
		if err != nil || slices.ContainsFunc(list, accept) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no container %s: %v", name, list)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startPods replaces the containers that were not made of the static Pods that are there.
func (h *lastingHost) startPods() error {
	h.kubelet.Lock()
	defer h.kubelet.Unlock()
	paths, err := filepath.Glob(filepath.Join(h.root, "/etc/kubernetes/manifests/*.yaml"))
	for _, path := range paths {
		err = errors.Join(err, h.startPod(path))
	}
	return err
}

func (h *lastingHost) startPod(path string) error {
	manifest, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	name, image := strings.TrimSuffix(filepath.Base(path), ".yaml"), quickImageOf(manifest)
	current, err := h.outdated(name, path, image)
	if current || err != nil {
		return err
	}
	if name == manifests.EtcdName && h.has(hasEtcdData) && !h.has("/var/lib/etcd/member") {
		return errors.New("etcd would begin a cluster without data")
	}
	return os.MkdirAll(filepath.Join(h.root, fakeContainers, name, fmt.Sprintf("%d %s", time.Now().UnixNano(), strings.ReplaceAll(image, "/", "!"))), 0o755)
}

var imageLine = regexp.MustCompile(`(?m)^ +image: (\S+)$`)

// quickImageOf is imageOf for those who ask a hundred times a second: parsing YAML would be most of what their tests cost.
func quickImageOf(manifest []byte) string {
	if line := imageLine.FindSubmatch(manifest); line != nil {
		return string(line[1])
	}
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Image
}

// outdated removes the containers that a static Pod does not describe, and reports whether there is another one.
func (h *lastingHost) outdated(name, path, image string) (current bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	list, err := h.containers(context.Background(), "", "", name)
	for _, c := range list {
		if c.Image == image && !c.Created.Before(info.ModTime()) {
			current = true
			continue
		}
		err = errors.Join(err, h.stopContainer(context.Background(), "", c.ID, 0))
	}
	return current, err
}

// runningPods says which image each component runs with, and whether it was started with the manifest that is there.
func (h *lastingHost) runningPods() map[string]string {
	running := map[string]string{}
	for _, name := range []string{manifests.EtcdName, manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName} {
		list, err := h.containers(context.Background(), "", "", name)
		info, _ := os.Stat(filepath.Join(h.root, "/etc/kubernetes/manifests", name+".yaml"))
		for _, c := range list {
			running["container of "+name] += fmt.Sprint(c.Image, " up to date: ", info != nil && !c.Created.Before(info.ModTime()))
		}
		if err != nil {
			running["container of "+name] = err.Error()
		}
	}
	return running
}

// ofAnyRun are the lines of a record that differ from one scene to the next.
var ofAnyRun = regexp.MustCompile(`(?m)^(ca|completed): .*\n|^written:\n(  .*\n)+`)

// keptBefore has the oldest of the files of each name that upgrades have kept: what the node had before the first of them.
func keptBefore(root string) (map[string]string, error) {
	kept := map[string]string{}
	paths, err := filepath.Glob(root + "/etc/kubernetes/tmp/*/*.*")
	for _, path := range paths { // by time
		name := "kept " + filepath.Base(path)
		if strings.Contains(name, ".slipway-") && !strings.Contains(path, upgrading.EtcdBackup) {
			continue // a killed run was about to write it; only snapshots are large
		}
		if _, older := kept[name]; older {
			continue
		}
		data, readErr := os.ReadFile(path)
		if err = errors.Join(err, readErr); filepath.Ext(path) == ".db" {
			data = nil
		}
		kept[name] = ofAnyRun.ReplaceAllString(string(data), "")
	}
	return kept, err
}

func (m lastingMembers) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{{Member: etcd.Member{ID: 1, Name: "cp-1", PeerURL: "https://192.0.2.11:2380"}, Answers: true, Status: etcd.Status{Revision: 500, Size: 2 << 30}}}, nil
}

func (m lastingMembers) Peers(_ context.Context, urls []string) []etcd.Peer { return silent(urls) }

// silent is the answer of peers that do not run.
func silent(urls []string) (all []etcd.Peer) {
	for _, url := range urls {
		all = append(all, etcd.Peer{URL: url, Err: errors.New("connection refused")})
	}
	return all
}

func (m lastingMembers) MoveLeader(context.Context, string) (bool, error) { return false, nil }
func (m lastingMembers) CaughtUp(context.Context, string) error           { return nil }

func (m lastingMembers) Snapshot(_ context.Context, _ string, w io.Writer) (etcd.SnapshotInfo, error) {
	data, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	if err != nil {
		return etcd.SnapshotInfo{}, err
	}
	_, err = w.Write(data)
	return etcd.SnapshotInfo{}, err
}

// TestUpgradePlanWritesNothing: a plan of an upgrade asks the cluster, and changes neither it nor the host. It has a step
// for each object that the run writes.
func TestUpgradePlanWritesNothing(t *testing.T) {
	for _, c := range []crashing{crashingApply, crashingNode, crashingNodePlane} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, c)
			defer s.close()
			files, before := s.stamps(t), len(s.api.Writes())
			planned, objects := newLastingHost(s.root), map[string]bool{} // by name
			planned.plans = func(env *Env) {
				env.Host = plan.NewOverlay(planned, func(host.Action) {})
				env.Cluster = cluster.NewPlan(func(a cluster.Action) { objects[a.Name] = true }, env.Cluster)
				env.Etcd = etcd.NewPlan(func(etcd.Action) {}, etcd.Member{ID: 1, Name: "cp-1", PeerURL: "https://192.0.2.11:2380"})
			}
			if said, err := s.on(t.Context(), planned); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if diff := gocmp.Diff(files, s.stamps(t)); diff != "" {
				t.Errorf("the plan changed files:\n%s", diff)
			}
			if writes := s.api.Writes()[before:]; len(writes) > 0 {
				t.Errorf("the plan wrote %q", writes)
			}
			if said, err := s.again(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			writes := s.api.Writes()[before:]
			if len(writes) < 4 {
				t.Errorf("the run wrote only %q", writes)
			}
			for _, write := range writes {
				name := path.Base(strings.TrimSuffix(write, "/eviction"))
				if !objects[name] {
					t.Errorf("%s is not in the plan, which has %q", write, slices.Sorted(maps.Keys(objects)))
				}
			}
		})
	}
}
