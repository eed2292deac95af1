// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// kubeletRow is a setting of the kubelet. Its flag, if anyone sets it, overrides its field.
type kubeletRow struct {
	id, field, flag, want string
	value                 func(*kubelet.KubeletConfiguration) string
	ok                    func(value string) bool
}

func kubeletRows() []row {
	rows := []row{proxyRow()}
	for _, r := range kubeletSettings() {
		rows = append(rows, row{r.id, "kubelet " + r.field, r.want, r.look})
	}
	return rows
}

// kubeletSettings have each field's default where the file leaves it out.
func kubeletSettings() []kubeletRow {
	type settings = kubelet.KubeletConfiguration
	isTrue := func(v string) bool { return isBool(v, true) }
	positive := func(v string) bool { return atLeast(v, 1) }
	return []kubeletRow{
		{"4.2.1", "authentication.anonymous.enabled", "anonymous-auth", "false",
			func(k *settings) string { return truth(k.Authentication.Anonymous.Enabled, false) }, func(v string) bool { return isBool(v, false) }},
		{"4.2.2", "authorization.mode", "authorization-mode", "not AlwaysAllow",
			func(k *settings) string { return cmp.Or(string(k.Authorization.Mode), "Webhook") }, func(v string) bool { return v == "Webhook" }},
		{"4.2.3", "authentication.x509.clientCAFile", "client-ca-file", "set",
			func(k *settings) string { return k.Authentication.X509.ClientCAFile }, func(v string) bool { return v != "" }},
		{"4.2.4", "readOnlyPort", "read-only-port", "0",
			func(k *settings) string { return strconv.Itoa(int(k.ReadOnlyPort)) }, func(v string) bool { return v == "0" }},
		{"4.2.5", "streamingConnectionIdleTimeout", "streaming-connection-idle-timeout", "more than 0",
			func(k *settings) string {
				return cmp.Or(k.StreamingConnectionIdleTimeout.Duration, 4*time.Hour).String()
			},
			func(v string) bool { d, err := time.ParseDuration(v); return err == nil && d > 0 }},
		{"4.2.6", "makeIPTablesUtilChains", "make-iptables-util-chains", "true",
			func(k *settings) string { return truth(k.MakeIPTablesUtilChains, true) }, isTrue},
		{"4.2.8", "eventRecordQPS", "event-qps", "at least 1",
			func(k *settings) string { return strconv.Itoa(int(*cmp.Or(k.EventRecordQPS, new(int32(50))))) }, positive},
		{"4.2.10", "rotateCertificates", "rotate-certificates", "true",
			func(k *settings) string { return strconv.FormatBool(k.RotateCertificates) }, isTrue},
		{"4.2.12", "tlsCipherSuites", "tls-cipher-suites", "strong suites",
			func(k *settings) string { return strings.Join(k.TLSCipherSuites, ",") },
			func(v string) bool { return areAuthenticated(strings.Split(v, ",")) }},
		{"4.2.13", "podPidsLimit", "pod-max-pids", "at least 1",
			func(k *settings) string { return strconv.FormatInt(*cmp.Or(k.PodPidsLimit, new(int64(-1))), 10) }, positive},
		{"4.2.14", "seccompDefault", "seccomp-default", "true",
			func(k *settings) string { return truth(k.SeccompDefault, false) }, isTrue},
	}
}

// areAuthenticated accepts strong suites with GCM or ChaCha20: unlike 1.2.29, 4.2.12 lists none with CBC.
func areAuthenticated(suites []string) bool {
	return areStrong(suites) && !slices.ContainsFunc(suites, func(s string) bool { return strings.Contains(s, "_CBC_") })
}

func truth(b *bool, byDefault bool) string {
	if b == nil {
		return strconv.FormatBool(byDefault)
	}
	return strconv.FormatBool(*b)
}

func (r kubeletRow) look(o *observation) answer {
	if why := thisnode.UnseenFlags(o.host, o.machine); why != "" {
		return unknown(why)
	}
	own, isFlag, why := o.kubeletFlag(r.flag)
	if why != "" {
		return unknown(why)
	}
	if isFlag {
		return verdict(r.ok(own), "--"+r.flag+"="+own)
	}
	path := filepath.Join(o.machine.Paths.Kubelet, "config.yaml")
	switch other, given, why := o.kubeletFlag("config"); {
	case why != "":
		return unknown(why)
	case !given:
		return unknown("the files of the kubelet's unit have no --config, so it may not read " + path)
	case other != path:
		return unknown("the kubelet reads " + other + ", not " + path)
	}
	if _, err := o.host.ReadFile(path); err != nil {
		return unknown(fmt.Sprintf("cannot read %s: %v", path, err))
	}
	settings, err := thisnode.KubeletSettings(o.host, o.machine)
	if err != nil {
		return unknown(err.Error())
	}
	value := r.value(settings)
	return verdict(r.ok(value), cmp.Or(value, "not set"))
}

// kubeletFlag returns the value of a flag in the files with the kubelet's flags; why is set if only systemd knows it.
func (o *observation) kubeletFlag(name string) (value string, given bool, why string) {
	for _, f := range thisnode.EffectiveFlags(o.host, o.machine) {
		if f.Name == name {
			value, given = f.Value, true
		}
	}
	if thisnode.NeedsSystemd(value) {
		return "", true, "the value of --" + name + " is in a variable: " + value
	}
	if given && value == "" {
		value = "true"
	}
	return value, given, ""
}

// proxyRow looks at the configuration mounted in kube-proxy's Pod.
func proxyRow() row {
	return row{"4.3.1", "kube-proxy metricsBindAddress", "a loopback address", func(o *observation) answer {
		dir := filepath.Join(o.machine.Paths.Kubelet, "pods")
		pods, err := o.host.ReadDir(dir)
		if err != nil {
			return unknown(fmt.Sprintf("cannot list %s: %v", dir, err))
		}
		var found []string
		for _, pod := range pods {
			path := filepath.Join(dir, pod.Name(), "volumes/kubernetes.io~configmap/kube-proxy/config.conf")
			data, err := o.host.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return unknown(err.Error())
			}
			var c struct{ MetricsBindAddress string }
			if err := yaml.Unmarshal(data, &c); err != nil {
				return unknown(path + " is no YAML")
			}
			found = append(found, cmp.Or(c.MetricsBindAddress, "127.0.0.1:10249"))
		}
		if len(found) == 0 {
			return unknown("no kube-proxy has a configuration in " + dir)
		}
		local := func(at string) bool {
			return strings.HasPrefix(at, "127.") || strings.HasPrefix(at, "[::1]") || strings.HasPrefix(at, "localhost:")
		}
		return verdict(!slices.ContainsFunc(found, func(at string) bool { return !local(at) }), strings.Join(found, ", "))
	}}
}
