// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"crypto/tls"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	apiServer         = manifests.APIServerName
	controllerManager = manifests.ControllerManagerName
	scheduler         = manifests.SchedulerName
	etcd              = manifests.EtcdName
)

// controlPlaneRows are the flags of the API server, the controller manager and the scheduler.
func controlPlaneRows() []row {
	loopback := func(f flags) bool {
		ip, err := netip.ParseAddr(f.last("bind-address"))
		return err == nil && ip.IsLoopback()
	}
	return append(apiServerRows(),
		check("1.3.1", controllerManager, "at least 1", []string{"terminated-pod-gc-threshold"}, func(f flags) bool {
			return atLeast(f.last("terminated-pod-gc-threshold"), 1)
		}),
		is("1.3.2", controllerManager, "profiling", false, true),
		is("1.3.3", controllerManager, "use-service-account-credentials", true, false),
		set("1.3.4", controllerManager, "service-account-private-key-file"),
		set("1.3.5", controllerManager, "root-ca-file"),
		check("1.3.6", controllerManager, "RotateKubeletServerCertificate not off", []string{"feature-gates"}, func(f flags) bool {
			return !slices.ContainsFunc(f.list("feature-gates"), func(gate string) bool {
				name, value, _ := strings.Cut(gate, "=")
				return strings.TrimSpace(name) == rotateServer && !isBool(strings.TrimSpace(value), true)
			})
		}),
		check("1.3.7", controllerManager, "a loopback address", []string{"bind-address"}, loopback),
		is("1.4.1", scheduler, "profiling", false, true, "config"),
		check("1.4.2", scheduler, "a loopback address", []string{"bind-address"}, loopback, "config"),
	)
}

const rotateServer = "RotateKubeletServerCertificate"

// apiServerRows are the API server's flags.
func apiServerRows() []row {
	number := func(id, flag string, least int) row {
		return check(id, apiServer, "at least "+strconv.Itoa(least), []string{flag}, func(f flags) bool { return atLeast(f.last(flag), least) })
	}
	return append(accessRows(),
		is("1.2.15", apiServer, "profiling", false, true),
		set("1.2.16", apiServer, "audit-log-path"),
		number("1.2.17", "audit-log-maxage", 30),
		number("1.2.18", "audit-log-maxbackup", 10),
		number("1.2.19", "audit-log-maxsize", 100),
		is("1.2.21", apiServer, "service-account-lookup", true, true),
		set("1.2.22", apiServer, "service-account-key-file"),
		set("1.2.23", apiServer, "etcd-certfile", "etcd-keyfile"),
		set("1.2.24", apiServer, "tls-cert-file", "tls-private-key-file"),
		set("1.2.25", apiServer, "client-ca-file"),
		set("1.2.26", apiServer, "etcd-cafile"),
		check("1.2.29", apiServer, "strong suites", []string{"tls-cipher-suites"}, func(f flags) bool { return areStrong(f.list("tls-cipher-suites")) }),
		is("1.2.30", apiServer, "service-account-extend-token-expiration", false, true),
		set("3.2.1", apiServer, "audit-policy-file"),
	)
}

