// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import "github.com/slipway-k8s/slipway/internal/config"

func contradictionRows() []row {
	const file, clusterInfo = "/etc/authn/config.yaml", "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	authentication := func(text string) func(s scene) {
		return func(s scene) {
			s.node.Cluster.APIServer.ExtraArgs = []config.Arg{{Name: "authentication-config", Value: "/conf/config.yaml"}}
			s.node.Cluster.APIServer.ExtraVolumes = []config.HostPathMount{{HostPath: "/etc/authn", MountPath: "/conf/"}}
			if text != "" {
				s.put(file, text)
			}
		}
	}
	patched := func(change func(s scene)) func(s scene) {
		return func(s scene) { s.node.PatchesDir = "/p"; change(s) }
	}
	const off = "anonymous: {enabled: false}\n"
	joinless := "[WARNING AnonymousAccess] | " + file + " | cluster-info | " + clusterInfo + " | --discovery-file"
	return []row{
		{"AnonymousAccess", "off", authentication(off), []string{"[ERROR AnonymousAccess] | " + file + " | /livez | /readyz | anonymous.conditions", joinless}},
		{"AnonymousAccess", "off, with patches", patched(authentication(off)), []string{"[WARNING AnonymousAccess] | " + file + " | /livez | /readyz", joinless}},
		{"AnonymousAccess", "of probes only", authentication("anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}\n"), []string{joinless}},
		{"AnonymousAccess", "of all that needs it", authentication("anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}, {path: " + clusterInfo + "}]}\n"), nil},
		{"AnonymousAccess", "of everything", authentication("anonymous: {enabled: true}\n"), nil},
		{"AnonymousAccess", "unsaid", authentication("jwt: []\n"), nil},
		{"AnonymousAccess", "in a file that is missing", authentication(""), []string{"[ERROR AnonymousAccess] | " + file + " | /conf/config.yaml | authentication-config | apiServer.extraArgs"}},
		{"AnonymousAccess", "in a file of another kind", authentication("[]"), []string{"[WARNING AnonymousAccess] | " + file + " | AuthenticationConfiguration"}},
		{"ResolvConf", "missing", func(s scene) { s.remove("/etc/resolv.conf") },
			[]string{"[ERROR ResolvConf] | /etc/resolv.conf | kubelet's default | /run/systemd/resolve/resolv.conf | resolvConf | KubeletConfiguration"}},
		{"ResolvConf", "missing, of the configuration", func(s scene) { s.node.Kubelet.ResolverConfig = new("/run/resolv") },
			[]string{"[ERROR ResolvConf] | /run/resolv | resolvConf | KubeletConfiguration"}},
		{"ResolvConf", "missing, of a flag", func(s scene) {
			s.node.KubeletExtraArgs = []config.Arg{{Name: "resolv-conf", Value: "/run/resolv"}}
		}, []string{"[ERROR ResolvConf] | /run/resolv | --resolv-conf | nodeRegistration.kubeletExtraArgs"}},
		{"ResolvConf", "none", func(s scene) { s.remove("/etc/resolv.conf"); s.node.Kubelet.ResolverConfig = new("") }, nil},
	}
}
