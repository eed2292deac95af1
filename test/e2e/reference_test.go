// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const golden = "../../testdata/golden"

// objectsEqualReference compares every object that init leaves in the API with kubeadm's, except for some files.
func (m machine) objectsEqualReference(except ...string) {
	m.Helper()
	files, err := filepath.Glob(golden + "/cluster/*.yaml")
	if err != nil || len(files) < 30 {
		m.Fatalf("%d reference objects: %v", len(files), err)
	}
	for _, file := range files {
		if slices.Contains(except, filepath.Base(file)) {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			m.Fatal(err)
		}
		var want map[string]any
		if err := yaml.Unmarshal(data, &want); err != nil {
			m.Fatalf("%s: %v", file, err)
		}
		meta := want["metadata"].(map[string]any)
		args := []string{strings.ToLower(want["kind"].(string)), meta["name"].(string)}
		if ns, ok := meta["namespace"].(string); ok {
			args = append(args, "-n", ns)
		}
		got := m.get(args...)
		if diff := cmp.Diff(comparable(want), comparable(got)); diff != "" {
			m.Errorf("%s differs (-want +got):\n%s", filepath.Base(file), diff)
		}
	}
}

// accountsEqualReference compares a cluster's service accounts with the controller manager's. It also waits until init's
// temporary Role, which bridges the time until the default roles exist, is gone.
func (m machine) accountsEqualReference() {
	m.Helper()
	data, err := os.ReadFile(golden + "/kube-system-serviceaccounts.txt")
	if err != nil {
		m.Fatal(err)
	}
	m.eventually("the accounts of kube-system", readyLimit, func() error {
		names := m.kubectl("get", "serviceaccounts", "-n", "kube-system", "-o", `jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`)
		roles := m.kubectl("get", "roles,rolebindings", "-n", "kube-system", "-o", "name")
		if diff := cmp.Diff(string(data), names); diff != "" || strings.Contains(roles, "slipway:") {
			return fmt.Errorf("service accounts (-want +got):\n%s\nroles and bindings:\n%s", diff, roles)
		}
		return nil
	})
}

var embeddedCA = regexp.MustCompile(`certificate-authority-data: .*`)

