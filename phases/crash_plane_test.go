// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/fixture"
)

var crashingPlane = crashing{name: "join-control-plane", prepare: preparePlane, run: runJoin(Join, LookBack), reads: "/var/lib/kubelet/config.yaml"}

// preparePlane creates a cluster of one control plane that shares its certificates, and sets what the kubelet of the
// second one writes.
func preparePlane(t *testing.T, s *scene) error {
	first := newStage(t, crashDocuments)
	first.play(t, certificates())
	shared := map[string][]byte{}
	for key, path := range manifests.SharedFiles(first.Config) {
		shared[key] = []byte(first.get(t, path))
	}
	data, err := manifests.EncryptCerts(shared, crashKey, rand.Reader)
	if err != nil {
		return err
	}
	server, err := tls.X509KeyPair([]byte(first.get(t, "/etc/kubernetes/pki/apiserver.crt")), []byte(first.get(t, "/etc/kubernetes/pki/apiserver.key")))
	if err != nil {
		return err
	}
	s.api = fakeapi.New(&tls.Config{Certificates: []tls.Certificate{server}})
	s.api.Spoil = s.spoil
	for path, obj := range map[string]any{
		"configmaps/kubeadm-config": fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", storedPlane),
		"configmaps/kubelet-config": fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration),
		"secrets/kubeadm-certs":     &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-certs", Namespace: "kube-system"}, Data: data},
	} {
		s.api.Put("/api/v1/namespaces/kube-system/"+path, obj)
	}
	s.api.Put("/api/v1/nodes/cp-2", reportingNode("cp-2"))
	return errors.Join(s.kubeletOf(t, "cp-2", []byte(first.get(t, "/etc/kubernetes/pki/ca.crt"))),
		os.MkdirAll(s.root+"/var/fake/etcd", 0o755), os.WriteFile(s.root+"/join.yaml", []byte(crashPlaneDocument), 0o600))
}

// reportingNode is a Node whose kubelet keeps reporting.
func reportingNode(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Ready", "status": "False", "lastHeartbeatTime": "2999-01-01T00:00:00Z",
		}}}}
}

// kubeletOf writes the discovery file, and sets what the kubelet of a node writes once the cluster has signed its
// certificate.
func (s *scene) kubeletOf(t *testing.T, node string, ca []byte) error {
	signer := fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour)) // as while a CA is replaced
	ca = slices.Concat(ca, certs.EncodeCerts(signer.Cert))
	file := func(user string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "k", "cluster": {"server": %q, "certificate-authority-data": %q}}],
"users": [{"name": "u", "user": {%s}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`,
			s.api.URL, base64.StdEncoding.EncodeToString(ca), user)
	}
	const client = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	kubelet := fixture.Signed(t, signer, "system:node:"+node, time.Now().Add(time.Hour))
	key, err := certs.EncodeKey(kubelet.Key)
	return errors.Join(err,
		os.WriteFile(s.root+"/discovery.conf", []byte(file(`"token": "`+fixture.Token+`"`)), 0o600),
		willMake(s.root, client, string(certs.EncodeCerts(kubelet.Cert))+string(key)),
		willMake(s.root, "/etc/kubernetes/kubelet.conf", file(fmt.Sprintf(`"client-certificate": %q, "client-key": %q`, client, client))))
}

var crashPlaneDocument = strings.Replace(crashJoinDocument, "worker-1", "cp-2", 1) + `
controlPlane:
  localAPIEndpoint: {advertiseAddress: 192.0.2.12}
  certificateKey: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
`

// lastingMembers is the membership of an etcd with one other member, stored in files of the host: see lastingHost.
type lastingMembers struct {
	etcd.Etcd
	host *lastingHost
}

func (h *lastingHost) members() etcd.Etcd { return lastingMembers{host: h} }

// Has is asked for the cluster's configuration by a host whose API server does not answer.
func (m lastingMembers) Has(context.Context, string) (bool, error) {
	return false, errors.New("this etcd does not answer")
}

const fakeLearner, fakeVoter = "/var/fake/etcd/learner", "/var/fake/etcd/voter"

func (m lastingMembers) Members(context.Context) ([]etcd.Member, error) {
	list := []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: "https://192.0.2.11:2380"}}
	if m.host.has(fakeLearner) {
		list = append(list, etcd.Member{ID: 2, PeerURL: "https://192.0.2.12:2380", Learner: !m.host.has(fakeVoter)})
	}
	return list, nil
}

func (m lastingMembers) Join(ctx context.Context, _, _ string) ([]etcd.Member, bool, error) {
	added := !m.host.has(fakeLearner)
	err := m.host.note(fakeLearner)
	list, _ := m.Members(ctx)
	return list, added && err == nil, err
}

// Promote succeeds once the member runs.
func (m lastingMembers) Promote(context.Context, string) error {
	if !m.host.has(kubeletActive) || !m.host.has("/etc/kubernetes/manifests/etcd.yaml") {
		return errors.New("the learner does not run")
	}
	return m.host.note(fakeVoter)
}

func (m lastingMembers) Leave(context.Context, string) (bool, error) {
	left := m.host.has(fakeLearner)
	return left, errors.Join(removeFake(m.host.root+fakeVoter), removeFake(m.host.root+fakeLearner))
}
