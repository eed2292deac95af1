// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/base64"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/step"
)

// authorities are the API server's flags that name the CAs' files, by the CAs' names.
var authorities = []struct{ flag, name string }{
	{"client-ca-file", certs.CA},
	{"etcd-cafile", certs.EtcdCA},
	{"requestheader-client-ca-file", certs.FrontProxyCA},
}

// encryptionFact is part of each text that says why a record lacks the encryption keys.
const encryptionFact = "encryption keys"

// newRecord has the facts of this host and of etcd. Whatever can't be found out doesn't keep a snapshot from being taken.
func newRecord(env *step.Env, o Options, source etcd.Health) snapshots.Record {
	r := snapshots.Record{
		Taken: env.Host.Now().UTC(), Node: env.Config.Name, Slipway: o.Slipway,
		ClusterID: backup.EtcdID(source.Cluster), Member: memberOf(source.Member), Etcd: source.Status.Version,
		Authorities: map[string][]string{},
	}
	unknown := func(what string, err error) {
		if err != nil {
			env.UI.Warnf("the snapshot's record will lack %s: %v", what, err)
			r.Unknown = append(r.Unknown, what+": "+err.Error())
		}
	}
	manifest, err := env.Host.ReadFile(env.Config.Paths.StaticPod(manifests.APIServerName))
	if err == nil {
		r.Kubernetes, err = upgrading.VersionOf(manifest)
	}
	var pod *corev1.Pod
	if err == nil {
		pod, err = manifests.DecodePod(manifest)
	}
	if err != nil {
		unknown("the API server's version, CAs and "+encryptionFact, err)
		return r
	}
	for _, a := range authorities {
		pins, err := pinsIn(env, pod, a.flag)
		unknown(a.name, err)
		if len(pins) > 0 {
			r.Authorities[a.name] = pins
		}
	}
	r.Encryption, err = encryptionIn(env, pod, r)
	unknown("the names of the "+encryptionFact, err)
	return r
}

// readNamed reads the file that a flag of a Pod names; nil without the flag.
func readNamed(env *step.Env, pod *corev1.Pod, flag string) ([]byte, string, error) {
	path := manifests.FlagOf(pod, flag)
	if path == "" {
		return nil, "", nil
	}
	onHost, found := thisnode.OnHost(pod, path)
	if !found {
		return nil, path, errors.Errorf("--%s=%s is not a file of this host", flag, path)
	}
	data, err := env.Host.ReadFile(onHost)
	return data, onHost, err
}

func pinsIn(env *step.Env, pod *corev1.Pod, flag string) (pins []string, err error) {
	data, path, err := readNamed(env, pod, flag)
	if err != nil || data == nil {
		return nil, err
	}
	list, err := certs.ParseCerts(data)
	for _, ca := range list {
		pins = append(pins, certs.PublicKeyPin(ca))
	}
	return pins, errors.Wrap(err, path)
}

// encryptionFile is an EncryptionConfiguration.
type encryptionFile struct {
	Resources []struct {
		Resources []string
		Providers []map[string]*provider // one each, by its kind
	}
}

type provider struct {
	Name string // of a KMS
	Keys []struct{ Name, Secret string }
}

// names returns the provider's keys as KIND:NAME. Only identity has none.
func (p *provider) names(kind string) (names []string) {
	if p != nil && p.Name != "" {
		names = append(names, kind+":"+p.Name)
	}
	if p != nil {
		for _, k := range p.Keys {
			names = append(names, kind+":"+k.Name)
		}
	}
	if len(names) == 0 {
		names = []string{kind}
	}
	return names
}

// fingerprints are those of the provider's keys, for a record.
func (p *provider) fingerprints(kind string, record snapshots.Record, found map[string]string) {
	if p == nil {
		return
	}
	for _, k := range p.Keys {
		key, err := base64.StdEncoding.DecodeString(k.Secret)
		if err != nil {
			key = []byte(k.Secret) // the API server doesn't start with it
		}
		found[kind+":"+k.Name] = record.Fingerprint(key)
	}
}

// encryptionIn returns the keys in an API server's EncryptionConfiguration, with their fingerprints for a record.
func encryptionIn(env *step.Env, pod *corev1.Pod, record snapshots.Record) (list []snapshots.Encryption, err error) {
	data, path, err := readNamed(env, pod, manifests.EncryptionFlag)
	if err != nil || data == nil {
		return nil, err
	}
	var file encryptionFile
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, errors.Errorf("%s is not an EncryptionConfiguration", path) // the error could have a secret
	}
	for _, r := range file.Resources {
		entry := snapshots.Encryption{Resources: r.Resources, Fingerprints: map[string]string{}}
		for _, providers := range r.Providers {
			for kind, p := range providers {
				entry.Keys = append(entry.Keys, p.names(kind)...)
				p.fingerprints(kind, record, entry.Fingerprints)
			}
		}
		list = append(list, entry)
	}
	return list, nil
}
