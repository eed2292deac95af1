// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// The scenes upgrade between these versions.
const CrashFrom, CrashTo = "v1.35.8", "v1.36.4" // with another etcd and another CoreDNS

const LeaseWrite = "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slipway-upgrade"

func Applying(init, apply func() []step.Phase) Scenario {
	return Scenario{
		Name: "upgrade-apply", Prepare: PrepareApply(init), Run: RunUpgrade("apply", apply), Reads: "/etc/kubernetes/manifests/etcd.yaml",
		Renews: []string{LeaseWrite}, Rewrites: Renewed,
	}
}

// Renewed reports whether a file changes with each upgrade, because upgrades renew the certificates.
func Renewed(path string) bool {
	return path == "/etc/kubernetes" || strings.HasPrefix(path, "/etc/kubernetes/pki") || filepath.Ext(path) == ".conf"
}

func RunUpgrade(command string, workflow func() []step.Phase) Runner {
	return func(ctx context.Context, h *LastingHost, endpoint string, say io.Writer) error {
		n, err := upgradedNode(ctx, h, endpoint, say, command)
		if err != nil {
			return err
		}
		return CrashRun(ctx, n, h, endpoint, say, workflow(), nil)
	}
}

func upgradedNode(ctx context.Context, h *LastingHost, endpoint string, say io.Writer, command string) (*config.Node, error) {
	flags := config.UpgradeFlags{Version: CrashTo, Given: []string{"yes"}, Yes: true}
	controlPlane := thisnode.IsControlPlane(h)
	if command == "node" {
		flags = config.UpgradeFlags{}
	}
	if command == "node" && !controlPlane {
		flags = config.UpgradeFlags{Given: []string{"drain"}, Drain: true, DrainTimeout: time.Minute}
	}
	opts := config.Options{Facts: config.HostFacts{Hostname: "host"}}
	flags.Command = "upgrade " + command
	self, _, err := config.LoadUpgrade(ctx, nil, flags, opts)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(h.Limit, 30*time.Second)
	self.Timeouts.ControlPlaneComponentHealthCheck.Duration = 30 * time.Second // as in CrashDocuments: probes depend on it
	for _, timeout := range []*metav1.Duration{self.Timeouts.KubernetesAPICall, self.Timeouts.UpgradeManifests, self.Timeouts.EtcdAPICall} {
		timeout.Duration = limit
	}
	api := cluster.New(CrashOptions(h, endpoint, controlPlane, config.DefaultAdminKubeconfig, "/etc/kubernetes/kubelet.conf", limit))
	n, _, err := upgrading.Source{API: api, Host: h, Options: opts, Say: ui.NewLines(say, say).Printf}.Node(ctx, self)
	return n, err
}

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

