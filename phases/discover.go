// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/x509"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/discovery"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// Discovery makes the desired state of a node that joins a cluster. It comes
// before the phases, for they need that state, and it changes nothing.
type Discovery struct {
	Host host.Host
	UI   ui.UI
	// Connect returns the API that a kubeconfig leads to.
	Connect func(kubeconfig []byte) cluster.Cluster
	// Options are for loading what the cluster keeps.
	Options config.Options
}

// Node finds the cluster that self asks for, verifies it, and reads there what
// all of its nodes share. The warnings are for the user.
func (d *Discovery) Node(ctx context.Context, self *config.JoinConfiguration) (*config.Node, []string, error) {
	join, err := d.find(ctx, self)
	if err != nil {
		return nil, nil, err
	}
	api := d.Connect([]byte(join.Kubeconfig.Reveal()))
	stored, err := StoredConfiguration(ctx, api)
	if err != nil {
		return nil, nil, err
	}
	kubelet, err := storedKubelet(ctx, api)
	if err != nil {
		return nil, nil, err
	}
	n, warnings, err := config.LoadCluster(stored, kubelet, nil, self, d.Options)
	if err != nil {
		return nil, warnings, err
	}
	n.Join = join
	return n, warnings, d.nameIsFree(ctx, api, n)
}

// find discovers the cluster, within the configuration's time for that.
func (d *Discovery) find(ctx context.Context, self *config.JoinConfiguration) (*config.Join, error) {
	limit := self.Timeouts.Discovery.Duration
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, credentials, err := d.ask(ctx, &self.Discovery, limit.String())
	if err != nil {
		return nil, err
	}
	if token := self.Discovery.TLSBootstrapToken; token != "" {
		if credentials, err = bootstrapKubeconfig(found, token); err != nil {
			return nil, err
		}
	}
	if credentials == nil {
		return nil, errors.New("the discovery file holds no credentials for this node: give a token with --tls-bootstrap-token (discovery.tlsBootstrapToken)")
	}
	d.UI.Printf("Found the cluster at %s", found.Server)
	return &config.Join{Server: found.Server, CA: certs.EncodeCerts(found.CA...), CAPath: self.CACertPath,
		Kubeconfig: config.NewSecret(string(credentials))}, nil
}

func (d *Discovery) ask(ctx context.Context, how *config.Discovery, limit string) (discovery.Cluster, []byte, error) {
	if how.File != nil {
		d.UI.Printf("Reading where the cluster is from %s", how.File.KubeConfigPath)
		return discovery.ByFile(ctx, discovery.File{
			Location: how.File.KubeConfigPath, ReadFile: d.Host.ReadFile, Progress: d.UI.Printf,
		})
	}
	t := how.BootstrapToken
	d.UI.Printf("Asking %s for the cluster, up to %s", t.APIServerEndpoint, limit)
	if t.UnsafeSkipCAVerification {
		d.UI.Warnf("the CA is not verified by its hash: whoever knows the token can pose as this cluster")
	}
	id, secret, _ := strings.Cut(t.Token, ".")
	found, err := discovery.ByToken(ctx, discovery.Token{
		Endpoint: t.APIServerEndpoint, ID: id, Secret: secret,
		Pins: t.CACertHashes, NoPins: t.UnsafeSkipCAVerification && len(t.CACertHashes) == 0,
		Now: d.Host.Now, Progress: d.UI.Printf,
	})
	return found, nil, err
}

// bootstrapKubeconfig lets the kubelet ask for its certificate with a token:
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/
func bootstrapKubeconfig(found discovery.Cluster, token string) ([]byte, error) {
	spec := kubeconfig.Spec{CommonName: "tls-bootstrap-token-user", Server: found.Server}
	named := &config.Node{Cluster: config.ClusterConfiguration{ClusterName: "kubernetes"}}
	return kubeconfig.BuildWithToken(spec, named, found.CA, config.NewSecret(token))
}

// storedKubelet returns the KubeletConfiguration that the cluster keeps.
func storedKubelet(ctx context.Context, c cluster.Cluster) ([]byte, error) {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "kubelet-config", Namespace: metav1.NamespaceSystem},
	}
	found, err := c.Get(ctx, cm)
	if err != nil {
		return nil, err
	}
	if text := cm.Data["kubelet"]; found && text != "" {
		return []byte(text), nil
	}
	return nil, errors.Errorf("%s does not exist or has no key \"kubelet\"; `slipway init phase upload-config kubelet` on a control plane makes it", config.KubeletSource)
}

// nameIsFree refuses to take the name of a node that works: two kubelets would
// fight over it. A node that is not Ready may be this one, made anew.
func (d *Discovery) nameIsFree(ctx context.Context, api cluster.Cluster, n *config.Node) error {
	if memberOf(d.Host, n) == nil {
		return nil
	}
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	found, err := api.Get(ctx, node)
	if err != nil || !found {
		return err
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		return nil
	}
	return errors.Errorf("the cluster has a node %q already, and it is Ready: join with another name (--node-name), or delete that node first (`kubectl delete node %s`) if it was this host",
		n.Name, n.Name)
}

// memberOf tells why this host's kubelet is not a member of n's cluster by n's
// name; nil if it is one, with a certificate that is valid now.
func memberOf(h host.Host, n *config.Node) error {
	path := kubeletConfPath(n)
	data, err := h.ReadFile(path)
	if err != nil {
		return err
	}
	_, trusted, err := kubeconfig.Server(data)
	if err != nil {
		return errors.Wrap(err, path)
	}
	if !sharesCA(trusted, n) {
		return errors.Errorf("%s is of another cluster", path)
	}
	cert, file, err := kubeconfig.ClientCertificate(data)
	if err == nil && file != "" {
		cert, err = h.ReadFile(file)
	}
	if err != nil {
		return errors.Wrap(err, path)
	}
	leaf, err := certs.FirstCert(cert)
	if err != nil {
		return errors.Wrap(err, path)
	}
	switch name := strings.TrimPrefix(leaf.Subject.CommonName, "system:node:"); {
	case name != n.Name:
		return errors.Errorf("%s is of node %q, not %q", path, name, n.Name)
	case h.Now().After(leaf.NotAfter):
		return &expiredError{path, leaf}
	}
	return nil
}

// expiredError is a membership that has lapsed; joining again mends it.
type expiredError struct {
	path string
	leaf *x509.Certificate
}

func (e *expiredError) Error() string {
	return e.path + ": the client certificate expired on " + e.leaf.NotAfter.UTC().Format("2006-01-02")
}

func sharesCA(list []*x509.Certificate, n *config.Node) bool {
	ours, err := certs.ParseCerts(n.Join.CA)
	return err == nil && slices.ContainsFunc(list, func(c *x509.Certificate) bool { return slices.ContainsFunc(ours, c.Equal) })
}

// StartedNode is a worker as far as the files of its kubelet tell, for phases
// that come after kubelet-start and need not know the cluster.
func StartedNode(h host.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, error) {
	kubelet, err := readIfExists(h, filepath.Join(config.DefaultKubeletDir, "config.yaml"))
	if err != nil {
		return nil, err
	}
	n, _, err := config.LoadCluster(config.DefaultCluster(), kubelet, nil, self, opts)
	return n, err
}
