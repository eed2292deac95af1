// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	storedCluster = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.2
encryptionAlgorithm: ECDSA-P256
controlPlaneEndpoint: api.example.org
networking: {serviceSubnet: 10.100.0.0/16, dnsDomain: example.local}
apiServer: {certSANs: [a.example.org]}
`
	storedKubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 42\n"
)

// configuredAPI is an API with the ConfigMap kubeadm-config.
type configuredAPI struct {
	cluster.Cluster
	document string
}

func (c configuredAPI) Get(_ context.Context, obj cluster.Object) (bool, error) {
	cm, is := obj.(*corev1.ConfigMap)
	if !is || cm.Name != manifests.KubeadmConfigMap {
		return false, nil
	}
	cm.Data = map[string]string{manifests.KubeadmConfigKey: c.document}
	return true, nil
}

// bareWith is a bare host with the snapshot of a cluster with this configuration.
func bareWith(t *testing.T) (*phasetest.Stage, string) {
	t.Helper()
	s, _, path := bare(t)
	s.Put(t, path, snapshotWith(t, map[string]string{
		etcd.ClusterKey: storedText(t, manifests.KubeadmConfigKey, storedCluster), etcd.KubeletKey: storedText(t, "kubelet", storedKubelet)}))
	s.Remove(t, snapshots.RecordPath(path))
	return s, path
}

// loaded is the desired state of a host whose only configuration is the snapshot's.
func loaded(t *testing.T, s *phasetest.Stage, from Source) *config.Node {
	t.Helper()
	restored, err := Configuration(s.Host, from)
	phasetest.Fatal(t, err)
	if restored == nil {
		t.Fatal("the snapshot has no configuration")
	}
	n, _, err := config.LoadInit(t.Context(), &config.Source{Name: "init.yaml", Data: []byte(fixture.InitDocument)}, config.InitFlags{}, config.Options{
		NewToken: func() (string, string) { return "abcdef", "0123456789abcdef" }, Restored: restored,
	})
	phasetest.Fatal(t, err)
	return n
}

// TestBareHostConfiguration: a snapshot and a bare host are enough, also for a run that goes on without the snapshot.
func TestBareHostConfiguration(t *testing.T) {
	s, path := bareWith(t)
	from := Source{File: path}
	for _, run := range []string{"first", "interrupted"} {
		n := loaded(t, s, from)
		n.IgnorePreflightErrors = []string{strings.ToLower(fault.EtcdOtherMembers)}
		s.Config = n
		if n.Name != "cp-1" || n.Cluster.Networking.ServiceSubnet != "10.100.0.0/16" || n.Cluster.ControlPlaneEndpoint != "api.example.org:6443" || n.Kubelet.MaxPods != 42 {
			t.Errorf("%s: %s, %+v", run, n.Name, n.Cluster)
		}
		b, err := NewBareHost(s.Env, from)
		phasetest.Fatal(t, err)
		phasetest.Fatal(t, b.restoreFiles(t.Context(), s.Env))
		phasetest.Fatal(t, b.restoreData(t.Context(), s.Env))
		fact.NotIn(t, s.Said.String(), "--config")
		if run == "first" {
			s.Remove(t, path)
		}
	}
}

// TestSealedConfiguration: a sealed snapshot has the configuration, even if the API server encrypts ConfigMaps.
func TestSealedConfiguration(t *testing.T) {
	for name, file := range map[string]map[string]string{
		"from the database": {etcd.ClusterKey: storedText(t, manifests.KubeadmConfigKey, storedCluster), etcd.KubeletKey: storedText(t, "kubelet", storedKubelet)},
		"from the API":      {etcd.ClusterKey: "k8s:enc:aescbc:v1:new:x"},
		"unknown":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			s, m := plane(t, encrypts)
			s.Put(t, "/srv/enc/config.yaml", encryptionText)
			m.content = snapshotWith(t, file)
			s.Cluster = configuredAPI{}
			if name == "from the API" {
				s.Cluster = configuredAPI{document: storedCluster}
			}
			to, with := keyPair(t)
			path, err := Save(t.Context(), s.Env, Options{Dir: dir, Recipients: to})
			phasetest.Fatal(t, err)
			record, err := snapshots.Read(s.Host, path)
			phasetest.Fatal(t, err)
			if name == "unknown" {
				fact.In(t, strings.Join(record.Unknown, " ")+s.Said.String(), config.ClusterSource)
				restored, err := Configuration(s.Host, Source{File: path, With: with})
				if restored != nil || err != nil {
					t.Errorf("%+v, %v", restored, err)
				}
				return
			}
			fact.NotIn(t, strings.Join(record.Unknown, " "), config.ClusterSource)
			fact.NotIn(t, s.Get(t, path), "api.example.org")
			if n := loaded(t, s, Source{File: path, With: with}); n.Cluster.Networking.DNSDomain != "example.local" {
				t.Errorf("%+v", n.Cluster)
			}
		})
	}
}

// TestBareHostDiffers: a configuration that isn't the restored cluster's is refused before anything is written, or named.
func TestBareHostDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *config.Node)
		facts  []string // of the error; none if it's accepted
		says   []string
	}{
		"the same":        {func(*config.Node) {}, nil, nil},
		"another network": {func(n *config.Node) { n.Cluster.Networking.ServiceSubnet = "10.96.0.0/12" }, []string{"networking.serviceSubnet", "10.100.0.0/16", "10.96.0.0/12"}, nil},
		"another domain":  {func(n *config.Node) { n.Cluster.Networking.DNSDomain = "cluster.local" }, []string{"networking.dnsDomain", "example.local"}, nil},
		"no endpoint":     {func(n *config.Node) { n.Cluster.ControlPlaneEndpoint = "" }, []string{"controlPlaneEndpoint", "api.example.org:6443"}, nil},
		"lost names":      {func(n *config.Node) { n.Cluster.APIServer.CertSANs = nil }, []string{"apiServer.certSANs", "a.example.org"}, nil},
		"more names": {func(n *config.Node) { n.Cluster.APIServer.CertSANs = []string{"b.example.org", "a.example.org"} }, nil,
			[]string{"apiServer"}},
		"images": {func(n *config.Node) { n.Cluster.ImageRepository = "registry.example.org" }, nil, []string{"imageRepository"}},
		"on purpose": {func(n *config.Node) {
			n.Cluster.ControlPlaneEndpoint = "192.0.2.99:6443"
			n.IgnorePreflightErrors = []string{strings.ToLower(fault.RestoredConfiguration)}
		}, nil, []string{"controlPlaneEndpoint", "192.0.2.99:6443"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, path := bareWith(t)
			s.Config = loaded(t, s, Source{File: path}).With(c.change)
			b, err := NewBareHost(s.Env, Source{File: path})
			phasetest.Fatal(t, err)
			stamps := phasetest.Stamps(t, s.Root)
			err = b.restoreFiles(t.Context(), s.Env)
			if len(c.facts) == 0 {
				phasetest.Fatal(t, err)
				fact.In(t, s.Said.String(), c.says...)
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, fixture.Told(err), append(c.facts, fault.RestoredConfiguration)...)
			if now := phasetest.Stamps(t, s.Root); len(now) != len(stamps) {
				t.Error("something was written")
			}
		})
	}
}

// TestBareHostWithoutConfiguration: an older snapshot is restored with the operator's configuration alone, and a warning.
func TestBareHostWithoutConfiguration(t *testing.T) {
	s, _, path := bare(t)
	restored, err := Configuration(s.Host, Source{File: path})
	if restored != nil || err != nil {
		t.Errorf("%+v, %v", restored, err)
	}
	b, err := NewBareHost(s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, b.restoreFiles(t.Context(), s.Env))
	fact.In(t, s.Said.String(), path, "--config")
	if _, err := s.Host.Lstat(node.EtcdJournalPath(s.Config.Paths)); err == nil {
		t.Error("the restore has begun")
	}
}
