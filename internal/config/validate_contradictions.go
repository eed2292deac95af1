// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	kubelet "k8s.io/kubelet/pkg/apis"
)

// checkContradictions looks for flags in extraArgs that contradict what a new cluster is built on. They are faults where no
// cluster can come of it, and warnings where one might. A cluster that exists has its own ways.
func (d *documents) checkContradictions(existing bool) {
	fails := d.faultf
	if existing {
		fails = d.warnf
	}
	d.checkAuthorization(fails)
	d.checkAdmission()
	d.checkAnonymous(fails)
	d.checkServing(fails)
	d.checkControllerManagerNetworks()
	d.checkEtcdArgs(fails)
	d.checkAmbiguousEndpoint(fails)
}

// reporter is faultf or warnf.
type reporter func(kind, path, format string, args ...any)

const apiServerArgs = "apiServer.extraArgs"

// argAt returns a flag's last value and the field that sets it.
func argAt(at string, args []Arg, name string) (value, field string, given bool) {
	for i, a := range args {
		if a.Name == name {
			value, field, given = a.Value, fmt.Sprintf("%s[%d].value", at, i), true
		}
	}
	return value, field, given
}

// apiServerList returns the values of a flag that is a list: one that repeats adds to it.
func (d *documents) apiServerList(name string) (values []string, field string, given bool) {
	_, field, given = d.apiServerArg(name)
	for _, a := range d.cluster.APIServer.ExtraArgs {
		if a.Name == name {
			values = append(values, strings.Split(a.Value, ",")...)
		}
	}
	return values, field, given
}

func (d *documents) apiServerArg(name string) (value, field string, given bool) {
	return argAt(apiServerArgs, d.cluster.APIServer.ExtraArgs, name)
}

// checkAuthorization: https://kubernetes.io/docs/reference/access-authn-authz/authorization/
func (d *documents) checkAuthorization(fails reporter) {
	modes, field, given := d.apiServerList("authorization-mode")
	if !given {
		return
	}
	if _, _, file := d.apiServerArg("authorization-config"); file {
		fails(kindCluster, field, "the API server does not start with both authorization-mode and authorization-config")
		return
	}
	value := strings.Join(modes, ",")
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(modes, name) })
	}
	if has("AlwaysAllow") {
		d.warnf(kindCluster, field, "AlwaysAllow gives every user all rights")
		return
	}
	report := fails
	if has("Webhook", "ABAC") { // they may give these rights
		report = d.warnf
	}
	if !has("Node") {
		report(kindCluster, field, "%s lacks Node, so kubelets have no right to register their nodes; Node,RBAC is the default", printable(value))
	}
	if !has("RBAC") {
		report(kindCluster, field, "%s lacks RBAC, so the controller manager, the scheduler and the administrator have no rights; Node,RBAC is the default", printable(value))
	}
}

func (d *documents) checkAdmission() {
	const plugin, effect = "NodeRestriction", "a kubelet (or an attacker who takes over its node) may then change other nodes and their Pods"
	if plugins, field, given := d.apiServerList("enable-admission-plugins"); given && !slices.Contains(plugins, plugin) {
		d.warnf(kindCluster, field, "%s replaces the default %s and lacks it; %s", printable(strings.Join(plugins, ",")), plugin, effect)
	}
	if plugins, field, given := d.apiServerList("disable-admission-plugins"); given && slices.Contains(plugins, plugin) {
		d.warnf(kindCluster, field, "switches off %s; %s", plugin, effect)
	}
}

// checkAnonymous accepts patches: they may give the probes a token. What an AuthenticationConfiguration says, preflight reads.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-requests
func (d *documents) checkAnonymous(fails reporter) {
	value, field, given := d.apiServerArg("anonymous-auth")
	if on, err := strconv.ParseBool(value); !given || err != nil || on {
		return
	}
	report := fails
	if d.init != nil && d.init.Patches != nil && d.init.Patches.Directory != "" {
		report = d.warnf
	}
	report(kindCluster, field, "without anonymous requests, the API server's probes fail, so the kubelet kills it, and no node can find the cluster by a token; "+
		"instead, limit them to /livez, /readyz and cluster-info in an AuthenticationConfiguration (authentication-config): "+
		"https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-requests")
}

// checkServing compares where the API server is told to be with where the cluster looks for it.
func (d *documents) checkServing(fails reporter) {
	port := d.init.LocalAPIEndpoint.BindPort
	if value, field, given := d.apiServerArg("secure-port"); given && value != strconv.Itoa(int(port)) {
		fails(kindCluster, field, "%s is not localAPIEndpoint.bindPort, %d, where kubeconfigs and probes look for the API server; set the port there",
			printable(value), port)
	}
	address := d.init.LocalAPIEndpoint.AdvertiseAddress
	if value, field, given := d.apiServerArg("advertise-address"); given && value != address {
		d.warnf(kindCluster, field, "%s is not localAPIEndpoint.advertiseAddress, %s; Pods will look for the API server there", printable(value), printable(address))
	}
	value, field, given := d.apiServerArg("service-cluster-ip-range")
	asked, services := prefixes(value), prefixes(d.cluster.Networking.ServiceSubnet)
	if !given || len(services) == 0 || slices.Equal(asked, services) {
		return
	}
	report, effect := reporter(d.warnf), "the API server and the rest of the cluster will not agree on the addresses of Services"
	if len(asked) == 0 || asked[0] != services[0] {
		report, effect = fails, "the certificate of the API server and the cluster's DNS have addresses of that network"
	}
	report(kindCluster, field, "%s is not networking.serviceSubnet, %s; %s; set the network there", printable(value), printable(d.cluster.Networking.ServiceSubnet), effect)
}

