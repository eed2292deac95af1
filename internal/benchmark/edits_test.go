// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"io/fs"
	"os"
	"strings"
	"testing"
)

// edit is a change of a hardened control plane's files that one item finds.
type edit struct {
	path, old, new string
	mode           fs.FileMode // of path, instead of a change of its content
	owner          uint32      // of path
	link           string      // a link at path, instead of a change of its content
}

// without takes a flag away; withField adds a field of the kubelet.
func without(path, name string) edit {
	return edit{path: path, old: "- --" + name + "=", new: "- --x-" + name + "="}
}
func withField(line string) edit {
	return edit{path: kubeletFile, old: "kind: ", new: line + "\nkind: "}
}

func (e edit) apply(t *testing.T, m machine) {
	t.Helper()
	switch {
	case e.mode != 0:
		if err := os.Chmod(m.Root+e.path, e.mode); err != nil {
			t.Fatal(err)
		}
		return
	case e.link != "":
		if err := os.Symlink(e.link, m.Root+e.path); err != nil {
			t.Fatal(err)
		}
		return
	case e.owner != 0:
		m.owners[e.path] = e.owner
		return
	}
	data, err := m.ReadFile(e.path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(data), e.old, e.new)
	if changed == string(data) {
		t.Fatalf("%s has no %q", e.path, e.old)
	}
	m.put(t, e.path, changed)
}

// added appends a flag to a static Pod's.
func added(path, flag string) edit {
	return edit{path: path, old: "    image: ", new: "    args:\n    - " + flag + "\n    image: "}
}

