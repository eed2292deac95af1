// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

const (
	registering   = `E1121 09:00:00.000000    1234 kubelet_node_status.go:108] "Unable to register node with API server" err="`
	nodesForbid   = registering + `nodes is forbidden: User \"system:node:cp-1\" cannot create resource \"nodes\" in API group \"\" at the cluster scope" node="cp-1"`
	anotherNode   = registering + `nodes \"w-2\" is forbidden: node \"w-1\" is not allowed to modify node \"w-2\"" node="w-2"`
	notYetReady   = registering + `nodes \"cp-1\" is forbidden: not yet ready to handle request by User \"system:node:cp-1\"" node="cp-1"`
	withoutACert  = registering + `nodes is forbidden: User \"system:anonymous\" cannot create resource \"nodes\"" node="cp-1"`
	registersNot  = registering + `Unauthorized" node="cp-1"`
	asksForbidden = `E1121 certificate_manager.go:562] "Unhandled Error" err="cannot create certificate signing request: certificatesigningrequests.certificates.k8s.io is forbidden: User \"system:bootstrap:abcdef\" cannot create resource"`
	noResolver    = `E1121 09:00:00.000000    1234 pod_workers.go:1324] "Error syncing pod, skipping" err="failed to \"CreatePodSandbox\": CreatePodSandboxError: open /etc/resolv.conf: no such file or directory" pod="kube-system/etcd-cp-1"`
)

func refusedRows() []row {
	answers := func(status int) func(h *fakeHost) {
		return func(h *fakeHost) {
			h.answers["/livez"] = &host.ProbeError{URL: "https://127.0.0.1:1/livez", Status: status}
		}
	}
	insists := func(line string) func(h *fakeHost) { return func(h *fakeHost) { h.insisted(line) } }
	reaches := func(h *fakeHost) {
		ca := newCA("ours")
		h.kubeconfig(ca, ca, time.Hour)
		h.insisted(registersNot)
	}
	return []row{
		{"unauthorized", "anonymous access is off", func(h *fakeHost) {
			h.pod("kube-apiserver", "--anonymous-auth=false")
			answers(401)(h)
		}, "kube-apiserver; 401; --anonymous-auth=false; apiServer.extraArgs; AuthenticationConfiguration; /livez; cluster-info", false},
		{"unauthorized", "anonymous requests have no rights", func(h *fakeHost) {
			h.pod("kube-apiserver", "--authentication-config=/etc/kubernetes/authn.yaml")
			answers(403)(h)
		}, "kube-apiserver; 403; --authentication-config=/etc/kubernetes/authn.yaml", false},
		{"unauthorized", "the API server still writes its default roles", func(h *fakeHost) {
			h.pod("kube-apiserver", "--authorization-mode=Node,RBAC")
			answers(403)(h)
		}, "", false},
		{"unauthorized", "the API server is not healthy yet", answers(500), "", false},
		{"unauthorized", "the probes have a token", func(h *fakeHost) {
			h.probe = "{host: 127.0.0.1, port: 1, path: /livez, httpHeaders: [{name: Authorization, value: Bearer x}]}"
			h.pod("kube-apiserver", "--anonymous-auth=false")
			answers(401)(h)
		}, "", false},
		{"unauthorized", "the kubelet", reaches, "kubelet; https://api.example.org:6443; `slipway token create --print-join-command`; client-ca-file", false},
		{"unauthorized", "the kubelet, by an API server that is not ready", func(h *fakeHost) {
			reaches(h)
			h.answers["/readyz"] = &host.ProbeError{Status: 500}
		}, "", false},
		{"unauthorized", "the kubelet, once", func(h *fakeHost) { h.said(registersNot) }, "", false},
		{"forbidden", "without the mode Node", func(h *fakeHost) {
			h.pod("kube-apiserver", "--authorization-mode=RBAC")
			h.insisted(nodesForbid)
		}, "kubelet; --authorization-mode=RBAC; Node,RBAC; apiServer.extraArgs; system:node:cp-1", false},
		{"forbidden", "on a worker", func(h *fakeHost) {
			for _, name := range components() {
				h.remove(manifestDir + "/" + name + ".yaml")
			}
			h.insisted(nodesForbid)
		}, "kubelet; --authorization-mode; Node,RBAC", false},
		{"forbidden", "a request for a certificate", insists(asksForbidden), "kubelet; system:bootstrap:abcdef", false},
		{"forbidden", "once", func(h *fakeHost) { h.said(nodesForbid) }, "", false},
		{"forbidden", "by one that is starting", insists(notYetReady), "", false},
		{"forbidden", "before it has its certificate", insists(withoutACert), "", false},
		{"forbidden", "as it is another node's", insists(anotherNode), "", false},
		{"node-name", "the host has a new name", insists(anotherNode), "kubelet; node w-2; node w-1; `hostnamectl set-hostname w-1`; --hostname-override=w-1; `slipway reset`", false},
		{"node-name", "the host has a new name, which is no Node", insists(`E1121 reflector.go:204] "Failed to watch" err="failed to list *v1.Node: nodes \"w-2\" is forbidden: ` +
			`User \"system:node:w-1\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: node 'w-1' cannot read 'w-2', only its own Node object"`), "w-2; w-1", false},
		{"node-name", "it has its name back", func(h *fakeHost) { h.saidBefore(anotherNode) }, "", false},
		{"static-pod", "that is not its fault", func(h *fakeHost) {
			h.crashed("etcd")
			h.Has.Containers = nil
			h.insisted(noResolver)
		}, "", false},
		{"manifest-copy", "of etcd", func(h *fakeHost) {
			h.put(manifestDir+"/etcd.yaml.bak", get(h, manifestDir+"/etcd.yaml"))
		}, "etcd; " + manifestDir + "/etcd.yaml, " + manifestDir + "/etcd.yaml.bak", true},
		{"manifest-copy", "that the kubelet does not see", func(h *fakeHost) {
			h.put(manifestDir+"/.etcd.yaml", get(h, manifestDir+"/etcd.yaml"))
		}, "", false},
		{"kubelet-crash", "twice, with a reason of its own line", func(h *fakeHost) {
			for range 2 {
				h.died("")
				h.said(head+`"command failed" err=<`, "\tfailed to run Kubelet: no cheese", " >")
			}
		}, "kubelet.service; Kubelet: no cheese", false},
		{"container-crash", "twice, with a reason of its own line", func(h *fakeHost) {
			lines := []string{head + `"command failed" err=<`, "\tout of cheese", "\tand of bread", " >", "I1121 09:00:00.000000 1 x.go:1] bye"}
			h.crashed("kube-scheduler", lines...)
			h.container("kube-scheduler", "exited", at.Add(-2*time.Second), lines...)
		}, "2 times; of bread", false},
	}
}

// TestReasonOnItsOwnLine: a finding shows the reason in a message with several lines.
func TestReasonOnItsOwnLine(t *testing.T) {
	h := healthy(t)
	h.died(head + `"command failed" err=<`)
	h.said("\tfailed to parse kubelet flag: unknown flag: --nonsense", " >")
	found := run(t, h, true)
	if len(found) != 1 || found[0].Name != "bad-flag" {
		t.Fatalf("found %v", found)
	}
	fact.In(t, found[0].Evidence[0], "command failed", "--nonsense")
}
