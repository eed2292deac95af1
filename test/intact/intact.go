// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package intact checks the files a run left on a host, using none of the product's code.
package intact

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// issuers maps the certificates below the PKI directory to their CAs:
// https://kubernetes.io/docs/setup/best-practices/certificates/
var issuers = map[string]string{
	"ca": "ca", "apiserver": "ca", "apiserver-kubelet-client": "ca",
	"front-proxy-ca": "front-proxy-ca", "front-proxy-client": "front-proxy-ca",
	"etcd/ca": "etcd/ca", "etcd/server": "etcd/ca", "etcd/peer": "etcd/ca", "etcd/healthcheck-client": "etcd/ca", "apiserver-etcd-client": "etcd/ca",
}

// Check reports broken files in /etc/kubernetes below root: mismatched pairs, broken chains, useless kubeconfig files. Missing
// files aren't broken.
func Check(root string) error {
	dir := filepath.Join(root, "etc/kubernetes")
	var faults []error
	for name, issuer := range issuers {
		faults = append(faults, pairIntact(filepath.Join(dir, "pki"), name, issuer))
	}
	faults = append(faults, serviceAccountIntact(filepath.Join(dir, "pki")))
	confs, err := filepath.Glob(filepath.Join(dir, "*.conf"))
	faults = append(faults, err)
	for _, path := range confs {
		faults = append(faults, kubeconfigIntact(path, filepath.Join(dir, "pki/ca.crt")))
	}
	return errors.Join(faults...)
}

// Torn returns the files in /etc/kubernetes below root that are empty or incomplete. Missing files aren't torn, and neither is a
// file that a killed run was about to move into its place: the next run removes it.
func Torn(root string) ([]string, error) {
	var torn []string
	dir := filepath.Join(root, "etc/kubernetes")
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if path == dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() || strings.Contains(entry.Name(), ".slipway-") {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && !complete(path, data) {
			torn = append(torn, fmt.Sprintf("%s (%d bytes)", path, len(data)))
		}
		return err
	})
	return torn, err
}

// complete reports whether a file has the end of what it began with. A YAML file that was cut between two lines may pass.
func complete(path string, data []byte) bool {
	switch filepath.Ext(path) {
	case ".crt", ".key", ".pub":
		block, rest := pem.Decode(data)
		return block != nil && len(rest) == 0
	case ".conf", ".yaml":
		var object map[string]any
		return yaml.Unmarshal(data, &object) == nil && len(object) > 0 && bytes.HasSuffix(data, []byte("\n"))
	}
	return len(data) > 0
}

func pairIntact(dir, name, issuer string) error {
	cert, certErr := os.ReadFile(filepath.Join(dir, name+".crt"))
	key, keyErr := os.ReadFile(filepath.Join(dir, name+".key"))
	noCert, noKey := errors.Is(certErr, fs.ErrNotExist), errors.Is(keyErr, fs.ErrNotExist)
	if noKey && (noCert || name == issuer) { // a worker has the CA without its key
		return nil
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return err
	}
	if err := works(cert, key, filepath.Join(dir, issuer+".crt")); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// works checks that a certificate matches a key and chains to a CA.
func works(cert, key []byte, caPath string) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(caPath)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s holds no certificate", caPath)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func serviceAccountIntact(dir string) error {
	key, keyErr := os.ReadFile(filepath.Join(dir, "sa.key"))
	pub, pubErr := os.ReadFile(filepath.Join(dir, "sa.pub"))
	if errors.Is(keyErr, fs.ErrNotExist) && errors.Is(pubErr, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(keyErr, pubErr); err != nil {
		return err
	}
	keyBlock, _ := pem.Decode(key)
	pubBlock, _ := pem.Decode(pub)
	if keyBlock == nil || pubBlock == nil {
		return errors.New("sa.key or sa.pub is not PEM")
	}
	public, err := x509.ParsePKIXPublicKey(pubBlock.Bytes)
	if err != nil {
		return err
	}
	if private, err := x509.ParsePKCS1PrivateKey(keyBlock.Bytes); err == nil && private.PublicKey.Equal(public) {
		return nil
	}
	if private, err := x509.ParseECPrivateKey(keyBlock.Bytes); err == nil && private.PublicKey.Equal(public) {
		return nil
	}
	return errors.New("sa.pub is not of sa.key")
}

func kubeconfigIntact(path, caPath string) error {
	cfg, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	ctx := cfg.Contexts[cfg.CurrentContext]
	if ctx == nil || cfg.Clusters[ctx.Cluster] == nil || cfg.AuthInfos[ctx.AuthInfo] == nil {
		return fmt.Errorf("%s: no context", path)
	}
	user := cfg.AuthInfos[ctx.AuthInfo]
	if user.ClientCertificate != "" { // a file that the kubelet rotates
		return nil
	}
	if err := works(user.ClientCertificateData, user.ClientKeyData, caPath); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	ca, err := os.ReadFile(caPath)
	if err == nil && strings.TrimSpace(string(ca)) != strings.TrimSpace(string(cfg.Clusters[ctx.Cluster].CertificateAuthorityData)) {
		err = fmt.Errorf("%s names another CA", path)
	}
	return err
}
