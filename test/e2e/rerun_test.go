// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/test/fact"
)

// keepsEdits edits the files of three nodes and their cluster's objects, and deletes one object. The same init and the same joins
// report the differences, create missing objects, and change nothing else. m is the first control plane.
func (m machine) keepsEdits(cp2, w machine, plane, worker []string) {
	m.Helper()
	cp2.T, w.T = m.T, m.T
	sideBySide(m.editFiles, cp2.editFiles, w.editFiles)
	for _, n := range []machine{m, cp2, w} {
		m.ready(n.node.Name())
	}
	m.editObjects()

	objects := m.editedObjects()
	m.kubectl("delete", "-n", "kube-system", "daemonset", "kube-proxy")
	const kubeletFiles = "/var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env"
	const manifest = " /etc/kubernetes/manifests/kube-apiserver.yaml"
	m.changesNothing(kubeletFiles+manifest, "slipway", "init", "--config", "/root/slipway.yaml")
	cp2.changesNothing(kubeletFiles+manifest, append([]string{"slipway", "join"}, plane...)...)
	w.changesNothing(kubeletFiles, append([]string{"slipway", "join"}, worker...)...)
	if after := m.editedObjects(); after != objects {
		m.Errorf("the same init changed objects:\n%s\nbefore:\n%s", after, objects)
	}
	m.kubectl("get", "-n", "kube-system", "daemonset", "kube-proxy")
	m.showsEdits()
	m.replacesAddons()
}

