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
)

// checkContradictions finds flags in extraArgs that contradict a new cluster's foundations. They're faults if no cluster can come
// up with them, and warnings if some might. An existing cluster has its own ways.
func (d *documents) checkContradictions(existing bool) {
	server, etcd := d.judge(existing, "control-plane/apiserver"), d.judge(existing, "etcd/local")
	d.checkAuthorization(server)
	d.checkAdmission()
	d.checkAnonymous(server)
	d.checkServing(server)
	d.checkServiceRange(server)
	d.checkControllerManagerNetworks()
	d.checkEtcdName(etcd)
	d.checkEtcdDirectory(etcd)
	d.checkAmbiguousEndpoint(existing)
}

// judge returns how to report flags that break a phase's static Pod: as faults, unless patches change it or the phase is skipped.
func (d *documents) judge(existing bool, phase string) reporter {
	patched := d.init.Patches != nil && d.init.Patches.Directory != ""
	if existing || patched || skips(d.init.SkipPhases, phase) {
		return d.warnf
	}
	return d.faultf
}

// skips reports whether a phase is skipped, by its own name or its parent's.
func skips(skipped []string, phase string) bool {
	return slices.ContainsFunc(skipped, func(s string) bool { return phase == s || strings.HasPrefix(phase, s+"/") })
}

// mayFindData reports whether a new cluster may find earlier data in etcd, for example when it's restored from a backup.
func (d *documents) mayFindData() bool {
	return d.cluster.Etcd.External != nil || slices.ContainsFunc(lowered(d.init.NodeRegistration.IgnorePreflightErrors), func(name string) bool {
		return name == "all" || strings.HasPrefix(name, "diravailable--")
	})
}

// reporter is faultf or warnf.
type reporter func(kind, path, format string, args ...any)

const apiServerArgs = "apiServer.extraArgs"

// argAt returns a flag's last value and the field that sets it.
func argAt(at string, args []Arg, name string) (value, field string, given bool) {
	for i, a := range args {
		if a.Is(name) {
			value, field, given = a.Value, fmt.Sprintf("%s[%d].value", at, i), true
		}
	}
	return value, field, given
}

