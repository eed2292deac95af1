// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"crypto/x509"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EtcdID formats an ID as etcd and its tools do.
func EtcdID(id uint64) string { return strconv.FormatUint(id, 16) }

func MemberIn(manifest []byte) (manifests.LocalMember, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return manifests.LocalMember{}, errors.WithStack(err)
	}
	member, found := manifests.ReadEtcd(&pod)
	if !found {
		return member, errors.New("it does not say which member of etcd it is")
	}
	return member, nil
}

// AuthoritiesHere returns the CAs of this host's cluster, and their file. A worker has them in its kubelet's kubeconfig file.
func AuthoritiesHere(env *step.Env) (list []*x509.Certificate, path string, err error) {
	path = thisnode.KubeletConf(env.Config)
	if !env.Config.ControlPlane {
		conf, err := thisnode.ReadKubeletFile(env.Host, path)
		if err == nil {
			return conf.Trusted, path, nil
		}
	}
	path = filepath.Join(env.Config.Paths.PKI, "ca.crt")
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return nil, path, err
	}
	list, err = certs.ParseCerts(data)
	return list, path, errors.Wrap(err, path)
}

// ClusterPins returns the CAs' hashes, as a backup records them.
func ClusterPins(list []*x509.Certificate) string {
	var pins []string
	for _, ca := range list {
		pins = append(pins, certs.PublicKeyPin(ca))
	}
	return strings.Join(pins, ",")
}