// editFiles makes administrators' edits: to a flag of the API server, and to a setting and a flag of the kubelet. It returns once
// both run with them.
func (m machine) editFiles() {
	m.Helper()
	m.must("sed", "-i", `$a registryPullQPS: 7`, "/var/lib/kubelet/config.yaml")
	m.must("sed", "-i", `s/"$/ --node-labels=lab=edited"/`, "/var/lib/kubelet/kubeadm-flags.env")
	if strings.HasPrefix(m.node.Name(), "cp-") {
		m.must("sed", "-i", `s/^    - kube-apiserver$/&\n    - --event-ttl=2h0m0s/`, "/etc/kubernetes/manifests/kube-apiserver.yaml")
		m.eventually("the edited API server of "+m.node.Name(), readyLimit, func() error {
			if out, err := m.try("pgrep", "-f", "event-ttl=2h0m0s"); err != nil {
				return errors.New("it is not started yet " + out)
			}
			out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://"+m.node.IP()+":6443", "get", "--raw", "/readyz")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	m.must("systemctl", "restart", "kubelet")
}

// editObjects makes administrators' edits to the cluster.
func (m machine) editObjects() {
	m.Helper()
	m.editKey("coredns", "Corefile", "ttl 30", "ttl 17")
	m.editKey("kube-proxy", "config.conf", "strictARP: false", "strictARP: true")
	m.editKey("kubelet-config", "kubelet", "kind: KubeletConfiguration", "kind: KubeletConfiguration\nmaxPods: 88")
	m.kubectl("patch", "-n", "kube-system", "deployment", "coredns", "--patch", `{"spec": {"replicas": 1, "template": {"spec": {"containers": [
		{"name": "coredns", "image": "registry.example.org/coredns:ours", "resources": {"limits": {"memory": "333Mi"}}}]}}}}`)
	m.kubectl("label", "node", "cp-1", "node.kubernetes.io/exclude-from-external-load-balancers-")
	m.kubectl("taint", "node", "cp-1", "node-role.kubernetes.io/control-plane-")
}

func (m machine) editKey(name, key, old, edited string) {
	m.Helper()
	data := m.get("-n", "kube-system", "configmap", name)["data"].(map[string]any)
	text, _ := data[key].(string)
	if !strings.Contains(text, old) {
		m.Fatalf("ConfigMap %s has no %q:\n%s", name, old, text)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{key: strings.Replace(text, old, edited, 1)}})
	if err != nil {
		m.Fatal(err)
	}
	m.kubectl("patch", "-n", "kube-system", "configmap", name, "--patch", string(patch))
}

func (m machine) editedObjects() string {
	m.Helper()
	return m.kubectl("get", "-n", "kube-system", "configmap", "coredns", "kube-proxy", "kubelet-config", "kubeadm-config",
		"-o", `jsonpath={range .items[*]}{.metadata.resourceVersion}{.data}{"\n"}{end}`) +
		m.kubectl("get", "-n", "kube-system", "deployment", "coredns", "-o", "jsonpath={.metadata.generation}{.spec}") +
		m.kubectl("get", "node", "cp-1", "-o", `jsonpath={.metadata.labels}{.spec.taints[?(@.key=="node-role.kubernetes.io/control-plane")]}`) // a kubelet that has just started may add others
}

// changesNothing runs a command again, which must name the edited files.
func (m machine) changesNothing(names string, command ...string) {
	m.Helper()
	look := func() string {
		return m.must("systemctl", "show", "-p", "MainPID", "-p", "ActiveEnterTimestamp", "kubelet") +
			m.must("find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml",
				"/var/lib/kubelet/kubeadm-flags.env", "-type", "f", "-printf", `%m %i %T@ `, "-exec", "sha256sum", "{}", ";")
	}
	before := look()
	out, err := m.try(command...)
	if err != nil {
		m.Errorf("%s on %s: %v\n%s", command[1], m.node.Name(), err, out)
	}
	if after := look(); after != before {
		m.Errorf("the same %s on %s changed something:\n%s\nbefore:\n%s\n%s", command[1], m.node.Name(), after, before, out)
	}
	for name := range strings.FieldsSeq(names) {
		if strings.Count(out, "keeping "+name+",") != 1 {
			m.Errorf("the same %s on %s does not report exactly once that %s differs:\n%s", command[1], m.node.Name(), name, out)
		}
	}
}

// showsEdits checks that a plan with --diff has all the differences.
func (m machine) showsEdits() {
	m.Helper()
	out := m.must("slipway", "init", "--config", "/root/slipway.yaml", "--diff")
	for _, line := range []string{"keep /etc/kubernetes/manifests/kube-apiserver.yaml", "-    - --event-ttl=2h0m0s", "-registryPullQPS: 7",
		"keep ConfigMap kube-system/kube-proxy", "strictARP: true", "keep Deployment kube-system/coredns", "registry.example.org/coredns:ours",
		"keep ConfigMap kube-system/coredns", "ttl 17", "keep ConfigMap kube-system/kubelet-config", "maxPods: 88"} {
		if !strings.Contains(out, line) {
			m.Errorf("the plan lacks %q:\n%s", line, out)
		}
	}
}

// replacesAddons: the phases' commands report their replacements and keep the Corefile, as kubeadm does.
func (m machine) replacesAddons() {
	m.Helper()
	out, err := m.try("slipway", "init", "phase", "addon", "all", "--config", "/root/slipway.yaml")
	if err != nil {
		m.Errorf("init phase addon all: %v\n%s", err, out)
	}
	fact.In(m, out, "keeping ConfigMap kube-system/coredns", "data.Corefile", "ConfigMap kube-system/kube-proxy", "data.config.conf",
		"spec.template.spec.containers[coredns].image", "spec.template.spec.containers[coredns].resources.limits.memory")
	after := m.editedObjects()
	if !strings.Contains(after, "ttl 17") || strings.Contains(after, "strictARP: true") || strings.Contains(after, "registry.example.org") ||
		!strings.Contains(after, `"replicas":1`) {
		m.Errorf("after init phase addon all:\n%s", after)
	}
}

// failsAtFirst runs init with contradictory settings, which is refused before anything is written, and then with a typo and
// another endpoint. The next init corrects both.
func (m machine) failsAtFirst() {
	m.Helper()
	for _, c := range []struct{ cluster, field string }{
		{"apiServer: {extraArgs: [{name: authorization-mode, value: RBAC}]}", "apiServer.extraArgs[0].value"},
		{"apiServer: {extraArgs: [{name: anonymous-auth, value: 'false'}]}", "apiServer.extraArgs[0].value"},
		{"controlPlaneEndpoint: fd00::5:6443", "controlPlaneEndpoint"},
	} {
		m.write("/root/slipway.yaml", document("", podSubnet+"\n"+c.cluster))
		out, err := m.try("slipway", "init", "--config=/root/slipway.yaml")
		if err == nil || !strings.Contains(out, "/root/slipway.yaml:") || !strings.Contains(out, c.field) {
			m.Errorf("%s: %v\n%s", c.cluster, err, out)
		}
	}
	m.must("sh", "-c", "mv /etc/resolv.conf /etc/resolv.conf.away")
	m.write("/root/slipway.yaml", document("", podSubnet+"\ncontrolPlaneEndpoint: "+m.node.IP()+":6443\napiServer: {extraArgs: [{name: no-such-flag, value: '1'}]}"))
	out, err := m.try("slipway", "init", "--config=/root/slipway.yaml")
	m.must("sh", "-c", "mv /etc/resolv.conf.away /etc/resolv.conf")
	if err == nil || !strings.Contains(out, "[ERROR ResolvConf]") {
		m.Errorf("without /etc/resolv.conf: %v\n%s", err, out)
	}
	if out, err := m.try("ls", "/etc/kubernetes/manifests/kube-apiserver.yaml"); err == nil {
		m.Errorf("a refused init wrote %s", out)
	}
	out, err = m.try("slipway", "init", "--config=/root/slipway.yaml")
	if err == nil {
		m.Fatalf("init with a typo succeeds:\n%s", out)
	}
	fact.In(m.T, out, "[bad-flag] kube-apiserver", "--no-such-flag")
}

// corrects runs the init that corrects a failed one, if any has failed.
func (m machine) corrects(failed bool, config string, more ...string) {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	out, err := m.try(append([]string{"slipway", "init", "--config=/root/slipway.yaml"}, more...)...)
	if err != nil {
		m.Fatalf("the corrected init: %v\n%s", err, out)
	}
	if !failed {
		return
	}
	fact.In(m.T, out, "Writing /etc/kubernetes/manifests/kube-apiserver.yaml", "--no-such-flag=1", "/etc/kubernetes/pki/apiserver.crt", sharedEndpoint)
}

// failsToJoin joins with a typo in the scheduler's flags. By the time anyone reads the error, the kubelet has registered its
// Node.
func (m machine) failsToJoin(cluster machine, plane []string) {
	m.Helper()
	m.must("mkdir", "-p", "/root/typo")
	m.write("/root/typo/kube-scheduler+json.json", `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--no-such-flag=1"}]`)
	out, err := m.try(append([]string{"slipway", "join", "--patches=/root/typo"}, plane...)...)
	if err == nil {
		m.Errorf("join with a typo succeeds:\n%s", out)
	}
	fact.In(m.T, out, "[bad-flag] kube-scheduler", "--no-such-flag")
	m.eventually("the Node to be registered", readyLimit, func() error {
		out, err := cluster.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", m.node.Name())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// getsAnotherName renames a worker's host. The cluster doesn't let its kubelet register another node.
func (m machine) getsAnotherName(cluster machine) {
	m.Helper()
	name := m.node.Name()
	m.must("sh", "-c", "hostname renamed && systemctl restart kubelet")
	m.eventually("the cause to be named", readyLimit, func() error {
		out, err := m.try("slipway", "diagnose")
		if err == nil || !strings.Contains(out, "[node-name]") || !strings.Contains(out, "node "+name) {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
	m.must("sh", "-c", "hostname "+name+" && systemctl restart kubelet")
	cluster.ready(name)
}

// hasCopyOfManifest leaves a copy of a manifest in the kubelet's directory, which the kubelet runs too.
func (m machine) hasCopyOfManifest() {
	m.Helper()
	out, err := m.try("sh", "-c", "cd /etc/kubernetes/manifests && cp etcd.yaml etcd.yaml.bak && slipway diagnose; found=$?; rm etcd.yaml.bak; exit $found")
	if err == nil {
		m.Errorf("nothing is found:\n%s", out)
	}
	fact.In(m.T, out, "[manifest-copy] etcd", "/etc/kubernetes/manifests/etcd.yaml.bak")
}