func (d *documents) checkControllerManagerNetworks() {
	n := d.cluster.Networking
	for _, f := range []struct{ flag, field, text string }{
		{"cluster-cidr", "networking.podSubnet", n.PodSubnet}, {"service-cluster-ip-range", "networking.serviceSubnet", n.ServiceSubnet},
	} {
		value, field, given := argAt("controllerManager.extraArgs", d.cluster.ControllerManager.ExtraArgs, f.flag)
		if given && f.text != "" && !slices.Equal(prefixes(value), prefixes(f.text)) {
			d.warnf(kindCluster, field, "%s is not %s, %s, which the other components use", printable(value), f.field, printable(f.text))
		}
	}
}

func (d *documents) checkEtcdArgs(fails reporter) {
	local := d.cluster.Etcd.Local
	if local == nil {
		return
	}
	const at = "etcd.local.extraArgs"
	node := d.init.NodeRegistration.Name
	if value, field, given := argAt(at, local.ExtraArgs, "name"); given && value != node {
		report, effect := fails, "etcd does not start with a name that is not in initial-cluster"
		if _, _, own := argAt(at, local.ExtraArgs, "initial-cluster"); own {
			report, effect = d.warnf, "each member needs a name of its own, and other control planes get the same extraArgs"
		}
		report(kindCluster, field, "%s is not the node's name, %s; %s", printable(value), printable(node), effect)
	}
	value, field, given := argAt(at, local.ExtraArgs, "data-dir")
	switch dir, mounted := path.Clean(value), path.Clean(local.DataDir); {
	case !given || dir == mounted:
	case strings.HasPrefix(dir, mounted+"/"):
		d.warnf(kindCluster, field, "%s is not etcd.local.dataDir, %s, where snapshots, upgrades and reset look for the data", printable(value), printable(mounted))
	default:
		fails(kindCluster, field, "%s is not in etcd.local.dataDir, %s, so the data would be lost with etcd's container; set the directory there",
			printable(value), printable(mounted))
	}
}

// checkAmbiguousEndpoint is for an IPv6 address without brackets whose last group looks like a port.
func (d *documents) checkAmbiguousEndpoint(fails reporter) {
	whole := d.cluster.ControlPlaneEndpoint
	addr, err := netip.ParseAddr(whole)
	if err != nil || !addr.Is6() {
		return
	}
	i := strings.LastIndexByte(whole, ':')
	_, partErr := netip.ParseAddr(whole[:i])
	port, portErr := strconv.ParseUint(whole[i+1:], 10, 16)
	if partErr != nil || portErr != nil || port < 443 {
		return
	}
	report, bind := reporter(d.warnf), d.init.LocalAPIEndpoint.BindPort
	if int32(port) == bind {
		report = fails
	}
	report(kindCluster, "controlPlaneEndpoint", "%s is an IPv6 address without a port; write [%s]:%d if %d is the port, or [%s]:%d if it is part of the address",
		whole, whole[:i], port, port, whole, bind)
}

// checkKubeletArgs looks for flags with which a kubelet does not start, or registers another node. name is the node's.
func (d *documents) checkKubeletArgs(kind, at, name string, args []Arg) {
	if value, field, given := argAt(at, args, "hostname-override"); given && strings.ToLower(strings.TrimSpace(value)) != name {
		report := d.faultf
		if kind == kindJoin && d.join.ControlPlane == nil { // the kubelet of a worker chooses the name in its certificate
			report = d.warnf
		}
		report(kind, field, "%s is not the node's name, %s; set the name with nodeRegistration.name (--node-name) instead", printable(value), printable(name))
	}
	value, field, given := argAt(at, args, "node-labels")
	if !given {
		return
	}
	for label := range strings.SplitSeq(value, ",") {
		key, _, _ := strings.Cut(strings.TrimSpace(label), "=")
		if domain, _, qualified := strings.Cut(key, "/"); qualified && ofKubernetes(domain) && !kubelet.IsKubeletLabel(key) {
			d.faultf(kind, field, "a kubelet does not start with the label %s: in kubernetes.io and k8s.io it may only set %s, and those in %s; "+
				"set it with `kubectl label node` once the node is there", printable(key), strings.Join(kubelet.KubeletLabels(), ", "),
				strings.Join(kubelet.KubeletLabelNamespaces(), " and "))
		}
	}
}

// ofKubernetes reports whether labels of a domain are Kubernetes' own:
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
func ofKubernetes(domain string) bool {
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool { return domain == own || strings.HasSuffix(domain, "."+own) })
}