// accessRows say who gets in, and what's admitted.
func accessRows() []row {
	mode := func(id, want string, ok func(modes []string) bool) row {
		const flag = "authorization-mode"
		return check(id, apiServer, want, []string{flag}, func(f flags) bool { return ok(f.list(flag)) }, "authorization-config")
	}
	has := func(name string) func([]string) bool {
		return func(list []string) bool { return slices.Contains(list, name) }
	}
	const enabled, disabled = "enable-admission-plugins", "disable-admission-plugins"
	plugin := func(id, name string, byDefault bool) row {
		return check(id, apiServer, name+" on", []string{enabled, disabled}, func(f flags) bool {
			return (byDefault || slices.Contains(f.list(enabled), name)) && !slices.Contains(f.list(disabled), name)
		})
	}
	return []row{
		{"1.2.1", apiServer + " --anonymous-auth --authentication-config", "off, or only for named paths", anonymous},
		check("1.2.2", apiServer, "not set", []string{"token-auth-file"}, func(f flags) bool { return f["token-auth-file"] == nil }),
		plugin("1.2.3", "DenyServiceExternalIPs", false),
		set("1.2.4", apiServer, "kubelet-client-certificate", "kubelet-client-key"),
		set("1.2.5", apiServer, "kubelet-certificate-authority"),
		mode("1.2.6", "without AlwaysAllow", func(modes []string) bool { return len(modes) > 0 && !slices.Contains(modes, "AlwaysAllow") }),
		mode("1.2.7", "with Node", has("Node")),
		mode("1.2.8", "with RBAC", has("RBAC")),
		plugin("1.2.9", "EventRateLimit", false),
		check("1.2.10", apiServer, "AlwaysAdmit off", []string{enabled}, func(f flags) bool { return !slices.Contains(f.list(enabled), "AlwaysAdmit") }),
		plugin("1.2.12", "ServiceAccount", true),
		plugin("1.2.13", "NamespaceLifecycle", true),
		plugin("1.2.14", "NodeRestriction", false),
	}
}

// areStrong accepts the suites Go offers by default.
func areStrong(suites []string) bool {
	strong := map[string]bool{}
	for _, s := range tls.CipherSuites() {
		strong[s.Name] = true
		strong[strings.TrimSuffix(s.Name, "_SHA256")] = strings.Contains(s.Name, "CHACHA20") || strong[strings.TrimSuffix(s.Name, "_SHA256")]
	}
	return len(suites) > 0 && !slices.ContainsFunc(suites, func(s string) bool { return !strong[s] })
}

// anonymous looks into the file of --authentication-config, too.
func anonymous(o *observation) answer {
	f, known := o.flagsOf(apiServer)
	if !known {
		return unknown("cannot read the command line in " + o.manifest(apiServer))
	}
	file := f.last("authentication-config")
	if file == "" {
		return verdict(isBool(f.last("anonymous-auth"), false), "--anonymous-auth: "+f.shown("anonymous-auth"))
	}
	onHost, _ := thisnode.OnHost(o.pods[apiServer], file)
	data, err := o.host.ReadFile(onHost)
	if err != nil {
		return unknown("cannot read " + file + " on this host")
	}
	var c struct {
		Anonymous *struct {
			Enabled    bool
			Conditions []struct{ Path string }
		}
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return unknown(onHost + " is no YAML")
	}
	switch {
	case c.Anonymous == nil: // the flag decides, which the API server refuses only beside this field
		return verdict(isBool(f.last("anonymous-auth"), false), "--anonymous-auth: "+f.shown("anonymous-auth"))
	case !c.Anonymous.Enabled:
		return answer{Pass, onHost + ": off"}
	}
	var paths []string
	for _, cond := range c.Anonymous.Conditions {
		paths = append(paths, cond.Path)
	}
	return verdict(len(paths) > 0, onHost+": on for "+strings.Join(paths, " "))
}

// etcdRows are the flags of a local etcd.
func etcdRows() []row {
	rows := []row{
		set("2.1", etcd, "cert-file", "key-file"),
		is("2.2", etcd, "client-cert-auth", true, false),
		is("2.3", etcd, "auto-tls", false, false),
		set("2.4", etcd, "peer-cert-file", "peer-key-file"),
		is("2.5", etcd, "peer-client-cert-auth", true, false),
		is("2.6", etcd, "peer-auto-tls", false, false),
	}
	for i, r := range rows {
		rows[i].look = func(o *observation) answer {
			if f, known := o.flagsOf(etcd); known && f["config-file"] != nil { // etcd ignores its flags then
				return unknown("--config-file names a file with such settings: " + f.last("config-file"))
			}
			return r.look(o)
		}
	}
	return rows
}
