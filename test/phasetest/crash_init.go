// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

// CrashKey is the certificate key of CrashDocuments.
var CrashKey = config.NewSecret(strings.Repeat("0123456789abcdef", 4))

const CrashDocuments = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
certificateKey: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
localAPIEndpoint: {advertiseAddress: 192.0.2.11}
nodeRegistration:
  name: cp-1
  criSocket: "unix:///run/containerd/containerd.sock"
  ignorePreflightErrors: [SystemVerification, CgroupDriver]
timeouts: {kubernetesAPICall: 30s, kubeletHealthCheck: 30s, controlPlaneComponentHealthCheck: 30s, tlsBootstrap: 30s}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.2
encryptionAlgorithm: ECDSA-P256
networking: {podSubnet: 10.244.0.0/16}
apiServer: {certSANs: [127.0.0.1]}
`

func RunInit(workflow func() []step.Phase) Runner {
	return func(ctx context.Context, h *LastingHost, endpoint string, say io.Writer) error {
		return initWith(ctx, h, endpoint, say, CrashDocuments, workflow())
	}
}

func initWith(ctx context.Context, h *LastingHost, endpoint string, say io.Writer, documents string, workflow []step.Phase) error {
	random := func(n int) string { return strings.ToLower(rand.Text()[:n]) }
	flags := config.InitFlags{Given: []string{"upload-certs"}, UploadCerts: true}
	n, _, err := config.LoadInit(ctx, &config.Source{Name: "init.yaml", Data: []byte(documents)}, flags, config.Options{
		Facts:    config.HostFacts{Hostname: "cp-1"},
		NewToken: func() (string, string) { return random(6), random(16) },
	})
	if err != nil {
		return err
	}
	return CrashRun(ctx, n, h, endpoint, say, workflow, nil)
}

// OwnAPI is the API server of a control plane in a root directory. It uses that directory's certificate, and admits the
// administrators once they're bound. Then it asks spoil.
func OwnAPI(root string, spoil func(r *http.Request) fakeapi.Fault) *fakeapi.Server {
	var mu sync.Mutex
	var served *tls.Config
	certificate := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		pki := filepath.Join(root, "/etc/kubernetes/pki")
		cert, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
		if err != nil && served != nil { // like kube-apiserver, it serves with the old pair until a new pair is complete
			return served, nil
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"}}
		if err == nil {
			served = config
		}
		return config, err
	}
	s := fakeapi.New(&tls.Config{GetConfigForClient: certificate})
	s.Put("/api/v1/nodes/cp-1", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "cp-1"}})
	s.Spoil = func(r *http.Request) fakeapi.Fault {
		user := r.TLS.PeerCertificates[0].Subject
		bound := s.Has("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:cluster-admins")
		if slices.Contains(user.Organization, "kubeadm:cluster-admins") && !bound {
			return fakeapi.Forbidden
		}
		if spoil == nil {
			return nil
		}
		return spoil(r)
	}
	return s
}
