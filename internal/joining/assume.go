// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/discovery"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/manifests"
)

// Assume is Node for a plan that doesn't ask the cluster. It uses the configuration, a discovery file and this host, and assumes
// the rest: the default cluster configuration, and a generated CA and other shared control plane files. They go to scratch, a
// plan of d.Host, and are thrown away with it. It sets Node.Join.Assumed.
func (d *Discovery) Assume(ctx context.Context, self *config.JoinConfiguration, scratch host.Host) (*config.Node, []string, error) {
	found, credentials, join, err := d.known(ctx, self)
	if err != nil {
		return nil, nil, err
	}
	endpoint := strings.TrimPrefix(found.Server, "https://")
	kubelet, err := host.ReadIfExists(d.Host, config.DefaultPaths().KubeletConfig())
	if err != nil {
		return nil, nil, err
	}
	n, warnings, err := config.LoadCluster(assumedCluster(endpoint), kubelet, nil, self, d.Options)
	if err != nil {
		return nil, warnings, err
	}
	shared, err := d.standIns(n, scratch)
	if err != nil {
		return nil, warnings, err
	}
	ca, err := certs.ParseCerts(shared["ca.crt"])
	if err != nil {
		return nil, warnings, err
	}
	if found.CA == nil || n.ControlPlane && !n.CertificateKey.IsZero() {
		found.CA = ca
	}
	if join == nil {
		if join, err = d.joinTo(found, credentials, self); err != nil {
			return nil, warnings, err
		}
	}
	join.Assumed = true
	if n.ControlPlane && !n.CertificateKey.IsZero() {
		join.Shared, err = manifests.EncryptCerts(shared, n.CertificateKey, rand.Reader)
	}
	return n.With(func(n *config.Node) { n.Join = join }), warnings, err
}

// nowhere stands for the API's address if it's unknown (RFC 2606).
const nowhere = "https://cluster.invalid:6443"

// known finds out as much as possible about the cluster without asking it.
func (d *Discovery) known(ctx context.Context, self *config.JoinConfiguration) (found discovery.Cluster, credentials []byte, join *config.Join, err error) {
	if join = d.memberAlready(self); join != nil {
		found.CA, err = certs.ParseCerts(join.CA)
		found.Server = join.Server
		return found, nil, join, err
	}
	switch file := self.Discovery.File; {
	case file == nil:
		found.Server = "https://" + self.Discovery.BootstrapToken.APIServerEndpoint
	case strings.HasPrefix(file.KubeConfigPath, "https://"):
		found.Server = nowhere
		credentials = []byte("from " + file.KubeConfigPath)
	default:
		found, credentials, err = d.ask(ctx, &self.Discovery, "")
	}
	return found, credentials, nil, err
}

// assumedCluster is the configuration of a cluster that wasn't asked.
func assumedCluster(endpoint string) []byte {
	// The keys are thrown away, so it picks a type quick to generate.
	text := string(config.DefaultCluster()) + "encryptionAlgorithm: " + string(config.ECDSAP256) + "\n"
	if endpoint != "" {
		text += fmt.Sprintf("controlPlaneEndpoint: %q\n", endpoint)
	}
	return []byte(text)
}

// standIns returns control planes' shared files, by their keys in the Secret: this host's, and generated files for the rest.
func (d *Discovery) standIns(n *config.Node, scratch host.Host) (map[string][]byte, error) {
	if err := fillIn(pki.Store{Host: scratch, Config: n, UI: d.UI}); err != nil {
		return nil, errors.WithMessage(err, "without the cluster, a plan uses the files of this host")
	}
	files := map[string][]byte{}
	for key, path := range manifests.SharedFiles(n) {
		data, err := host.ReadIfExists(scratch, path)
		if err != nil {
			return nil, err
		}
		files[key] = data
	}
	return files, nil
}

// fillIn checks the existing shared files, and generates the rest. A worker needs only the cluster's CA.
func fillIn(store pki.Store) error {
	for _, row := range certs.Specs(store.Config) {
		if row.Name == certs.CA || store.Config.ControlPlane && row.IsCA() {
			if err := store.Ensure(row, nil); err != nil {
				return err
			}
		}
	}
	if !store.Config.ControlPlane {
		return nil
	}
	return store.EnsureServiceAccountKeys(nil)
}

// AssumedControlPlane is JoinedNode for a plan that doesn't ask the cluster.
func AssumedControlPlane(self *config.JoinConfiguration, opts config.Options) (*config.Node, error) {
	n, _, err := config.LoadCluster(assumedCluster(""), nil, nil, self, opts)
	if err != nil {
		return nil, err
	}
	join := &config.Join{Assumed: true, CAPath: cmp.Or(self.CACertPath, filepath.Join(n.Paths.PKI, "ca.crt"))}
	return n.With(func(n *config.Node) { n.Join = join }), nil
}