// apiServerList returns the values of a list flag: repeating it adds to the list.
func (d *documents) apiServerList(name string) (values []string, field string, given bool) {
	_, field, given = d.apiServerArg(name)
	for _, a := range d.cluster.APIServer.ExtraArgs {
		if a.Is(name) {
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
	if has("Webhook", "ABAC") || d.mayFindData() { // they, or an earlier cluster's objects, may give these rights
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

// checkAnonymous leaves AuthenticationConfigurations to preflight, which reads them.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-requests
func (d *documents) checkAnonymous(fails reporter) {
	value, field, given := d.apiServerArg("anonymous-auth")
	if on, err := strconv.ParseBool(value); !given || err != nil || on {
		return
	}
	fails(kindCluster, field, "without anonymous requests, the API server's probes fail, so the kubelet kills it, and no node can find the cluster by a token; "+
		"instead, limit them to /livez, /readyz and cluster-info in an AuthenticationConfiguration (authentication-config): "+
		"https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-requests")
}

// checkServing compares where the API server is told to listen with where the cluster looks for it.
func (d *documents) checkServing(fails reporter) {
	port := int64(d.init.LocalAPIEndpoint.BindPort)
	if value, field, given := d.apiServerArg("secure-port"); given {
		if number, err := strconv.ParseInt(value, 0, 64); err != nil || number != port { // as the API server reads it
			fails(kindCluster, field, "%s is not localAPIEndpoint.bindPort, %d, where kubeconfigs and probes look for the API server; set the port there",
				printable(value), port)
		}
	}
	address := d.init.LocalAPIEndpoint.AdvertiseAddress
	if value, field, given := d.apiServerArg("advertise-address"); given && value != address {
		d.warnf(kindCluster, field, "%s is not localAPIEndpoint.advertiseAddress, %s; Pods will look for the API server there", printable(value), printable(address))
	}
}

// checkServiceRange compares the API server's range for Services with the cluster's. Different ranges may work if the Service
// kubernetes gets an address in the API server's certificate, and the range contains the address of the cluster's DNS.
func (d *documents) checkServiceRange(fails reporter) {
	value, field, given := d.apiServerArg("service-cluster-ip-range")
	asked, services := prefixes(value), prefixes(d.cluster.Networking.ServiceSubnet)
	if !given || len(services) == 0 || slices.Equal(asked, services) {
		return
	}
	report, effect := reporter(d.warnf), "the API server and the rest of the cluster will not agree on the addresses of Services"
	if len(asked) == 0 {
		report, effect = fails, "it is not a network, so the API server does not start"
	} else if api := nthAddress(asked[0], 1); api != nthAddress(services[0], 1) && !d.certified(api) {
		report, effect = fails, fmt.Sprintf("the Service kubernetes gets the address %s, which is not in the certificate of the API server", api)
	} else if dns := nthAddress(services[0], 10); !contains(asked, dns) && !skips(d.init.SkipPhases, "addon/coredns") {
		report, effect = fails, fmt.Sprintf("the cluster's DNS has the address %s, which is not in that network", dns)
	}
	report(kindCluster, field, "%s is not networking.serviceSubnet, %s; %s; set the network there", printable(value), printable(d.cluster.Networking.ServiceSubnet), effect)
}

// certified reports whether the user adds an address to the API server's certificate.
func (d *documents) certified(addr netip.Addr) bool {
	return slices.ContainsFunc(d.cluster.APIServer.CertSANs, func(name string) bool {
		other, err := netip.ParseAddr(name)
		return err == nil && other == addr
	})
}

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func (d *documents) checkControllerManagerNetworks() {
	n := d.cluster.Networking
	for _, f := range []struct{ flag, field, text string }{
		{"cluster-cidr", "networking.podSubnet", n.PodSubnet}, {"service-cluster-ip-range", "networking.serviceSubnet", n.ServiceSubnet},
	} {
		value, field, given := argAt(controllerManagerArgs, d.cluster.ControllerManager.ExtraArgs, f.flag)
		if given && f.text != "" && !slices.Equal(prefixes(value), prefixes(f.text)) {
			d.warnf(kindCluster, field, "%s is not %s, %s, which the other components use", printable(value), f.field, printable(f.text))
		}
	}
}

const etcdArgs = "etcd.local.extraArgs"

// etcdArg returns nothing beside a configuration file: etcd then ignores all flags.
func (d *documents) etcdArg(name string) (value, field string, given bool) {
	local := d.cluster.Etcd.Local
	if local == nil {
		return "", "", false
	}
	if _, _, file := argAt(etcdArgs, local.ExtraArgs, "config-file"); file {
		return "", "", false
	}
	return argAt(etcdArgs, local.ExtraArgs, name)
}

func (d *documents) checkEtcdName(fails reporter) {
	node := d.init.NodeRegistration.Name
	value, field, given := d.etcdArg("name")
	if !given || value == node {
		return
	}
	effect := "etcd does not start with a name that is not in initial-cluster"
	if _, _, own := d.etcdArg("initial-cluster"); own {
		fails, effect = d.warnf, "each member needs a name of its own, and other control planes get the same extraArgs"
	} else if d.unnamed || d.mayFindData() { // with data, it doesn't look there
		fails = d.warnf
	}
	fails(kindCluster, field, "%s is not the node's name, %s; %s", printable(value), printable(node), effect)
}

// checkEtcdDirectory finds a data directory that isn't mounted from the host. etcd's certificates are mounted, too.
func (d *documents) checkEtcdDirectory(fails reporter) {
	value, field, given := d.etcdArg("data-dir")
	if !given {
		return
	}
	dir, mounted, certs := path.Clean(value), path.Clean(d.cluster.Etcd.Local.DataDir), path.Join(d.cluster.CertificatesDir, "etcd")
	switch below := func(parent string) bool { return strings.HasPrefix(dir+"/", parent+"/") }; {
	case dir == mounted:
	case below(mounted), below(certs):
		d.warnf(kindCluster, field, "%s is not etcd.local.dataDir, %s, where snapshots, upgrades and reset look for the data", printable(value), printable(mounted))
	default:
		fails(kindCluster, field, "%s is not in etcd.local.dataDir, %s, so the data would be lost with etcd's container; set the directory there",
			printable(value), printable(mounted))
	}
}

// checkAmbiguousEndpoint reports an IPv6 address whose last group looks like a port, without brackets, unless it's named elsewhere.
func (d *documents) checkAmbiguousEndpoint(existing bool) {
	whole := d.cluster.ControlPlaneEndpoint
	addr, err := netip.ParseAddr(whole)
	own, ownErr := netip.ParseAddr(d.init.LocalAPIEndpoint.AdvertiseAddress)
	if err != nil || !addr.Is6() || ownErr == nil && own == addr || d.certified(addr) {
		return
	}
	i := strings.LastIndexByte(whole, ':')
	_, partErr := netip.ParseAddr(whole[:i])
	port, portErr := strconv.ParseUint(whole[i+1:], 10, 16)
	if partErr != nil || portErr != nil || port < 443 {
		return
	}
	report, bind := reporter(d.warnf), d.init.LocalAPIEndpoint.BindPort
	if !existing && int32(port) == bind {
		report = d.faultf
	}
	report(kindCluster, "controlPlaneEndpoint", "%s is an IPv6 address without a port; write [%s]:%d if %d is the port, or [%s]:%d if it is part of the address",
		whole, whole[:i], port, port, whole, bind)
}
