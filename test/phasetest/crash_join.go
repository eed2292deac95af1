// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// PrepareJoin creates a cluster to join by a discovery file, and sets the files the kubelet writes once that cluster has signed
// its certificate.
func PrepareJoin(t *testing.T, s *Scene) error {
	s.API = fakeapi.New(nil)
	for _, cm := range []*corev1.ConfigMap{
		fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.ClusterConfiguration), fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration),
	} {
		s.API.Put("/api/v1/namespaces/kube-system/configmaps/"+cm.Name, cm)
	}
	s.API.Put("/api/v1/nodes/worker-1", ReportingNode("worker-1"))
	s.API.Spoil = s.Spoil
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.API.Certificate().Raw})
	return errors.Join(s.KubeletOf(t, "worker-1", ca), os.WriteFile(s.Root+"/join.yaml", []byte(CrashJoinDocument), 0o600))
}

func RunJoin(workflow func() []step.Phase, lookBack lookingBack) Runner {
	return func(ctx context.Context, h *LastingHost, endpoint string, say io.Writer) error {
		opts := config.Options{Facts: config.HostFacts{Hostname: "host"}}
		documents, err := h.ReadFile("/join.yaml")
		if err != nil {
			return err
		}
		self, _, err := config.LoadJoin(&config.Source{Name: "join.yaml", Data: documents}, config.JoinFlags{}, opts)
		if err != nil {
			return err
		}
		connect := func(kubeconfig []byte) cluster.Cluster {
			return cluster.New(cluster.Options{Kubeconfig: "discovery", Timeout: self.Timeouts.KubernetesAPICall.Duration,
				ReadFile: func(string) ([]byte, error) { return embedded(h, kubeconfig) }})
		}
		if limit := h.Limit; limit > 0 {
			self.Timeouts.KubernetesAPICall.Duration = limit
		}
		d := &joining.Discovery{Host: h, UI: ui.NewLines(say, io.Discard), Options: opts, Connect: connect}
		n, _, err := d.Node(ctx, self)
		if err != nil {
			return err
		}
		return CrashRun(ctx, n, h, endpoint, say, workflow(), lookBack)
	}
}

// embedded inserts the files named by a kubeconfig into it: client-go would watch files for as long as the process lives.
func embedded(h host.Host, kubeconfig []byte) ([]byte, error) {
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, user := range cfg.AuthInfos {
		if user.ClientCertificate == "" {
			continue
		}
		data, err := h.ReadFile(user.ClientCertificate)
		if err != nil {
			return nil, err
		}
		user.ClientCertificate, user.ClientKey, user.ClientCertificateData, user.ClientKeyData = "", "", data, data
	}
	return clientcmd.Write(*cfg)
}

const CrashJoinDocument = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {file: {kubeConfigPath: /discovery.conf}}
nodeRegistration:
  name: worker-1
  criSocket: "unix:///run/containerd/containerd.sock"
  ignorePreflightErrors: [SystemVerification, CgroupDriver, Clock]
timeouts: {kubernetesAPICall: 30s, kubeletHealthCheck: 30s, tlsBootstrap: 30s, discovery: 30s, etcdAPICall: 30s}
`
