// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Patterns of results.
const (
	aToken   = `[a-z0-9]{6}\.[a-z0-9]{16}`
	aKey     = `[0-9a-f]{64}`
	aHash    = `sha256:[0-9a-f]{64}`
	aJoin    = `kubeadm join 192\.0\.2\.11:6443 --token ` + aToken + ` --discovery-token-ca-cert-hash ` + aHash
	v1372    = `v1\.37\.2`
	anImage  = `[a-z0-9./-]+:v?[0-9.-]+`
	fourLess = `(?:` + anImage + `\n){4}` + anImage // the images without CoreDNS and pause
)

const (
	kubesprayConfig = "/etc/kubernetes/kubeadm-config.yaml"
	minikubeConfig  = "/var/tmp/minikube/kubeadm.yaml"
	minikubeCerts   = "/var/lib/minikube/certs/"
)

// playbooks is the table. Its rows are written from the tools' behavior; none is a copy of their text.
var playbooks = []playbook{
	{
		origin: "Kubespray: the first control plane again", files: map[string]string{kubesprayConfig: "kubespray.yaml"},
		steps: []playbookStep{
			{does: "kubeadm config validate --config " + kubesprayConfig, out: "ok"},
			{does: "kubeadm config images list --config=" + kubesprayConfig + " | grep -Ev 'coredns|pause'", out: fourLess},
			{does: "! openssl x509 -noout -in /etc/kubernetes/pki/apiserver.crt -checkip 192.0.2.21 | grep 'does match certificate'"},
			{
				does:   "rm /etc/kubernetes/pki/apiserver.{crt,key}; kubeadm init phase certs apiserver --config=" + kubesprayConfig,
				leaves: []string{"/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key"},
			},
			{does: "openssl x509 -noout -in /etc/kubernetes/pki/apiserver.crt -checkip 192.0.2.21 | grep 'does match certificate'"},
			{does: "kubeadm init phase --config " + kubesprayConfig + " upload-certs --upload-certs | tail -n 1", out: aKey},
			{does: "kubeadm --kubeconfig /etc/kubernetes/admin.conf token delete abcdef.0123456789abcdef || :; " +
				"kubeadm --kubeconfig /etc/kubernetes/admin.conf token create abcdef.0123456789abcdef | tail -n 1", out: `abcdef\.0123456789abcdef`},
			{does: "kubeadm --kubeconfig /etc/kubernetes/admin.conf token create", out: aToken},
			{does: "kubeadm token create", out: aToken},
			{does: "test $(openssl x509 -pubkey -in /etc/kubernetes/pki/ca.crt | openssl ec -pubin -outform der 2>/dev/null | openssl dgst -sha256 -hex | sed 's/^.* //') = " +
				"$(kubeadm token create --print-join-command | sed 's/.*sha256://')"},
		},
	},
	{
		origin: "Kubespray: etcd's client certificate for a worker",
		files:  map[string]string{kubesprayConfig: "kubespray.yaml", "/etc/kubernetes/join.yaml": "kubespray-join.yaml"},
		steps: []playbookStep{
			{does: "kubeadm init phase upload-config kubeadm --config=" + kubesprayConfig + " && rm -r /etc/kubernetes/pki /etc/kubernetes/*.conf"}, // not the worker's own step
			{does: "sed -i 's/TOKEN/" + nodeToken + "/; s/KEY/" + certificateKey + "/' /etc/kubernetes/join.yaml; kubeadm config validate --config /etc/kubernetes/join.yaml", out: "ok"},
			{
				does:   "kubeadm join phase control-plane-prepare download-certs --config /etc/kubernetes/join.yaml && kubeadm join phase control-plane-prepare certs --config /etc/kubernetes/join.yaml",
				leaves: []string{"/etc/kubernetes/pki/apiserver-etcd-client.key"},
			},
			{does: "openssl x509 -in /etc/kubernetes/pki/apiserver-etcd-client.crt -noout -serial", out: "serial=[0-9A-F]+"},
		},
	},
	{
		origin: "Kubespray: the script that renews certificates each month",
		steps: []playbookStep{
			{does: "kubeadm certs check-expiration | grep -c UTC", out: `1\d`},
			{does: "cd /etc/kubernetes/pki; for name in etcd-server etcd-peer etcd-healthcheck-client; do [ -f etcd/${name#etcd-}.key ] && kubeadm certs renew $name || exit; done"},
			{does: "for name in apiserver-etcd-client front-proxy-client apiserver apiserver-kubelet-client controller-manager.conf scheduler.conf admin.conf; do kubeadm certs renew $name || exit; done"},
			{does: "kubeadm certs check-expiration", out: `(?s)(?:.*\n)?CERTIFICATE .*\nadmin\.conf .*\nfront-proxy-ca .*`},
		},
	},
	{
		origin: "KubeKey: renews if a certificate ends within 30 days",
		steps: []playbookStep{
			{does: `first=$(kubeadm certs check-expiration | grep -o "[A-Za-z]\{3,4\}\s\w\w,\s[0-9]\{4,\}\s\w*:\w*\s\w*\s*" | xargs -I {} date -d {} +%s | sort | head -n 1); ` +
				"echo $(((first - $(date +%s)) / 86400))", out: "36[345]"},
			{does: "kubeadm certs renew all && cp /etc/kubernetes/admin.conf /root/config", leaves: []string{"/root/config"}},
		},
	},
	{
		origin: "KubeKey: the configuration of init, for upgrades", files: map[string]string{kubesprayConfig: "cluster.yaml"},
		steps: []playbookStep{
			{does: "grep -q ClusterConfiguration " + kubesprayConfig + " && kubeadm config validate --config=" + kubesprayConfig, out: "ok"},
			{does: "kubeadm upgrade apply v1.37.2 --config=" + kubesprayConfig + " --yes --ignore-preflight-errors=ImagePull", code: 1, err: "UpgradeConfiguration"},
			{does: "kubeadm upgrade node --config=" + kubesprayConfig, code: 1, err: "UpgradeConfiguration"},
			// TimeBye's kubeadm-ha converts the file in place.
			{does: "kubeadm config migrate --old-config=" + kubesprayConfig + " --new-config=" + kubesprayConfig, out: ""},
			{does: "kubeadm config validate --config=" + kubesprayConfig, out: "ok"},
			// A value without quotes that isn't a string.
			{does: `sed -i 's/value: "7"/value: 7/; s/value: .7.$/value: 7/' ` + kubesprayConfig + "; kubeadm config validate --config=" + kubesprayConfig, code: 1, err: "extraArgs"},
		},
	},
	{
		origin: "kind: one file for all", files: map[string]string{"/root/kind/kubeadm.conf": "kind.yaml"}, fresh: true,
		steps: []playbookStep{
			{does: "kubeadm config images list --kubernetes-version v1.37.2", out: fourLess + `(?:\n` + anImage + `){2}`},
			{does: "kubeadm config validate --config=/root/kind/kubeadm.conf --v=6", out: "ok"},
			{does: "kubeadm config images list --config=/root/kind/kubeadm.conf 2>&1 | grep -c registry.k8s.io", out: "7"},
		},
	},
	{
		origin: "minikube: a cluster that starts again", fresh: true, files: map[string]string{minikubeConfig: "minikube.yaml"},
		steps: []playbookStep{
			{does: `sudo() { "$@"; }; sudo env PATH="/var/lib/minikube/binaries/v1.37.2:$PATH" kubeadm init phase certs all --config ` + minikubeConfig, leaves: []string{minikubeCerts + "ca.key", minikubeCerts + "etcd/ca.crt"}},
			{does: "kubeadm init phase kubeconfig all --config " + minikubeConfig + "; grep https://control-plane.minikube.internal:8443 /etc/kubernetes/admin.conf", leaves: []string{"/etc/kubernetes/super-admin.conf"}},
			{does: "kubeadm init phase control-plane all --config " + minikubeConfig, leaves: []string{"/etc/kubernetes/manifests/kube-scheduler.yaml"}},
			{does: "kubeadm init phase etcd local --config " + minikubeConfig, leaves: []string{"/etc/kubernetes/manifests/etcd.yaml"}},
			// The second start finds everything, and tries each command twice.
			{does: "for phase in 'certs all' 'kubeconfig all' 'control-plane all' 'etcd local'; do kubeadm init phase $phase --config " + minikubeConfig + " || exit; done"},
			{does: "kubeadm init phase kubelet-start --config " + minikubeConfig, leaves: []string{"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env"}, only: "needs systemd"},
			{does: "kubeadm reset --cri-socket /run/containerd/containerd.sock --force; test ! -e /etc/kubernetes/manifests/etcd.yaml", only: "waits for the runtime"},
		},
	},
	{
		origin: "minikube and geerlingguy's role: the command to join",
		steps: []playbookStep{
			{does: "kubeadm token create --print-join-command", out: aJoin + " ?"},
			{does: "kubeadm token create --print-join-command --ttl=0 | sed 's/ *$//; s#kubeadm#sudo kubeadm#'", out: "sudo " + aJoin},
		},
	},
	{
		origin: "Sealos: images and configuration", files: map[string]string{"/root/.sealos/kubeadm.yaml": "cluster.yaml"},
		steps: []playbookStep{
			{does: "kubeadm config images list --kubernetes-version v1.37.2 -o json 2>/dev/null | jq -r '.images[]' | grep -c .", out: "7"},
			{does: "sed -i /patches/d /root/.sealos/kubeadm.yaml; kubeadm init phase upload-config kubeadm --config=/root/.sealos/kubeadm.yaml -v 0"},
		},
	},
	{
		origin: "Enix's ansible-kubeadm: configuration changed in a running cluster", files: map[string]string{"/root/kubeadm.yaml": "cluster.yaml"},
		steps: []playbookStep{
			{does: "sed -i /patches/d /root/kubeadm.yaml; kubeadm init phase upload-config all --config /root/kubeadm.yaml"},
			{does: "kubeadm init phase addon kube-proxy --config /root/kubeadm.yaml"},
			{does: `printf 'apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n' | kubeadm join --config=/dev/stdin`, code: 1, err: "discovery"},
		},
	},
	{
		origin: "Kubemarine, kube-vip's guide and others: a user's kubeconfig",
		steps: []playbookStep{
			{does: "kubeadm kubeconfig user --client-name=system:node:w1 --org=system:nodes --validity-period=24h > /tmp/kubelet.conf; grep 'user: system:node:w1' /tmp/kubelet.conf", out: ` *user: system:node:w1`},
			{does: "kubeadm certs certificate-key", out: aKey},
		},
	},
	{
		origin: "scripts: the version",
		steps: []playbookStep{
			{does: "kubeadm version -o short", out: v1372},
			{does: "kubeadm version --output=json | jq -r .clientVersion.gitVersion", out: v1372},
			{does: `kubeadm version | awk -F 'GitVersion:"' '{print $2}' | awk -F '"' '{print $1}'`, out: v1372},
			{does: `kubeadm version | cut -d, -f7 | grep -i version | cut -d'"' -f2 | sed s/v//`, out: `1\.37\.2`},
			{does: `kubeadm version | sed -n 's/.*GitVersion:"\([^"]*\).*/\1/p' | sed 's/^v//'`, out: `1\.37\.2`},
			{does: `kubeadm version | grep -Eo 'v[0-9].[0-9]{2}.[0-9]{1,2}'`, out: v1372},
			{does: "kubeadm version | grep -q 'kubeadm version'"},
		},
	},
	{
		origin: "scripts: images",
		steps: []playbookStep{
			{does: "kubeadm config images list 2>/dev/null | grep -m1 /pause:", out: `registry\.k8s\.io/pause:[0-9.]+`},
			{does: "kubeadm config images list --kubernetes-version=1.37.2 2>/dev/null | awk -F / '{print $NF}' | grep -c :", out: "7"},
			{does: "kubeadm config images list 2>/dev/null | grep etcd | awk -F: '{ print $NF }'", out: `3\.7\.0-0`},
			{does: "for i in $(kubeadm config images list 2>/dev/null | sed 's#registry.k8s.io#registry.example.com/google_containers#'); do echo ${i%%/*}; done | sort -u", out: `registry\.example\.com`},
		},
	},
	{
		origin: "scripts: tokens",
		steps: []playbookStep{
			{does: "kubeadm token generate", out: aToken},
			{does: "TOKEN=$(kubeadm token create 2>/dev/null | head -1); echo $TOKEN", out: aToken},
			{does: "kubeadm token list | awk 'NR==2{print $1}'", out: aToken},
			{does: "kubeadm token list | sed 1d | grep authentication,signing | awk '{print $1}' | head -n 1", out: aToken},
			{does: "kubeadm token create --ttl 0 >/dev/null; kubeadm token list | grep forever | cut -c 1-23 | head -n 1", out: aToken},
			{does: "kubeadm token list -o jsonpath='{.token}' | head -c 6", out: "[a-z0-9]{6}"},
			{does: "kubeadm token delete $(kubeadm token create)"},
		},
	},
	{
		origin: "scripts: another control plane",
		steps: []playbookStep{
			{does: "kubeadm init phase upload-certs --upload-certs | tail -1", out: aKey},
			{does: `kubeadm init phase upload-certs --upload-certs | grep -A 1 "Using certificate key" | tail -n 1`, out: aKey},
			{does: "kubeadm token create --print-join-command --certificate-key $(kubeadm init phase upload-certs --upload-certs | tail -n1)", out: aJoin + " --control-plane --certificate-key " + aKey},
			{does: `kubeadm token create --print-join-command | awk '{print $5}'`, out: aToken},
			{does: `kubeadm token create --print-join-command | grep -o -- '--discovery-token-ca-cert-hash [^ \\]*' | awk '{print $2}'`, out: aHash},
		},
	},
	{
		origin: "scripts: certificates",
		steps: []playbookStep{
			{does: "kubeadm certs check-expiration 2>/dev/null | grep '^apiserver ' | awk '{print $2, $3, $4, $6, $7, $8, $9}'", out: `[A-Z][a-z]{2} \d\d, 20\d\d UTC 36[45]d ca no`},
			{does: "kubeadm certs check-expiration -o json 2>/dev/null || kubeadm certs check-expiration; true"},
			{does: `kubeadm certs check-expiration -o json | jq -r '.certificates[] | select(.name == "apiserver") | .residualTime > 86400'`, out: "true"},
			{does: "kubeadm certs renew all --config=/tmp/in/setup.yaml -v=5"},
		},
	},
	{
		origin: "old releases' spelling", fresh: true, files: map[string]string{"/root/v1beta2.yaml": "apiVersion: kubeadm.k8s.io/v1beta2\nkind: ClusterConfiguration\n"},
		steps: []playbookStep{
			{does: "kubeadm init --config /root/v1beta2.yaml", code: 1, err: "kubeadm.k8s.io/v1beta2.*kubeadm v1.22"},
			{does: "sed s/v1beta2/v1beta3/ /root/v1beta2.yaml >/root/v1beta3.yaml; kubeadm config validate --config /root/v1beta3.yaml", out: "ok", err: "v1beta3", only: "no longer reads it"},
			{does: "kubeadm init --experimental-upload-certs", code: 1, err: "unknown flag: --experimental-upload-certs"},
			{does: "kubeadm join --experimental-control-plane 192.0.2.11:6443", code: 1, err: "unknown flag: --experimental-control-plane"},
			{does: "kubeadm upgrade node experimental-control-plane", code: 1, err: `"experimental-control-plane"`},
			{does: "kubeadm config view", code: 1, err: `"view"`},
			{does: "kubeadm config upload from-file --config /root/v1beta2.yaml", code: 1, err: "unknown flag: --config"},
			{does: "kubeadm init phase selfhosting convert-from-staticpods", code: 1, err: `"selfhosting"`},
			{does: "kubeadm join --config /root/v1beta2.yaml --token abcdef.0123456789abcdef", code: 1, err: "--config"},
			{does: "kubeadm init --feature-gates=IPv6DualStack=true --dry-run", code: 1, err: "IPv6DualStack"},
		},
	},
}