func (files tree) Write(root string) error {
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

// OldNode is a complete node and its cluster.
type OldNode struct {
	Files   tree
	Objects map[string]map[string]any
}

// OldPlane returns a control plane as an earlier version's init makes it. It's made only once, because that takes most of a
// scene's time.
func OldPlane(init func() []step.Phase) (OldNode, error) {
	olderPlane.Do(func() { olderPlane.node, olderPlane.err = makeOldPlane(init) })
	return olderPlane.node, olderPlane.err
}

var olderPlane struct {
	sync.Once
	node OldNode
	err  error
}

func makeOldPlane(init func() []step.Phase) (OldNode, error) {
	return makeNode(func(h *LastingHost, endpoint string) error {
		h.skip = []string{"preflight", "kubelet-finalize"} // this host's kubelet is newer, and doesn't rotate its certificate
		documents := strings.ReplaceAll(CrashDocuments, config.DefaultKubernetesVersion, CrashFrom)
		return errors.Join(initWith(context.Background(), h, endpoint, io.Discard, documents, init()), h.StartPods())
	})
}

// makeNode returns the results of do on a fresh host, and in its API.
func makeNode(do func(h *LastingHost, endpoint string) error) (made OldNode, err error) {
	root, err := os.MkdirTemp("", "slipway-old-")
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := Furnish(root); err != nil {
		return made, err
	}
	api := OwnAPI(root, nil)
	defer api.Close()
	defer api.CloseClientConnections()
	if err := do(NewLastingHost(root), api.Listener.Addr().String()); err != nil {
		return made, err
	}
	made.Objects = api.Objects()
	made.Files, err = readTree(root)
	return made, err
}

// PrepareApply makes a control plane whose Corefile has to be migrated, and whose kubelet has an older version's flag.
func PrepareApply(init func() []step.Phase) func(*testing.T, *Scene) error {
	return func(_ *testing.T, s *Scene) error {
		old, err := OldPlane(init)
		if err != nil {
			return err
		}
		return s.becomes(old)
	}
}

func (s *Scene) becomes(old OldNode) error {
	s.Serves(old.Objects)
	s.API.Put("/api/v1/nodes/cp-1", upgradableNode("cp-1"))
	server := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "cp-1", Containers: []corev1.Container{{
		Name: manifests.APIServerName, Image: "registry.k8s.io/kube-apiserver:" + CrashFrom,
	}}}}
	server.Name, server.Labels = "kube-apiserver-cp-1", map[string]string{"component": manifests.APIServerName, "tier": "control-plane"}
	s.API.Put("/api/v1/namespaces/kube-system/pods/kube-apiserver-cp-1", server)
	return errors.Join(old.Files.Write(s.Root), leaveFlag(s.Root))
}

// upgradableNode is a control plane's Node as kubeadm left it until 1.35.
func upgradableNode(name string) *corev1.Node {
	n := cluster.NewNode(name)
	n.Labels = map[string]string{cluster.LabelControlPlane: ""}
	n.Annotations = map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"}
	n.Status.NodeInfo.KubeletVersion = CrashFrom
	return n
}

// OldFlags is kubeadm-flags.env with a flag that kubelets since 1.35 refuse.
const OldFlags = `KUBELET_KUBEADM_ARGS="--pod-infra-container-image=registry.k8s.io/pause:3.9 --v=2"` + "\n"

// leaveFlag adds a flag that older versions gave the kubelet.
func leaveFlag(root string) error {
	path := filepath.Join(root, "/var/lib/kubelet/kubeadm-flags.env")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(OldFlags), 0o600)
}

// PrepareNode makes a worker with two Pods whose cluster was upgraded.
func PrepareNode(join func() []step.Phase, lookBack lookingBack) func(*testing.T, *Scene) error {
	return func(t *testing.T, s *Scene) error {
		err := PrepareJoin(t, s)
		if err == nil {
			err = RunJoin(join, lookBack)(t.Context(), NewLastingHost(s.Root), s.API.Listener.Addr().String(), io.Discard)
		}
		return errors.Join(err, s.isBehind())
	}
}

// isBehind makes the cluster look upgraded since the worker joined.
func (s *Scene) isBehind() error {
	s.Writing = 0
	s.API.Put("/api/v1/namespaces/kube-system/configmaps/kubelet-config", fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration+"podPidsLimit: 99\n"))
	for _, name := range []string{"a", "b"} {
		p := PodOf(name, "ReplicaSet")
		p.Namespace, p.Spec.NodeName = "default", "worker-1"
		s.API.Put("/api/v1/namespaces/default/pods/"+name, &p)
	}
	return leaveFlag(s.Root)
}

// ofAnyRun matches the lines of a record that differ from scene to scene.
var ofAnyRun = regexp.MustCompile(`(?m)^(ca|completed|began|state): .*\n|^written:\n(  .*\n)+`)

// changeRecord is a change's record (phases/trial). Its times, hashes and resourceVersions are those of its scene.
const changeRecord = "change.yaml"

// keptBefore returns, for each name, the oldest file kept by upgrades: the node's file before the first upgrade.
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
		if err = errors.Join(err, readErr); filepath.Ext(path) == ".db" || filepath.Base(path) == changeRecord {
			data = nil
		}
		kept[name] = ofAnyRun.ReplaceAllString(string(data), "")
	}
	return kept, err
}
