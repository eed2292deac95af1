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
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

func downloadCerts() Phase {
	return Phase{
		Name:    "download-certs",
		Summary: "Bring the certificates and keys that all control planes share",
		Flags:   discoveryFlags("certificate-key", "control-plane"),
		Run:     runDownloadCerts,
	}
}

// runDownloadCerts writes what is missing here of the files that all control
// planes share. Discovery has brought them, encrypted. Nothing is written
// unless all of it fits this cluster.
func runDownloadCerts(_ context.Context, env *Env) error {
	missing, err := missingShared(env.Host, env.Config)
	if err != nil {
		return err
	}
	leaveElsewhere(env, missing)
	if len(missing) > 0 {
		files, err := downloaded(env.Config, missing)
		if err != nil {
			return err
		}
		if err := checkDownloaded(env, files); err != nil {
			return err
		}
		if err := checkEtcdClient(missing, files); err != nil {
			return errors.Wrap(err, "what an external etcd is shown, in Secret kube-system/kubeadm-certs, is not right: upload the certificates again")
		}
		if err := writeDownloaded(env, missing, files); err != nil {
			return err
		}
	}
	return checkShared(env)
}

// missingShared returns the files that this host lacks, by their keys in the
// Secret.
func missingShared(h host.Host, n *config.Node) (map[string]string, error) {
	missing := map[string]string{}
	for key, path := range manifests.SharedFiles(n) {
		switch _, err := h.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			missing[key] = path
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// leaveElsewhere takes out of missing the keys of CAs whose certificates are
// here: without a certificate key, they are not asked for. A CA's key may be
// kept elsewhere, and what it signs for this node be brought here:
// https://kubernetes.io/docs/setup/best-practices/certificates/
// With a certificate key, what is missing is what an earlier download has not
// come to.
func leaveElsewhere(env *Env, missing map[string]string) {
	if !env.Config.CertificateKey.IsZero() {
		return
	}
	var keys []string
	for _, spec := range certs.Specs(env.Config) {
		key, absent := missing[spec.Name+".key"]
		if spec.IsCA() && absent && missing[spec.Name+".crt"] == "" {
			keys = append(keys, key)
			delete(missing, spec.Name+".key")
		}
	}
	if len(keys) > 0 {
		env.UI.Warnf("not on this host, so taken to be kept elsewhere: %s. What they sign for this node, certificates and kubeconfig files, must be here already; "+
			"where it is not, give the certificate key (--certificate-key), or copy these keys from a control plane", strings.Join(keys, ", "))
	}
}

// downloaded decrypts what the cluster shares.
func downloaded(n *config.Node, missing map[string]string) (map[string][]byte, error) {
	paths := strings.Join(slices.Sorted(maps.Values(missing)), ", ")
	switch {
	case n.CertificateKey.IsZero():
		return nil, errors.Errorf("this host lacks files that all control planes share: %s; give the certificate key with which they were uploaded (--certificate-key), or copy them from a control plane", paths)
	case n.Join == nil || n.Join.Shared == nil:
		return nil, errors.Errorf("this host lacks %s, and Secret kube-system/kubeadm-certs, which would have them, does not exist: it lasts two hours; `init phase upload-certs --upload-certs` on a control plane makes it anew, with a new certificate key", paths)
	}
	files, err := manifests.DecryptCerts(n.Join.Shared, n.CertificateKey)
	if err != nil {
		return nil, err
	}
	for key := range missing {
		if len(files[key]) == 0 {
			return nil, errors.Errorf("Secret kube-system/kubeadm-certs has no %s, which this cluster's control planes need: upload the certificates again", key)
		}
	}
	return files, nil
}

// checkDownloaded refuses pairs that are none, and a CA that is not the one
// that this node trusts since its discovery.
func checkDownloaded(env *Env, files map[string][]byte) error {
	const where = "in Secret kube-system/kubeadm-certs"
	for _, spec := range certs.Specs(env.Config) {
		if !spec.IsCA() {
			continue
		}
		pair, err := certs.ParsePair(files[spec.Name+".crt"], files[spec.Name+".key"])
		if err == nil {
			err = certs.Check(spec, env.Config, pair, nil, env.Host.Now())
		}
		if err != nil {
			return errors.Wrapf(err, "%s.crt and %s.key %s are not right: upload the certificates again", spec.Name, spec.Name, where)
		}
	}
	if err := certs.CheckServiceAccountPair(files["sa.key"], files["sa.pub"]); err != nil {
		return errors.Wrapf(err, "sa.key and sa.pub %s are not right: upload the certificates again", where)
	}
	list, err := certs.ParseCerts(files["ca.crt"])
	if err == nil && !sharesCA(list, env.Config) {
		return errors.Errorf("ca.crt %s is not the CA that this node found and verified: somebody has uploaded another cluster's; upload the certificates again", where)
	}
	return err
}

// checkEtcdClient checks those files for an external etcd that are to be
// written. What the Secret holds under their names may be something else, a key
// under the name of a certificate, which everybody may read.
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
		f := file{path: path, data: files[key], mode: mode, secret: strings.HasSuffix(key, ".key")}
		if _, err := f.write(env.Host); err != nil {
			return err
		}
	}
	return nil
}

// checkShared holds the shared files, wherever they are from, against the
// table: none of them may be made anew here.
func checkShared(env *Env) error {
	for _, spec := range certs.Specs(env.Config) {
		if !spec.IsCA() {
			continue
		}
		store := pairStore{env}
		cert, key, err := store.read(spec)
		if err != nil {
			return err
		}
		if err := store.check(spec, cert, key); err != nil {
			return err
		}
		list, err := certs.ParseCerts(cert)
		if err == nil && spec.Name == certs.CA && !sharesCA(list, env.Config) {
			path, _ := store.paths(spec)
			return errors.Errorf("%s is of another cluster; reset this host first, or move it away", path)
		}
	}
	return ensureServiceAccountKeys(env, nil)
}

// sharedCertificates reads the Secret that control planes upload for others;
// nil where there is none.
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