// failing has edits for each item that passes on a hardened control plane.
func failing() map[string][]edit {
	return map[string][]edit{
		"1.1.1": {{path: apiServerPod, mode: 0o644}}, "1.1.2": {{path: apiServerPod, owner: 7}},
		"1.1.3": {{path: managerPod, mode: 0o640}}, "1.1.4": {{path: managerPod, owner: 7}},
		"1.1.5": {{path: schedulerPod, mode: 0o700}}, "1.1.6": {{path: schedulerPod, owner: 7}},
		"1.1.7": {{path: etcdPod, mode: 0o604}}, "1.1.8": {{path: etcdPod, owner: 7}},
		"1.1.11": {{path: etcdData, mode: 0o710}},
		"1.1.13": {{path: adminConf, mode: 0o644}}, "1.1.14": {{path: adminConf, owner: 7}},
		"1.1.15": {{path: "/etc/kubernetes/scheduler.conf", mode: 0o644}}, "1.1.16": {{path: "/etc/kubernetes/scheduler.conf", owner: 7}},
		"1.1.17": {{path: "/etc/kubernetes/controller-manager.conf", mode: 0o644}}, "1.1.18": {{path: "/etc/kubernetes/controller-manager.conf", owner: 7}},
		"1.1.19": {{path: caFile, owner: 7}, {path: "/etc/kubernetes/pki/etcd/ca.key", owner: 7}, {path: "/etc/kubernetes/pki", owner: 7}},
		"1.2.1":  {without(apiServerPod, "authentication-config"), {path: anonymousFor, old: "conditions", new: "others"}, {path: anonymousFor, old: "anonymous", new: "others"}},
		"1.2.2":  {added(apiServerPod, "--token-auth-file=/t"), added(apiServerPod, "--token_auth_file=/t")},
		"1.2.3":  {{path: apiServerPod, old: ",DenyServiceExternalIPs", new: ""}},
		"1.2.4":  {without(apiServerPod, "kubelet-client-certificate"), without(apiServerPod, "kubelet-client-key")},
		"1.2.6":  {{path: apiServerPod, old: "=Node,RBAC", new: "=Node,RBAC,AlwaysAllow"}, without(apiServerPod, "authorization-mode"), added(apiServerPod, "--authorization-mode=AlwaysAllow")},
		"1.2.7":  {{path: apiServerPod, old: "=Node,RBAC", new: "=RBAC"}}, "1.2.8": {{path: apiServerPod, old: "=Node,RBAC", new: "=Node"}},
		"1.2.9":  {{path: apiServerPod, old: ",EventRateLimit", new: ""}},
		"1.2.10": {{path: apiServerPod, old: ",EventRateLimit", new: ",AlwaysAdmit"}},
		"1.2.12": {added(apiServerPod, "--disable-admission-plugins=X,ServiceAccount")}, "1.2.13": {added(apiServerPod, "--disable-admission-plugins=NamespaceLifecycle")},
		"1.2.14": {{path: apiServerPod, old: "NodeRestriction,", new: ""}, added(apiServerPod, "--disable-admission-plugins=NodeRestriction")},
		"1.2.15": {without(apiServerPod, "profiling"), {path: apiServerPod, old: "--profiling=false", new: "--profiling"}},
		"1.2.16": {without(apiServerPod, "audit-log-path")}, "1.2.17": {{path: apiServerPod, old: "maxage=30", new: "maxage=29"}},
		"1.2.18": {{path: apiServerPod, old: "maxbackup=10", new: "maxbackup=9"}}, "1.2.19": {{path: apiServerPod, old: "maxsize=100", new: "maxsize=99"}},
		"1.2.21": {added(apiServerPod, "--service-account-lookup=false")}, "1.2.22": {without(apiServerPod, "service-account-key-file")},
		"1.2.23": {without(apiServerPod, "etcd-certfile"), without(apiServerPod, "etcd-keyfile")},
		"1.2.24": {without(apiServerPod, "tls-cert-file"), without(apiServerPod, "tls-private-key-file")},
		"1.2.25": {without(apiServerPod, "client-ca-file")}, "1.2.26": {without(apiServerPod, "etcd-cafile")},
		"1.2.29": {without(apiServerPod, "tls-cipher-suites"), added(apiServerPod, "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA")},
		"1.2.30": {without(apiServerPod, "service-account-extend-token-expiration")},
		"3.2.1":  {without(apiServerPod, "audit-policy-file")},
		"1.3.1":  {without(managerPod, "terminated-pod-gc-threshold")}, "1.3.2": {without(managerPod, "profiling")},
		"1.3.3": {without(managerPod, "use-service-account-credentials")}, "1.3.4": {without(managerPod, "service-account-private-key-file")},
		"1.3.5": {without(managerPod, "root-ca-file")}, "1.3.6": {added(managerPod, "--feature-gates=X=true,RotateKubeletServerCertificate=false")},
		"1.3.7": {without(managerPod, "bind-address"), {path: managerPod, old: "bind-address=127.0.0.1", new: "bind-address=0.0.0.0"}},
		"1.4.1": {without(schedulerPod, "profiling")}, "1.4.2": {without(schedulerPod, "bind-address")},
		"2.1": {without(etcdPod, "cert-file"), without(etcdPod, "key-file")}, "2.2": {without(etcdPod, "client-cert-auth")},
		"2.3": {added(etcdPod, "--auto-tls"), added(etcdPod, "-auto-tls=true"), {path: etcdPod, old: "    image: ", new: "    env: [{name: ETCD_AUTO_TLS, value: \"true\"}]\n    image: "}},
		"2.4": {without(etcdPod, "peer-cert-file"), without(etcdPod, "peer-key-file")}, "2.5": {without(etcdPod, "peer-client-cert-auth")},
		"2.6":   {added(etcdPod, "--peer-auto-tls")},
		"4.1.1": {{path: kubeletUnit, mode: 0o644}}, "4.1.2": {{path: kubeletUnit, owner: 7}},
		"4.1.5": {{path: "/etc/kubernetes/kubelet.conf", mode: 0o640}}, "4.1.6": {{path: "/etc/kubernetes/kubelet.conf", owner: 7}},
		"4.1.9": {{path: kubeletFile, mode: 0o644}}, "4.1.10": {{path: kubeletFile, owner: 7}},
		"4.2.1": {{path: kubeletFile, old: "anonymous:\n    enabled: false", new: "anonymous:\n    enabled: true"}},
		"4.2.2": {{path: kubeletFile, old: "mode: Webhook", new: "mode: AlwaysAllow"}}, "4.2.3": {{path: kubeletFile, old: "clientCAFile", new: "x"}},
		"4.2.4": {withField("readOnlyPort: 10255")}, "4.2.5": {{path: kubeletFile, old: "streamingConnectionIdleTimeout: 5m0s", new: "streamingConnectionIdleTimeout: -1s"}},
		"4.2.6":  {withField("makeIPTablesUtilChains: false")},
		"4.2.8":  {{path: kubeletFile, old: "eventRecordQPS: 50", new: "eventRecordQPS: 0"}},
		"4.2.10": {{path: kubeletFile, old: "rotateCertificates: true", new: "rotateCertificates: false"}},
		"4.2.12": {{path: kubeletFile, old: "- TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", new: "- TLS_RSA_WITH_3DES_EDE_CBC_SHA"},
			{path: kubeletFile, old: "- TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", new: "- TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"}},
		"4.2.13": {{path: kubeletFile, old: "podPidsLimit: 4096", new: "podPidsLimit: -1"}}, "4.2.14": {{path: kubeletFile, old: "seccompDefault: true", new: "seccompDefault: false"}},
		"4.3.1": {{path: proxyFile, old: `""`, new: `0.0.0.0:10249`}},
	}
}
