// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/tls"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

func downloadCerts() Phase {
	return Phase{
		Name:    "download-certs",
		Summary: "Download the certificates and keys that all control planes share",
		Flags:   discoveryFlags("certificate-key", "control-plane"),
		Run:     runDownloadCerts,
	}
}

// runDownloadCerts writes the files that all control planes share and this host lacks. Discovery has downloaded them,
// encrypted. It writes nothing unless all of them belong to this cluster.
func runDownloadCerts(_ context.Context, env *Env) error {
	shared, err := env.pki().MissingShared()
	if err != nil {
		return err
	}
	if keys := shared.Elsewhere; len(keys) > 0 {
		env.UI.Warnf("not on this host, so they are assumed to be kept elsewhere: %s. The kubelet requests its certificate from the cluster: if no controller manager "+
			"has the key of the CA, copy kubelet.conf to this host, too", strings.Join(keys, ", "))
	}
	if err := env.pki().CheckJoin(); err != nil {
		return err
	}
	if missing := shared.Missing; len(missing) > 0 {
		files, err := downloaded(env.Config, missing)
		if err != nil {
			return err
		}
		if err := addPresent(env, missing, files); err != nil {
			return err
		}
		if err := checkDownloaded(env, missing, files); err != nil {
			return err
		}
		if err := checkEtcdClient(missing, files); err != nil {
			return errors.Wrapf(err, "the client certificate for the external etcd in Secret %s is invalid; upload the certificates again", certsSecret)
		}
		if err := writeDownloaded(env, missing, files); err != nil {
			return err
		}
	}
	return checkShared(env)
}

// downloaded decrypts the missing files.
func downloaded(n *config.Node, missing map[string]string) (map[string][]byte, error) {
	paths := strings.Join(slices.Sorted(maps.Values(missing)), ", ")
	if n.Join == nil || n.Join.Shared == nil {
		return nil, errors.Errorf("this host lacks %s, and Secret %s, which should contain them, does not exist: it is deleted after two hours; run `init phase upload-certs --upload-certs` on a control plane, and join with the new certificate key", paths, certsSecret)
	}
	// Other entries are of no use here: they are of an earlier version, or of another etcd.
	wanted := maps.Clone(n.Join.Shared)
	maps.DeleteFunc(wanted, func(key string, data []byte) bool { return missing[key] == "" || len(data) == 0 })
	files, err := manifests.DecryptCerts(wanted, n.CertificateKey)
	if err != nil {
		return nil, err
	}
	var absent []string
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		if len(files[key]) == 0 {
			absent = append(absent, key)
		}
	}
	if len(absent) > 0 {
		return nil, errors.Errorf("this host lacks %s, but Secret %s has no %s; upload the certificates again "+
			"(`init phase upload-certs --upload-certs` on a control plane), or, if a key is kept elsewhere, copy all files to this node and join without a certificate key",
			paths, certsSecret, strings.Join(absent, ", "))
	}
	return files, nil
}

const certsSecret = "kube-system/kubeadm-certs"

// addPresent adds the shared files that this host has, so that pairs can be checked if it has one half of them.
func addPresent(env *Env, missing map[string]string, files map[string][]byte) error {
	for key, path := range manifests.SharedFiles(env.Config) {
		if missing[key] != "" {
			continue
		}
		data, err := env.Host.ReadFile(path)
		if err != nil {
			return err
		}
		files[key] = data
	}
	return nil
}

// checkDownloaded refuses pairs that do not belong together, and a CA other than the one that discovery verified. Pairs
// that this host had before are checked where they are used.
func checkDownloaded(env *Env, missing map[string]string, files map[string][]byte) error {
	for _, spec := range certs.Specs(env.Config) {
		crt, key := spec.Name+".crt", spec.Name+".key"
		if !spec.IsCA() || missing[crt] == "" && missing[key] == "" {
			continue
		}
		pair, err := certs.ParsePair(files[crt], files[key])
		if err == nil {
			err = certs.Check(spec, env.Config, pair, nil, env.Host.Now())
		}
		if err != nil {
			return errors.Wrap(err, notRight(missing, crt, key))
		}
	}
	const key, pub = certs.ServiceAccountKey, certs.ServiceAccountPublicKey
	if missing[key] != "" || missing[pub] != "" {
		if err := certs.CheckServiceAccountPair(files[key], files[pub]); err != nil {
			return errors.Wrap(err, notRight(missing, key, pub))
		}
	}
	if missing["ca.crt"] == "" {
		return nil
	}
	list, err := certs.ParseCerts(files["ca.crt"])
	if err == nil && !thisnode.SharesCA(list, env.Config) {
		return errors.Errorf("ca.crt in Secret %s is not the CA that this node discovered and verified, so it belongs to another cluster; upload the certificates again", certsSecret)
	}
	return err
}

// notRight says which of the two files of a pair to replace.
func notRight(missing map[string]string, first, second string) string {
	if missing[first] != "" && missing[second] != "" {
		return first + " and " + second + " in Secret " + certsSecret + " are invalid; upload the certificates again"
	}
	if missing[first] == "" {
		first, second = second, first
	}
	return first + " in Secret " + certsSecret + " does not match " + second + " on this host; remove that file, or upload the certificates again"
}

// checkEtcdClient checks the files for an external etcd before they are written. The Secret could hold something else
// under their names, such as a key under the name of a certificate, which everyone could read.
func checkEtcdClient(missing map[string]string, files map[string][]byte) error {
	const ca, crt, key = "external-etcd-ca.crt", "external-etcd.crt", "external-etcd.key"
	for _, name := range []string{ca, crt} {
		if missing[name] == "" {
			continue
		}
		if _, err := certs.ParseCerts(files[name]); err != nil {
			return errors.Wrap(err, name)
		}
	}
	if missing[crt] == "" && missing[key] == "" {
		return nil
	}
	_, err := tls.X509KeyPair(files[crt], files[key])
	return errors.Wrapf(err, "%s and %s", crt, key)
}

func writeDownloaded(env *Env, missing map[string]string, files map[string][]byte) error {
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		path := missing[key]
		env.UI.Printf("Writing %s", path)
		if err := env.Host.EnsureDir(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if strings.HasSuffix(key, ".crt") {
			mode = 0o644
		}
		f := ownership.File{Path: path, Data: files[key], Mode: mode, Secret: strings.HasSuffix(key, ".key")}
		if _, err := f.Write(env.Host); err != nil {
			return err
		}
	}
	return nil
}

// checkShared checks the shared files: this node must not generate any of them.
func checkShared(env *Env) error {
	store := env.pki()
	for _, row := range certs.Specs(env.Config) {
		if !row.IsCA() {
			continue
		}
		cert, key, err := store.Read(row)
		if err != nil {
			return err
		}
		if err := store.Check(row, cert, key); err != nil {
			return err
		}
		list, err := certs.ParseCerts(cert)
		if err == nil && row.Name == certs.CA && !thisnode.SharesCA(list, env.Config) {
			return errors.Errorf("%s belongs to another cluster; reset this host first, or move the file away", store.Files(row)[0])
		}
	}
	return store.EnsureServiceAccountKeys(nil)
}

// sharedCertificates reads the Secret that a control plane has uploaded; nil if it does not exist.
func sharedCertificates(ctx context.Context, api cluster.Cluster) (map[string][]byte, error) {
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-certs", Namespace: metav1.NamespaceSystem},
	}
	found, err := api.Get(ctx, secret)
	if err != nil || !found {
		return nil, err
	}
	return secret.Data, nil
}
