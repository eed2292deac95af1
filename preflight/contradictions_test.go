// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import "github.com/slipway-k8s/slipway/internal/config"

func contradictionRows() []row {
	const file, clusterInfo = "/etc/authn/config.yaml", "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	authentication := func(text string) func(s scene) {
		return func(s scene) {
			s.node.Cluster.APIServer.ExtraArgs = []config.Arg{{Name: "authentication-config", Value: "/conf/config.yaml"}}
			s.node.Cluster.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "conf", HostPath: "/etc/authn", MountPath: "/conf/"}}
			if text != "" {
				s.put(file, text)
			}
		}
	}
	patched := func(change func(s scene)) func(s scene) {
		return func(s scene) { s.node.PatchesDir = "/p"; change(s) }
	}
	at := func(flag, there, text string, mounts ...config.HostPathMount) func(s scene) {
		return func(s scene) {
			s.node.Cluster.APIServer.ExtraArgs = []config.Arg{{Name: "authentication-config", Value: flag}}
			s.node.Cluster.APIServer.ExtraVolumes = mounts
			s.put(there, text)
		}
	}
	const off = "anonymous: {enabled: false}\n"
	joinless := "[WARNING AnonymousAccess] | " + file + " | cluster-info | " + clusterInfo + " | --discovery-file"
	return []row{
		{"AnonymousAccess", "off", authentication(off), []string{"[ERROR AnonymousAccess] | " + file + " | /livez | /readyz | anonymous.conditions", joinless}},
		{"AnonymousAccess", "off, with patches", patched(authentication(off)), []string{"[WARNING AnonymousAccess] | " + file + " | /livez | /readyz", joinless}},
		{"AnonymousAccess", "of probes only", authentication("anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}\n"), []string{joinless}},
		{"AnonymousAccess", "of all that needs it", authentication("anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}, {path: " + clusterInfo + "}]}\n"), nil},
		{"AnonymousAccess", "in a profile's file, which does not exist yet", func(s scene) {
			dir := "/etc/kubernetes/hardening"
			s.node.Cluster.APIServer.ExtraArgs = []config.Arg{{Name: "authentication-config", Value: dir + "/authentication.yaml"}}
			s.node.Cluster.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "hardening", HostPath: dir, MountPath: dir, ReadOnly: true, PathType: "DirectoryOrCreate"}}
		}, nil},
		{"AnonymousAccess", "of everything", authentication("anonymous: {enabled: true}\n"), nil},
		{"AnonymousAccess", "unsaid", authentication("jwt: []\n"), nil},
		{"AnonymousAccess", "in a file that is missing", authentication(""), []string{"[WARNING AnonymousAccess] | authentication-config | " + file + " | /conf/config.yaml | /livez | " + clusterInfo}},
		{"AnonymousAccess", "in a file that no volume has", at("/conf/config.yaml", "/conf/config.yaml", off, config.HostPathMount{Name: "x", HostPath: "/etc/x", MountPath: "/con"}),
			[]string{"[WARNING AnonymousAccess] | authentication-config | /conf/config.yaml | /livez | " + clusterInfo}},
		{"AnonymousAccess", "off, in the innermost of two volumes", at("/conf/authn/config.yaml", file, off,
			config.HostPathMount{Name: "outer", HostPath: "/srv/conf", MountPath: "/conf"}, config.HostPathMount{Name: "inner", HostPath: "/etc/authn", MountPath: "/conf/authn"}),
			[]string{"[ERROR AnonymousAccess] | " + file + " | /livez | /readyz | anonymous.conditions", joinless}},
		{"AnonymousAccess", "of everything, beside the certificates", at("/etc/kubernetes/pki/authn.yaml", "/etc/kubernetes/pki/authn.yaml", "anonymous: {enabled: true}\n"), nil},
		{"AnonymousAccess", "of everything, in a directory of the host's certificates", at("/usr/share/ca-certificates/authn.yaml", "/usr/share/ca-certificates/authn.yaml", "anonymous: {enabled: true}\n"), nil},
		{"AnonymousAccess", "off, by a patch", func(s scene) {
			s.node.PatchesDir = "/p"
			s.put("/p/kube-apiserver0+json.yaml", "- {op: add, path: /spec/containers/0/command/-, value: --authentication-config=/conf/config.yaml}\n")
			s.put("/p/kube-apiserver1.yaml", "spec: {containers: [{name: kube-apiserver, volumeMounts: [{name: conf, mountPath: /conf}]}], volumes: [{name: conf, hostPath: {path: /etc/authn}}]}\n")
			s.put(file, off)
		}, []string{"[WARNING AnonymousAccess] | " + file + " | /livez | /readyz", joinless}},
		{"AnonymousAccess", "in a file of another kind", authentication("[]"), []string{"[WARNING AnonymousAccess] | " + file + " | AuthenticationConfiguration"}},
		{"ResolvConf", "missing", func(s scene) { s.remove("/etc/resolv.conf") },
			[]string{"[ERROR ResolvConf] | /etc/resolv.conf | kubelet's default | /run/systemd/resolve/resolv.conf | resolvConf | KubeletConfiguration"}},
		{"ResolvConf", "missing, of the configuration", func(s scene) { s.node.Kubelet.ResolverConfig = new("/run/resolv") },
			[]string{"[ERROR ResolvConf] | /run/resolv | resolvConf | KubeletConfiguration"}},
		{"ResolvConf", "missing, of a flag", func(s scene) {
			s.node.KubeletExtraArgs = []config.Arg{{Name: "resolv-conf", Value: "/run/resolv"}}
		}, []string{"[ERROR ResolvConf] | /run/resolv | --resolv-conf | nodeRegistration.kubeletExtraArgs"}},
		{"ResolvConf", "none", func(s scene) { s.remove("/etc/resolv.conf"); s.node.Kubelet.ResolverConfig = new("") }, nil},
		{"Patches", "valid, and a README", withPatchFiles("etcd.yaml", "{}", "README.md", ""), nil},
		{"Patches", "not named like one", withPatchFiles("kube-apisever.yaml", "{}", "etcd.yaml.bak", "["), []string{
			"[WARNING Patches] | /patches | etcd.yaml.bak | .yaml", "[WARNING Patches] | /patches | kube-apisever.yaml | \"kube-apiserver\"?"}},
		{"Patches", "invalid", withPatchFiles("etcd+json.yaml", "{}"), []string{"[ERROR Patches] | /patches | etcd+json.yaml:1 | list"}},
		{"Patches", "no directory", func(s scene) { s.node.PatchesDir = "/patches" }, []string{"[ERROR Patches] | /patches"}},
	}
}

// withPatchFiles fills the node's directory of patches with files, given as names and contents.
func withPatchFiles(pairs ...string) func(scene) {
	return func(s scene) {
		s.node.PatchesDir = "/patches"
		for i := 0; i < len(pairs); i += 2 {
			s.put("/patches/"+pairs[i], pairs[i+1])
		}
	}
}