// comparable drops random fields and the server's own.
func comparable(obj map[string]any) map[string]any {
	meta := obj["metadata"].(map[string]any)
	for _, field := range []string{"creationTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "uid"} {
		delete(meta, field)
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok { // they count changes
		delete(annotations, "deprecated.daemonset.template.generation")
		delete(annotations, "deployment.kubernetes.io/revision")
	}
	delete(obj, "status")
	data, _ := obj["data"].(map[string]any)
	for key, value := range data {
		text := value.(string)
		switch {
		case strings.HasPrefix(key, "jws-kubeconfig-"):
			delete(data, key)
			data["jws-kubeconfig-TOKEN"] = "signed"
		case obj["kind"] == "Secret":
			data[key] = "encrypted"
		default:
			data[key] = embeddedCA.ReplaceAllString(text, "certificate-authority-data: CA")
		}
	}
	return obj
}

// filesHaveReferenceModes compares the modes of all files with kubeadm's.
func (m machine) filesHaveReferenceModes() {
	m.Helper()
	f, err := os.Open(golden + "/node/default/modes.tsv")
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	var want []string
	for rows := bufio.NewScanner(f); rows.Scan(); {
		path, mode, _ := strings.Cut(rows.Text(), "\t")
		if _, ours, differs := strings.Cut(mode, "(Slipway: "); differs {
			mode = strings.TrimSuffix(ours, ")")
		}
		path = strings.Replace(path, "/kubelet/", "/var/lib/kubelet/", 1)
		path = strings.Replace(path, "/kubernetes/", "/etc/kubernetes/", 1)
		want = append(want, path+" "+mode)
	}
	var got []string
	for _, row := range want {
		path, _, _ := strings.Cut(row, " ")
		got = append(got, path+" "+strings.TrimSpace(m.must("stat", "-c", "%A", path)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.Errorf("modes differ (-want +got):\n%s", diff)
	}
}

func (m machine) certificate(path string) *x509.Certificate {
	m.Helper()
	block, _ := pem.Decode([]byte(m.must("cat", path)))
	if block == nil {
		m.Fatalf("%s is not in PEM form", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		m.Fatalf("%s: %v", path, err)
	}
	return cert
}

// plan returns the titles of a dry run's steps that write files.
func (m machine) plan(config string, more ...string) []string {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	args := append([]string{"slipway", "init", "--dry-run", "--config", "/root/slipway.yaml"}, more...)
	first, second := m.must(args...), m.must(args...)
	if first != second {
		m.Errorf("two dry runs differ:\n%s", cmp.Diff(first, second))
	}
	if strings.Contains(first, "PRIVATE KEY") {
		m.Error("a private key is in the plan")
	}
	var writes []string
	for _, found := range regexp.MustCompile(`(?m)^\d+\. write (\S+) (\d{4})`).FindAllStringSubmatch(first, -1) {
		writes = append(writes, found[1]+" "+found[2])
	}
	if len(writes) < 30 {
		m.Errorf("the plan writes only %d files", len(writes))
	}
	return writes
}

// keepsPlan checks that the files are exactly the plan's.
func (m machine) keepsPlan(writes []string) {
	m.Helper()
	for _, w := range writes {
		path, mode, _ := strings.Cut(w, " ")
		if got := strings.TrimSpace(m.must("stat", "-c", "%a", path)); "0"+got != mode {
			m.Errorf("%s has mode %s, the plan said %s", path, got, mode)
		}
	}
	listed := strings.Fields(m.must("find", "/etc/kubernetes", "-type", "f"))
	for _, path := range listed {
		if !strings.Contains(strings.Join(writes, "\n")+"\n", path+" ") {
			m.Errorf("%s exists, but was not in the plan", path)
		}
	}
}

func (m machine) secondInitChangesNothing(config string) {
	m.Helper()
	before := m.state()
	m.init(config)
	if diff := cmp.Diff(before, m.state()); diff != "" {
		m.Errorf("the second init changed something (-before +after):\n%s", diff)
	}
}

// ours matches the managers of an object's fields: an object that Slipway has written.
var ours = regexp.MustCompile(`slipway|kubeadm`)

// state lists everything a second run mustn't change: files with mode, time and content, the kubelet's start time, and the
// versions of Slipway's objects. Others appear and change long after init.
func (m machine) state() []string {
	m.Helper()
	var lines []string
	add := func(text string) { lines = append(lines, strings.Split(strings.TrimSpace(text), "\n")...) }
	for _, dir := range []string{"/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env"} {
		add(m.must("find", dir, "-printf", "%p %M %U %T@\n"))
	}
	add(m.must("systemctl", "show", "kubelet", "-p", "ActiveEnterTimestampMonotonic", "-p", "MainPID"))
	for _, kind := range []string{"configmaps", "secrets", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "daemonsets", "deployments", "services"} {
		lines = append(lines, m.objects(kind, ours, "-A")...)
	}
	// Accounts don't say who has made them.
	for _, name := range []string{"coredns", "kube-proxy"} {
		lines = append(lines, m.objects("serviceaccounts", everyone, "-n", "kube-system", "--field-selector=metadata.name="+name)...)
	}
	return lines
}

var everyone = regexp.MustCompile("")

// firstLeases is the name of init's temporary Role and RoleBinding, which the garbage collector deletes at some time.
const firstLeases = "slipway:first-leases"

// objects lists objects of a kind that one of the managers has written, with their version. The list of an object's managers isn't
// part of it: a controller that reports a status becomes one.
func (m machine) objects(kind string, managers *regexp.Regexp, args ...string) []string {
	m.Helper()
	version := "resourceVersion"
	if kind == "daemonsets" || kind == "deployments" { // their status changes by itself
		version = "generation"
	}
	columns := "custom-columns=K:.kind,NS:.metadata.namespace,N:.metadata.name,M:.metadata.managedFields[*].manager,V:.metadata." + version
	var list []string
	for line := range strings.Lines(m.kubectl(append([]string{"get", kind, "--no-headers", "-o", columns}, args...)...)) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[2] != firstLeases && managers.MatchString(fields[3]) {
			list = append(list, strings.Join(slices.Delete(fields, 3, 4), " "))
		}
	}
	if kind == "configmaps" && len(list) == 0 {
		m.Error("there are no ConfigMaps of Slipway")
	}
	return list
}
