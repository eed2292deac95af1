// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig makes and reads a node's kubeconfig files, each described by a row of certs.Table. Build makes one from a
// Spec, Check says why one doesn't fit, Server and CAs read one, and AtServer and TrustCAs change one. It does no I/O
// of its own; internal/pki reads and writes the files.
package kubeconfig

import (
	"crypto/x509"

	"github.com/pkg/errors"
	api "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// Spec describes a kubeconfig file: who it authenticates, and to which server.
type Spec struct {
	// Certificate is the client certificate's row. Its common name is also the user's name in the file.
	Certificate certs.Spec
	Server      string
}

// File is the file's name below the directory of kubeconfig files.
func (s Spec) File() string { return s.Certificate.Kubeconfig }

// SpecOf returns a row's kubeconfig file. People reach the API at the cluster's endpoint. The node's components use its own API
// server, so that during an upgrade they don't talk to an older server.
func SpecOf(n *config.Node, row certs.Spec) Spec {
	server := n.Endpoint()
	if row.UsedBy != "" {
		server = n.LocalEndpoint()
	}
	return Spec{Certificate: row, Server: "https://" + server}
}

// Build returns a kubeconfig file with a user who trusts ca and authenticates with client. Before a signing request is signed,
// there's only the key.
func Build(spec Spec, n *config.Node, ca []*x509.Certificate, client certs.Pair) ([]byte, error) {
	key, err := certs.EncodeKey(client.Key)
	if err != nil {
		return nil, errors.Wrap(err, spec.File())
	}
	user := api.AuthInfo{ClientKeyData: key}
	if client.Cert != nil {
		user.ClientCertificateData = certs.EncodeCerts(client.Cert)
	}
	return encode(single(spec, n, ca, user))
}

// BuildWithToken is Build for a user who authenticates with a token.
func BuildWithToken(spec Spec, n *config.Node, ca []*x509.Certificate, token config.Secret) ([]byte, error) {
	return encode(single(spec, n, ca, api.AuthInfo{Token: token.Reveal()}))
}

// ClusterInfo returns the kubeconfig in ConfigMap kube-public/cluster-info: the server and its CAs, without a user.
func ClusterInfo(server string, ca []*x509.Certificate) ([]byte, error) {
	return encode(api.Config{
		APIVersion: "v1",
		Kind:       "Config",
		Clusters:   []api.NamedCluster{{Cluster: clusterOf(server, ca)}},
	})
}

// single returns a file with one cluster, one user, and one context with the customary name USER@CLUSTER.
func single(spec Spec, n *config.Node, ca []*x509.Certificate, user api.AuthInfo) api.Config {
	cluster := n.Cluster.ClusterName
	name := spec.Certificate.CommonName
	context := name + "@" + cluster
	return api.Config{
		APIVersion:     "v1",
		Kind:           "Config",
		Clusters:       []api.NamedCluster{{Name: cluster, Cluster: clusterOf(spec.Server, ca)}},
		AuthInfos:      []api.NamedAuthInfo{{Name: name, AuthInfo: user}},
		Contexts:       []api.NamedContext{{Name: context, Context: api.Context{Cluster: cluster, AuthInfo: name}}},
		CurrentContext: context,
	}
}

func clusterOf(server string, ca []*x509.Certificate) api.Cluster {
	return api.Cluster{Server: server, CertificateAuthorityData: certs.EncodeCerts(ca...)}
}

func encode(file api.Config) ([]byte, error) {
	data, err := yaml.Marshal(file)
	return data, errors.Wrap(err, "encoding a kubeconfig file")
}

// RotatableKubelet makes kubelet.conf use the file of the kubelet's current client certificate and key, instead of embedded copies,
// which nothing renews. It returns a file that already does unchanged.
func RotatableKubelet(data []byte, pemPath string) (rotatable []byte, changed bool, err error) {
	file, err := parse(data)
	if err != nil {
		return nil, false, err
	}
	user := &file.AuthInfos[file.user].AuthInfo
	if user.ClientCertificate == pemPath && user.ClientKey == pemPath &&
		len(user.ClientCertificateData)+len(user.ClientKeyData) == 0 {
		return data, false, nil
	}
	user.ClientCertificate, user.ClientKey = pemPath, pemPath
	user.ClientCertificateData, user.ClientKeyData = nil, nil
	rotatable, err = encode(file.Config)
	return rotatable, err == nil, err
}

// Renewed returns the kubeconfig file with another client certificate and key; everything else stays.
func Renewed(data []byte, client certs.Pair) ([]byte, error) {
	file, err := parse(data)
	if err != nil {
		return nil, err
	}
	key, err := certs.EncodeKey(client.Key)
	if err != nil {
		return nil, err
	}
	user := &file.AuthInfos[file.user].AuthInfo
	user.ClientCertificate, user.ClientKey = "", ""
	user.ClientCertificateData, user.ClientKeyData = certs.EncodeCerts(client.Cert), key
	return encode(file.Config)
}

// AtServer returns a kubeconfig file, or the one in ConfigMap kube-public/cluster-info, with another server of the same cluster.
func AtServer(data []byte, server string) ([]byte, error) {
	file, at, err := withCluster(data)
	if err != nil {
		return nil, err
	}
	file.Clusters[at].Cluster.Server = server
	return encode(file)
}
