// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

// fixedArg is a component's flag nobody can change on a live cluster.
type fixedArg struct {
	path, name string
	// field is the fixed field the flag would get around; empty for none. The flag may repeat its value.
	field           string
	reason, instead string
}

const (
	serverArgs  = "apiServer.extraArgs"
	managerArgs = "controllerManager.extraArgs"
	etcdArgs    = "etcd.local.extraArgs"
	etcdEnvs    = "etcd.local.extraEnvs"

	reloadArg    = "encryption-provider-config-automatic-reload"
	advertiseArg = "advertise-address"

	noDataReason    = "etcd would start without its data"
	moveData        = "stop the control plane, move the directory, and mount it at the same path"
	nameReason      = "all members of etcd would have the same, and it decides what a member without data joins"
	leaveOut        = "leave it out: Slipway sets it for each member"
	noObjectsReason = "the API server would find none of the cluster's objects, and the kubelets would end their Pods"
	keepStore       = "leave it as it is: the objects don't move with it"
)

// fixedArgs lists the fixed arguments, each with its reason and an alternative. Most do what a fixed field does: the API server or
// etcd would start without the cluster's data, or components would disagree on its networks.
func fixedArgs() []fixedArg {
	return []fixedArg{
		{serverArgs, "encryption-provider-config", "", "objects written on trial could not be read once the change is put back",
			"`slipway encryption enable` takes the steps"},
		{serverArgs, reloadArg, "", "an API server would not load the next key, and `slipway encryption rotate` waits for that",
			"leave it as it is: `slipway encryption enable` sets it"},
		{serverArgs, advertiseArg, "", "all API servers would announce the same address",
			"`slipway reconfigure node --advertise-address` moves a control plane"},
		{serverArgs, "etcd-prefix", "", noObjectsReason, keepStore},
		{serverArgs, "etcd-servers", "", noObjectsReason, keepStore},
		{serverArgs, "etcd-servers-overrides", "", noObjectsReason, keepStore},
		{serverArgs, "service-cluster-ip-range", "networking.serviceSubnet", networkReason, newCluster},
		{managerArgs, "service-cluster-ip-range", "networking.serviceSubnet", networkReason, newCluster},
		{managerArgs, "cluster-cidr", "networking.podSubnet", networkReason, newCluster},
		{managerArgs, "cluster-name", "clusterName", "cloud providers find the cluster's load balancers and routes by it", newCluster},
		{etcdArgs, "data-dir", "etcd.local.dataDir", noDataReason, moveData},
		{etcdArgs, "wal-dir", "", noDataReason, moveData},
		{etcdArgs, "config-file", "", "etcd would ignore all its flags, among them the directory of its data", "give the settings as flags"},
		{etcdArgs, "name", "", nameReason, leaveOut},
		{etcdArgs, "initial-advertise-peer-urls", "", nameReason, leaveOut},
		{etcdArgs, "initial-cluster", "", nameReason, leaveOut},
		{etcdArgs, "initial-cluster-state", "", nameReason, leaveOut},
		{etcdArgs, "initial-cluster-token", "", nameReason, leaveOut},
		{etcdArgs, "force-new-cluster", "", "each member of etcd would go on alone, with data of its own", "`slipway etcd recover` does that safely, on one member"},
		{etcdArgs, "feature-gates", "", "etcd may write data on trial that it can't read once the change is put back",
			"change them with an upgrade, which takes a snapshot first"},
	}
}

// differs returns the changed field in which the flag, or the variable that stands for it, gets another value.
func (a fixedArg) differs(changed Field, present, next *config.ClusterConfiguration) (field string, differs bool) {
	if changed.Source != config.ClusterSource {
		return "", false
	}
	switch {
	case a.name == reloadArg && !present.HasEncryptionFile(): // the file is somebody else's
		return "", false
	case a.name == advertiseArg && len(a.values(next)) == 0: // each API server then announces its own address
		return "", false
	case changed.Path == a.path:
		return a.path, !slices.Equal(a.values(present), a.values(next))
	case a.path == etcdArgs && changed.Path == etcdEnvs:
		return etcdEnvs, !slices.Equal(a.variables(present), a.variables(next))
	}
	return "", false
}

// writtenIn is how a field has the flag.
func (a fixedArg) writtenIn(field string) string {
	if field == etcdEnvs {
		return manifests.EtcdVariable(a.name)
	}
	return "--" + a.name
}

// values are the flag's values in extraArgs, or else the one of its field.
func (a fixedArg) values(c *config.ClusterConfiguration) (values []string) {
	for _, arg := range argsAt(c, a.path) {
		if arg.Is(a.name) {
			values = append(values, arg.Value)
		}
	}
	if values == nil && a.field != "" {
		values = []string{valueOf(c, a.field)}
	}
	return values
}

func (a fixedArg) variables(c *config.ClusterConfiguration) (values []string) {
	if c.Etcd.Local == nil {
		return nil
	}
	for _, e := range c.Etcd.Local.ExtraEnvs {
		if e.Name == manifests.EtcdVariable(a.name) {
			values = append(values, e.String())
		}
	}
	return values
}

func argsAt(c *config.ClusterConfiguration, path string) []config.Arg {
	switch {
	case path == serverArgs:
		return c.APIServer.ExtraArgs
	case path == managerArgs:
		return c.ControllerManager.ExtraArgs
	case c.Etcd.Local != nil:
		return c.Etcd.Local.ExtraArgs
	}
	return nil
}

// valueOf is the value of a fixed field, which a flag may repeat.
func valueOf(c *config.ClusterConfiguration, field string) string {
	switch field {
	case "networking.serviceSubnet":
		return c.Networking.ServiceSubnet
	case "networking.podSubnet":
		return c.Networking.PodSubnet
	case "clusterName":
		return c.ClusterName
	}
	if c.Etcd.Local == nil {
		return ""
	}
	return c.Etcd.Local.DataDir
}
