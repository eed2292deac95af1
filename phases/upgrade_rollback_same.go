// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// authoritiesHere are the CAs of the cluster that this host is in, and the file that has them. Each worker has
// them in its kubelet's kubeconfig file.
func authoritiesHere(env *Env) (list []*x509.Certificate, path string, err error) {
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

// clusterPins are the hashes of the CAs, as a backup records them.
func clusterPins(list []*x509.Certificate) string {
	var pins []string
	for _, ca := range list {
		pins = append(pins, certs.PublicKeyPin(ca))
	}
	return strings.Join(pins, ",")
}

// checkSameCluster fails if the backup is of a cluster that this host is not in now. A host that was reset
// keeps its backups.
func (r *Rollback) checkSameCluster(env *Env) error {
	now, path, err := authoritiesHere(env)
	if err != nil {
		return fault.New(fmt.Sprintf("cannot tell whether the backup in %s is of this cluster: %v", backupRoot(env), err), "put back "+path)
	}
	const remedy = "remove the backups of the other cluster; if this cluster's CA was replaced, copy what you need from them by hand"
	if recorded := strings.Split(r.Backup.CA, ","); r.Backup.CA != "" {
		if slices.ContainsFunc(now, func(ca *x509.Certificate) bool { return slices.Contains(recorded, certs.PublicKeyPin(ca)) }) {
			return nil
		}
		return fault.New(fmt.Sprintf("the backup in %s is of a cluster with the CA %s, and this node's has %s (%s)", backupRoot(env), r.Backup.CA, clusterPins(now), path), remedy)
	}
	if !slices.ContainsFunc(now, func(ca *x509.Certificate) bool { return !ca.NotBefore.After(r.Backup.Began) }) {
		return fault.New(fmt.Sprintf("the backup in %s is of %s, and this cluster's CA in %s is valid only since %s, so it is of another cluster", backupRoot(env),
			r.Backup.Began.Format(shownTime), path, now[0].NotBefore.UTC().Format(shownTime)), remedy)
	}
	env.UI.Warn(fmt.Sprintf("the backup in %s does not say which cluster it is of, because kubeadm or an earlier release made it", backupRoot(env)),
		"if this host has been in another cluster, look at the files there first")
	return r.checkEtcdCluster(env)
}

// checkEtcdCluster fails if this host's etcd is not of the cluster that a backup without a hash records. A
// restore from this backup has made a new one.
func (r *Rollback) checkEtcdCluster(env *Env) error {
	if r.Backup.EtcdCluster == "" || !env.Config.ControlPlane || r.Progress.Aside != "" {
		return nil
	}
	return sameEtcdCluster(env, "the backup in "+backupRoot(env), r.Backup.EtcdCluster)
}

// sameEtcdCluster fails if this host's etcd is not of the recorded cluster.
func sameEtcdCluster(env *Env, what, recorded string) error {
	now, err := readEtcdData(env)
	if err != nil { // damaged data is a reason to go back
		env.UI.Warn(fmt.Sprintf("cannot tell whether etcd's data is of the same etcd cluster as %s: %v", what, err), "a rollback with --restore-etcd keeps it aside")
		return nil
	}
	if now.log == "" {
		return nil
	}
	if id := etcdID(now.Cluster); id != recorded {
		return errors.Errorf("%s is of etcd cluster %s, and the data in %s is of cluster %s", what, recorded, now.log, id)
	}
	return nil
}
