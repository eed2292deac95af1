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
			return r.checkEtcdCluster(env)
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

// checkEtcdCluster fails if this host's etcd is of none of the clusters that the backup records: several clusters may have one
// CA. A restore from this backup has made a new one.
func (r *Rollback) checkEtcdCluster(env *Env) error {
	if len(r.Backup.EtcdClusters) == 0 || r.Progress.Aside != "" {
		return nil
	}
	notChecked := func(why any) error {
		env.UI.Warn(fmt.Sprintf("not checked: whether the backup in %s is of this etcd cluster (%s): %v", backupRoot(env), strings.Join(r.Backup.EtcdClusters, ", "), why),
			"if this host has been in another cluster, look at the files there first")
		return nil
	}
	if !env.Config.ControlPlane {
		return notChecked("this node has no etcd")
	}
	now, err := readEtcdData(env)
	switch {
	case err != nil: // damaged data is a reason to go back
		return notChecked(err)
	case now.log == "":
		return notChecked("etcd has no data on this host")
	}
	return sameEtcdCluster(now, "the backup in "+backupRoot(env), r.Backup.EtcdClusters, r.Backup.EtcdRecords)
}

// sameEtcdCluster fails if the data of this host's etcd is of none of the recorded clusters. records are all files of the backup with
// such a record: if only some were changed, they would count as two upgrades.
func sameEtcdCluster(now etcdData, what string, recorded, records []string) error {
	id := etcdID(now.Cluster)
	if slices.Contains(recorded, id) {
		return nil
	}
	return fault.New(fmt.Sprintf("%s is of etcd cluster %s, and the data in %s is of cluster %s", what, strings.Join(recorded, ", "), now.log, id),
		fmt.Sprintf("remove the backups of the other cluster; if it is this one, and its data was restored from a snapshot since, set etcdCluster: %q in all of these: %s", id, strings.Join(records, ", ")))
}

// sayEarlier says that the backup doesn't go back as far as it may seem.
func (r *Rollback) sayEarlier(env *Env) {
	if r.Backup.Earlier.IsZero() {
		return
	}
	began := r.Backup.Began.Format(shownTime)
	env.UI.Warn(fmt.Sprintf("this rollback goes back to %s only. An earlier release also upgraded this node to %s, at %s; it seems to have finished, but kept no record",
		began, r.Backup.To, r.Backup.Earlier.Format(shownTime)),
		fmt.Sprintf("if both are one upgrade, finish this rollback, move the directories there since %s out of %s, and run the command again", began, backupRoot(env)))
}
