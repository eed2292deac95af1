// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"cmp"
	"context"
	"net"
	"net/url"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

// JoinCommand is the command that a joining node's administrator types.
type JoinCommand struct {
	Endpoint string // host:port of the API
	Token    string
	Pins     []string // of the cluster's CAs, sha256:HEX
	// CertificateKey makes the node a control plane; empty for a worker.
	CertificateKey string
	// Command is join or, for hosts not prepared yet, up with its flags; empty means join.
	Command string
}

// Text returns the command, with separator between address, pins and the rest. Programs called by another name replace the first
// word: cmd/slipway/cli/program_name.go.
func (c JoinCommand) Text(separator string) string {
	text := "slipway " + cmp.Or(c.Command, "join") + " " + c.Endpoint + " --token " + c.Token
	for _, pin := range c.Pins {
		text += separator + "--discovery-token-ca-cert-hash " + pin
	}
	if c.CertificateKey != "" {
		text += separator + "--control-plane --certificate-key " + c.CertificateKey
	}
	return text
}

// Kubeconfig is the administrator's kubeconfig file.
type Kubeconfig struct {
	Path string
	Read func() ([]byte, error)
}

// JoinCommand returns the command for joining with a token, and as a control plane if there's a certificate key. Address and CA
// come from cluster-info, as for the joining node, or from the administrator's kubeconfig if that's missing.
func (s Store) JoinCommand(ctx context.Context, token config.Token, key config.Secret, admin Kubeconfig) (JoinCommand, error) {
	data, source, err := s.clusterInfo(ctx, admin)
	if err != nil {
		return JoinCommand{}, err
	}
	server, ca, err := kubeconfig.Server(data)
	if err != nil {
		return JoinCommand{}, errors.Wrap(err, source)
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return JoinCommand{}, errors.Errorf("%s: the server is not a URL such as https://10.0.0.1:6443", source)
	}
	endpoint := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")) // `join` wants a port
	c := JoinCommand{Endpoint: endpoint, Token: token.ID + "." + token.Secret.Reveal(), CertificateKey: key.Reveal()}
	for _, cert := range ca {
		c.Pins = append(c.Pins, certs.PublicKeyPin(cert))
	}
	return c, nil
}

func (s Store) clusterInfo(ctx context.Context, admin Kubeconfig) (data []byte, source string, err error) {
	text, err := cluster.ConfigMapText(ctx, s.Cluster, metav1.NamespacePublic, manifests.ClusterInfoName, "kubeconfig")
	if err != nil {
		return nil, "", err
	}
	if text != "" {
		return []byte(text), "ConfigMap kube-public/cluster-info", nil
	}
	s.UI.Warn("ConfigMap kube-public/cluster-info, which joining nodes ask for, is missing; the join command has the address in "+admin.Path,
		"create it with `slipway init phase bootstrap-token`")
	data, err = admin.Read()
	return data, admin.Path, err
}
