// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EtcdClusterText is the ID of the cluster that new data was made for, as a journal has it.
func EtcdClusterText(made etcd.Data) string { return fmt.Sprintf("%x", made.Cluster) }

// CheckData fails unless the data in place is of this cluster: it must be the data that was made. A plan makes none, so it has no
// cluster.
func (x EtcdDataReplacement) CheckData(env *step.Env, cluster string) error {
	if cluster == "" {
		return nil
	}
	dir := filepath.Join(x.Data, "wal")
	path, head, err := newestLog(env, dir)
	if err == nil && path == "" {
		err = errors.Errorf("%s has no log of etcd", dir)
	}
	if err != nil {
		return err
	}
	data, err := etcd.ReadData(head)
	if have := EtcdClusterText(data); err == nil && have != cluster {
		remedy := "find out which; `slipway reset` abandons the restore on this new host"
		if x.OldData != "" {
			remedy = "find out which; etcd's data from before is in " + x.OldData + ". `slipway etcd restore` of another snapshot, or of a copy, starts over"
		}
		err = fault.New(fmt.Sprintf("%s has the data of the etcd cluster %s, and the new data is of cluster %s: another program has replaced it", x.Data, have, cluster), remedy)
	}
	return errors.WithMessage(err, dir)
}

// CheckServedCluster fails unless the etcd that answers is of this cluster: it must have started with the data that was made.
func CheckServedCluster(ctx context.Context, env *step.Env, cluster string) error {
	if cluster == "" {
		return nil
	}
	members, err := env.Etcd.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		if have := EtcdClusterText(etcd.Data{Cluster: m.Cluster}); have != cluster {
			return fault.New(fmt.Sprintf("an etcd of cluster %s answers, and the new data is of cluster %s: this host's etcd does not use that data, or a former member runs", have, cluster),
				"see which directory etcd's static Pod names. If it's right, another host's etcd answers: see which has the data that is needed (`slipway etcd status` on each "+
					"control plane), and run `slipway reset --force` on hosts of the other etcd, never on this one while its data is needed; then run this again")
		}
	}
	return nil
}

// CheckServesOwnData fails unless this host's member works, and with the data in place: an etcd that started before that has other
// data, and still needs it.
func CheckServesOwnData(ctx context.Context, env *step.Env) error {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	i, _ := OwnMember(env, etcd.MembersOf(all))
	if i < 0 {
		return errors.Errorf("no member of etcd is this host's: %s", etcd.DescribeHealth(all, ""))
	}
	if all[i].Err != nil {
		return errors.New(etcd.DescribeHealth(all, ""))
	}
	if isAssumed(all) {
		return nil
	}
	data, err := OwnEtcdData(env)
	if err == nil && (data.Member != all[i].ID || data.Cluster != all[i].Cluster) {
		err = errors.Errorf("the etcd that runs is member %x of cluster %x, and the data in place is of member %x of cluster %x", all[i].ID, all[i].Cluster, data.Member, data.Cluster)
	}
	return err
}

// CheckEtcdStartable fails while etcd must not start: a workflow that makes its data was interrupted, and hasn't put it in place.
func CheckEtcdStartable(env *step.Env) error {
	j, err := ReadEtcdJournal(env)
	if err != nil || j.Manifest == "" {
		return host.IgnoreForbidden(err)
	}
	x, err := NewEtcdDataReplacement([]byte(j.Manifest))
	if err != nil {
		return errors.WithMessage(err, manifests.EtcdName)
	}
	x.OldData = j.OldData
	here, err := host.Exists(env.Host, x.Data)
	if err == nil && here {
		err = x.CheckData(env, j.Cluster)
	}
	if err == nil && !here {
		err = j.Unfinished()
	}
	return err
}

// Unfinished is the error of a command that can't run beside the interrupted one.
func (j EtcdJournal) Unfinished() error {
	return thisnode.Interruption{Command: strings.TrimSpace(j.Command + " " + j.From)}
}
