// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// checkSameCluster fails if the backup is of another cluster: a host keeps its backups when it's reset.
func (r *Rollback) checkSameCluster(env *step.Env) error {
	now, path, err := backup.ClusterCAs(env)
	if err != nil {
		return fault.New(fmt.Sprintf("cannot tell whether the backup in %s is of this cluster: %v", node.BackupRoot(env), err), "put back "+path)
	}
	const remedy = "remove the backups of the other cluster; if this cluster's CA was replaced, copy what you need from them by hand"
	if recorded := strings.Split(r.Backup.CA, ","); r.Backup.CA != "" {
		if slices.ContainsFunc(now, func(ca *x509.Certificate) bool { return slices.Contains(recorded, certs.PublicKeyPin(ca)) }) {
			return r.checkEtcdCluster(env)
		}
		return fault.New(fmt.Sprintf("the backup in %s is of a cluster with the CA %s, and this node's has %s (%s)", node.BackupRoot(env), r.Backup.CA, backup.ClusterPins(now), path), remedy)
	}
	if !slices.ContainsFunc(now, func(ca *x509.Certificate) bool { return !ca.NotBefore.After(r.Backup.Began) }) {
		return fault.New(fmt.Sprintf("the backup in %s was made on %s, and this cluster's CA in %s is valid only since %s, so it comes from another cluster", node.BackupRoot(env),
			ui.Time(r.Backup.Began), path, ui.Time(now[0].NotBefore)), remedy)
	}
	env.UI.Warn(fmt.Sprintf("the backup in %s does not say which cluster it is of, because kubeadm or an earlier release made it", node.BackupRoot(env)),
		"if this host has been in another cluster, look at the files there first")
	return r.checkEtcdCluster(env)
}

// checkEtcdCluster fails if the backup doesn't record this host's etcd cluster, as several clusters may share a CA. A restore
// from this backup has changed the cluster's ID.
func (r *Rollback) checkEtcdCluster(env *step.Env) error {
	if len(r.Backup.EtcdClusters) == 0 || r.Progress.OldData != "" {
		return nil
	}
	notChecked := func(why any) error {
		env.UI.Warn(fmt.Sprintf("not checked: whether the backup in %s is of this etcd cluster (%s): %v", node.BackupRoot(env), strings.Join(r.Backup.EtcdClusters, ", "), why),
			"if this host has been in another cluster, look at the files there first")
		return nil
	}
	if !env.Config.ControlPlane {
		return notChecked("this node has no etcd")
	}
	now, err := node.ReadEtcdData(env)
	switch {
	case err != nil: // damaged data is a reason to go back
		return notChecked(err)
	case now.Log == "":
		return notChecked("etcd has no data on this host")
	}
	return sameEtcdCluster(now, "the backup in "+node.BackupRoot(env), r.Backup.EtcdClusters, r.Backup.EtcdRecords)
}

// sameEtcdCluster fails if the data of this host's etcd is of none of the recorded clusters. The remedy names all records: with
// only some changed, they'd count as two upgrades.
func sameEtcdCluster(now node.EtcdData, what string, recorded, records []string) error {
	id := backup.EtcdID(now.Cluster)
	if slices.Contains(recorded, id) {
		return nil
	}
	return fault.New(fmt.Sprintf("%s is of etcd cluster %s, and the data in %s is of cluster %s", what, strings.Join(recorded, ", "), now.Log, id),
		fmt.Sprintf("remove the backups of the other cluster; if it is this one, and its data was restored from a snapshot since, set etcdCluster: %q in all of these: %s", id, strings.Join(records, ", ")))
}

// reportEarlier warns that the backup doesn't go back as far as it may seem.
func (r *Rollback) reportEarlier(env *step.Env) {
	if r.Backup.Earlier.IsZero() {
		return
	}
	began := ui.Time(r.Backup.Began)
	env.UI.Warn(fmt.Sprintf("this rollback goes back to %s only. An earlier release also upgraded this node to %s, at %s; it seems to have finished, but kept no record",
		began, r.Backup.To, ui.Time(r.Backup.Earlier)),
		fmt.Sprintf("if both are one upgrade, finish this rollback, move the directories there since %s out of %s, and run the command again", began, node.BackupRoot(env)))
}
