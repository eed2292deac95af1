// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/tls"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
)

func downloadCerts() step.Phase {
	return step.Phase{
		Name:    "download-certs",
		Summary: "Download the certificates and keys that all control planes share",
		Flags:   kubelet.DiscoveryFlags("certificate-key", "control-plane"),
		Run:     runDownloadCerts,
	}
}

// runDownloadCerts writes the shared files that are missing here. Discovery has fetched them, encrypted. It writes nothing unless
// everything fits this cluster.
func runDownloadCerts(_ context.Context, env *step.Env) error {
	shared, err := env.PKI().MissingShared()
	if err != nil {
		return err
	}
	if err := checkEncryption(env, shared.Missing); err != nil {
		return err
	}
	if keys := shared.ExternalKeys; len(keys) > 0 {
		env.UI.Warnf("not on this host, so assumed to be kept elsewhere: %s. The kubelet asks the cluster for its certificate: if no controller manager "+
			"has the key of the CA, kubelet.conf must be on this host, too", strings.Join(keys, ", "))
	}
	if err := env.PKI().CheckJoin(); err != nil {
		return err
	}
	if missing := shared.Missing; len(missing) > 0 {
		if err := checkStale(env, missing); err != nil {
			return err
		}
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
			return fault.WithRemedy(errors.Wrap(err, "the files for the external etcd in Secret "+certsSecret+" are wrong"), uploadAgain)
		}
		if err := writeDownloaded(env, missing, files); err != nil {
			return err
		}
	}
	return checkShared(env)
}

func downloaded(n *config.Node, missing map[string]string) (map[string][]byte, error) {
	paths := strings.Join(slices.Sorted(maps.Values(missing)), ", ")
	if n.Join == nil || n.Join.Shared == nil {
		return nil, fault.WithRemedy(errors.Errorf("this host lacks %s, and Secret kube-system/kubeadm-certs does not exist: the cluster deletes it after two hours", paths),
			uploadAgain)
	}
	// Ignore other entries: they belong to an earlier layout, or to another etcd.
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
		return nil, fault.WithRemedy(errors.Errorf("neither Secret %s nor this host has %s (%s)", certsSecret, strings.Join(absent, ", "), paths),
			uploadAgain+". If a key is kept elsewhere, copy all files to this node, and join without a certificate key")
	}
	return files, nil
}

const certsSecret = "kube-system/kubeadm-certs"

// uploadAgain is a command that reads the cluster's configuration. `init phase upload-certs` alone doesn't know all shared files.
const uploadAgain = "run `slipway token create --print-join-command --control-plane` on a control plane, and here the command that it prints"

// addPresent adds the shared files already on this host, so pairs can be checked even if only half was downloaded.
func addPresent(env *step.Env, missing map[string]string, files map[string][]byte) error {
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

// checkDownloaded refuses mismatched pairs, and any CA that discovery hasn't verified. Pairs that were already here are checked
// where they're used.
func checkDownloaded(env *step.Env, missing map[string]string, files map[string][]byte) error {
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
			return errors.Wrap(err, wrongFilesMessage(missing, crt, key))
		}
	}
	const key, pub = certs.ServiceAccountKey, certs.ServiceAccountPublicKey
	if missing[key] != "" || missing[pub] != "" {
		if err := certs.CheckServiceAccountPair(files[key], files[pub]); err != nil {
			return errors.Wrap(err, wrongFilesMessage(missing, key, pub))
		}
	}
	if missing["ca.crt"] == "" {
		return nil
	}
	list, err := certs.ParseCerts(files["ca.crt"])
	if err == nil && !thisnode.SharesCA(list, env.Config) {
		return errors.Errorf("ca.crt in Secret %s is not the CA that this node has verified: it is another cluster's; upload the certificates again", certsSecret)
	}
	return err
}

func wrongFilesMessage(missing map[string]string, first, second string) string {
	if missing[first] != "" && missing[second] != "" {
		return first + " and " + second + " in Secret " + certsSecret + " are wrong: upload the certificates again"
	}
	if missing[first] == "" {
		first, second = second, first
	}
	return first + " in Secret " + certsSecret + " does not fit " + second + " on this host: remove that file, or upload the certificates again"
}

// checkEtcdClient checks the files for an external etcd before they're written. The Secret may hold something else under their
// names, such as a key under the name of a certificate, which everyone may read.
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

func writeDownloaded(env *step.Env, missing map[string]string, files map[string][]byte) error {
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
		f := ownership.File{Path: path, Data: files[key], Mode: mode, Secret: strings.HasSuffix(key, ".key") || key == manifests.SharedEncryption}
		if _, err := f.Write(env.Host); err != nil {
			return err
		}
	}
	return nil
}

// checkShared checks the shared files, wherever they come from, against the certificate table: this node must not generate any of
// them.
func checkShared(env *step.Env) error {
	for _, spec := range certs.Specs(env.Config) {
		if !spec.IsCA() {
			continue
		}
		store := env.PKI()
		cert, key, err := store.Read(spec)
		if err != nil {
			return err
		}
		if err := store.Check(spec, cert, key); err != nil {
			return err
		}
		list, err := certs.ParseCerts(cert)
		if err == nil && spec.Name == certs.CA && !thisnode.SharesCA(list, env.Config) {
			return errors.Errorf("%s is of another cluster; reset this host first, or move it away", store.Files(spec)[0])
		}
	}
	return env.PKI().EnsureServiceAccountKeys(nil)
}
