// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/slipway-k8s/slipway/"

// mayImport lists the allowed imports of our packages for each package of the product. Imports run downwards only;
// docs/architecture.md draws the picture.
var mayImport = map[string][]string{
	"internal/background": {},
	"internal/workflow":   {},
	"internal/fault":      {},
	"internal/lazyregexp": {},
	"internal/releases":   {},
	"internal/bundle":     {"internal/fault", "internal/lazyregexp", "internal/retry"},
	"internal/containerd": {},
	"internal/breakages":  {"internal/config", "internal/fault", "internal/releases"},
	"internal/config":     {"internal/fault", "internal/lazyregexp", "internal/profile"},
	"internal/dial":       {"internal/parallel"},
	"internal/parallel":   {},
	"internal/profile":    {},
	"internal/ui":         {"internal/fault"},
	"internal/host":       {},
	"internal/host/linux": {
		"internal/dial", "internal/fault", "internal/host", "internal/redact",
		"internal/host/linux/cri", "internal/host/linux/files", "internal/host/linux/network", "internal/host/linux/program", "internal/host/linux/systemd",
	},
	"internal/host/linux/cri":     {"internal/fault", "internal/host", "internal/host/linux/files", "internal/host/linux/program", "internal/parallel", "internal/retry"},
	"internal/host/linux/files":   {"internal/host"},
	"internal/host/linux/network": {"internal/fault", "internal/host", "internal/host/linux/program", "internal/lazyregexp"},
	"internal/host/linux/program": {},
	"internal/host/linux/systemd": {"internal/fault", "internal/host", "internal/host/linux/program"},
	"internal/host/plan":          {"internal/host"},
	"internal/cluster":            {"internal/fault", "internal/retry"},
	"internal/corefile":           {},
	"internal/snapshots":          {"internal/host"},
	"internal/discovery":          {"internal/dial", "internal/redact", "internal/retry"},
	"internal/etcd":               {"internal/dial", "internal/fault", "internal/parallel", "internal/retry"},
	"internal/retry":              {},
	"certs":                       {"internal/config", "internal/fault"},
	"manifests":                   {"internal/config", "certs"},
	"kubeletconfig":               {"internal/config", "internal/lazyregexp"},
	"internal/kubeconfig":         {"internal/config", "internal/fault", "certs"},
	"preflight":                   {"manifests", "internal/config", "internal/fault", "internal/host", "internal/parallel", "internal/releases", "internal/retry", "internal/thisnode"},
	"internal/redact":             {"internal/lazyregexp"},
	"internal/thisnode": {
		"certs", "kubeletconfig", "manifests", "internal/cluster", "internal/config", "internal/etcd", "internal/host",
		"internal/kubeconfig", "internal/lazyregexp", "internal/ui",
	},
	"internal/ownership": {"internal/cluster", "internal/config", "internal/host", "internal/redact", "internal/ui", "manifests", "preflight"},
	"internal/accounts":  {"internal/config", "internal/host", "internal/ui", "manifests"},
	"internal/pki":       {"internal/config", "internal/fault", "internal/host", "internal/kubeconfig", "internal/thisnode", "internal/ui", "certs", "manifests"},
	"internal/joining": {
		"certs", "manifests", "internal/cluster", "internal/config", "internal/discovery", "internal/fault", "internal/host", "internal/kubeconfig",
		"internal/pki", "internal/retry", "internal/thisnode", "internal/ui",
	},
	"internal/upgrading": {
		"manifests", "preflight", "internal/cluster", "internal/config", "internal/fault", "internal/host", "internal/joining",
		"internal/ownership", "internal/redact", "internal/releases", "internal/thisnode", "internal/ui",
	},
	"internal/encryption":    {"certs", "internal/config"},
	"internal/reconfiguring": {"manifests", "internal/cluster", "internal/config", "internal/fault", "internal/host", "internal/thisnode"},
	"internal/inventory": {
		"kubeletconfig", "manifests", "preflight", "internal/breakages", "internal/cluster", "internal/config", "internal/etcd",
		"internal/fault", "internal/host", "internal/parallel", "internal/releases", "internal/thisnode", "internal/upgrading",
	},
	"internal/tokens": {"certs", "manifests", "internal/cluster", "internal/config", "internal/fault", "internal/kubeconfig", "internal/ui"},
	"internal/diagnose": {
		"certs", "manifests", "internal/config", "internal/dial", "internal/etcd", "internal/fault", "internal/host", "internal/kubeconfig", "internal/lazyregexp", "internal/parallel", "internal/redact",
		"internal/retry", "internal/thisnode",
	},
	"internal/benchmark": {"manifests", "internal/config", "internal/host", "internal/thisnode"},
	"internal/support":   {"certs", "internal/diagnose", "internal/host", "internal/redact"},
	// phases/node and the packages above it are shared by the workflows, which never import each other.
	"phases/step": {
		"internal/accounts", "internal/background", "internal/cluster", "internal/config", "internal/diagnose", "internal/etcd",
		"internal/host", "internal/ownership", "internal/pki", "internal/tokens", "internal/ui", "internal/workflow",
	},
	"phases/node": {
		"phases/step", "certs", "manifests", "preflight", "internal/cluster", "internal/config",
		"internal/encryption", "internal/etcd", "internal/fault", "internal/host", "internal/ownership", "internal/releases",
		"internal/retry", "internal/thisnode", "internal/ui", "internal/upgrading",
	},
	"phases/kubelet": {
		"phases/node", "phases/step", "certs", "kubeletconfig", "manifests", "preflight", "internal/cluster", "internal/config",
		"internal/diagnose", "internal/fault", "internal/host", "internal/kubeconfig", "internal/ownership", "internal/pki",
		"internal/retry", "internal/thisnode", "internal/ui",
	},
	"phases/addon": {
		"phases/node", "phases/step", "manifests", "internal/cluster", "internal/config", "internal/corefile", "internal/fault",
		"internal/ownership", "internal/thisnode", "internal/ui",
	},
	"phases/backup": {
		"phases/node", "phases/step", "phases/trial", "certs", "manifests", "preflight", "internal/cluster", "internal/etcd", "internal/fault",
		"internal/host", "internal/joining", "internal/ownership", "internal/releases", "internal/thisnode", "internal/ui", "internal/upgrading",
	},
	"phases/snapshot": {
		"phases/backup", "phases/node", "phases/step", "phases/trial", "certs", "manifests", "preflight", "internal/cluster", "internal/config",
		"internal/etcd", "internal/fault", "internal/host", "internal/parallel", "internal/releases", "internal/snapshots", "internal/thisnode", "internal/ui", "internal/upgrading",
	},
	"phases/bootstrap": {
		"phases/addon", "phases/kubelet", "phases/node", "phases/step", "certs", "manifests", "preflight", "internal/cluster",
		"internal/config", "internal/encryption", "internal/etcd", "internal/fault", "internal/host", "internal/kubeconfig",
		"internal/ownership", "internal/retry", "internal/thisnode", "internal/tokens", "internal/ui",
	},
	"phases/edits": {
		"phases/backup", "phases/kubelet", "phases/node", "phases/step", "phases/trial", "kubeletconfig", "manifests", "preflight", "internal/cluster",
		"internal/config", "internal/fault", "internal/host", "internal/inventory", "internal/lazyregexp",
		"internal/ownership", "internal/thisnode", "internal/ui", "internal/upgrading",
	},
	"phases/trial": {
		"phases/addon", "phases/node", "phases/step", "certs", "manifests", "preflight", "internal/fault", "internal/host", "internal/kubeconfig",
		"internal/ownership", "internal/retry", "internal/ui",
	},
	"phases/reconfigure": {
		"phases/addon", "phases/backup", "phases/edits", "phases/kubelet", "phases/node", "phases/step", "phases/trial", "certs", "manifests", "preflight",
		"internal/cluster", "internal/config", "internal/fault", "internal/host", "internal/kubeconfig", "internal/ownership",
		"internal/parallel", "internal/pki", "internal/profile", "internal/reconfiguring", "internal/thisnode", "internal/ui",
	},
	"phases/encryption": {
		"phases/node", "phases/step", "certs", "manifests", "internal/cluster", "internal/config", "internal/encryption", "internal/fault",
		"internal/host", "internal/retry", "internal/thisnode", "internal/ui",
	},
	"phases/address": {
		"phases/addon", "phases/edits", "phases/kubelet", "phases/node", "phases/step", "phases/trial", "certs", "manifests", "preflight", "internal/config", "internal/fault", "internal/host",
		"internal/kubeconfig", "internal/lazyregexp", "internal/ownership", "internal/thisnode", "internal/ui",
	},
	"phases/upgrade": {
		"phases/addon", "phases/backup", "phases/edits", "phases/kubelet", "phases/node", "phases/step", "phases/trial", "certs", "manifests",
		"preflight", "internal/breakages", "internal/cluster", "internal/config", "internal/corefile", "internal/etcd",
		"internal/fault", "internal/host", "internal/inventory", "internal/ownership", "internal/pki", "internal/retry",
		"internal/thisnode", "internal/upgrading",
	},
	"phases/rollback": {
		"phases/addon", "phases/backup", "phases/edits", "phases/node", "phases/step", "phases/trial", "certs", "kubeletconfig", "manifests", "preflight",
		"internal/breakages", "internal/cluster", "internal/config", "internal/etcd", "internal/fault", "internal/host",
		"internal/ownership", "internal/ui", "internal/upgrading",
	},
	"phases/machine": {
		"phases/node", "phases/step", "phases/trial", "kubeletconfig", "manifests", "preflight", "internal/bundle",
		"internal/cluster", "internal/config", "internal/containerd", "internal/fault", "internal/host",
		"internal/joining", "internal/ownership", "internal/retry", "internal/thisnode", "internal/upgrading",
	},
	"phases/reset": {
		"phases/node", "phases/step", "phases/trial", "certs", "manifests", "preflight", "internal/cluster", "internal/config", "internal/etcd",
		"internal/fault", "internal/host", "internal/ownership", "internal/parallel", "internal/profile", "internal/retry", "internal/thisnode", "internal/ui",
		"internal/upgrading",
	},
	"phases/renew": {
		"phases/kubelet", "phases/node", "phases/step", "phases/trial", "certs", "manifests", "internal/fault", "internal/host", "internal/pki",
		"internal/thisnode", "internal/ui",
	},
	"phases/maintenance": {
		"phases/node", "phases/step", "manifests", "preflight", "internal/cluster", "internal/etcd", "internal/fault", "internal/thisnode",
	},
	"phases/recovery": {
		"phases/backup", "phases/node", "phases/step", "phases/trial", "manifests", "preflight", "internal/cluster", "internal/etcd", "internal/fault", "internal/host",
		"internal/ownership", "internal/retry", "internal/thisnode",
	},
	"phases": {
		"phases/bootstrap", "phases/kubelet", "phases/machine", "phases/reset", "phases/step", "internal/cluster",
		"internal/config", "internal/upgrading", "internal/workflow",
	},
	"internal/plan":   {"internal/cluster", "internal/config", "internal/etcd", "internal/host", "internal/pki", "internal/redact", "internal/ui"},
	"cmd/slipway/cli": {"internal/config", "internal/fault", "internal/host", "internal/host/linux", "internal/redact", "internal/ui"},
	"cmd/slipway/env": {
		"cmd/slipway/cli", "phases/node", "phases/step", "internal/cluster", "internal/config", "internal/etcd", "internal/fault", "internal/host",
		"internal/host/linux", "internal/host/plan", "internal/joining", "internal/kubeconfig", "internal/plan", "internal/snapshots", "internal/thisnode", "internal/ui", "manifests",
	},
	// Groups of commands don't import each other.
	"cmd/slipway/bundle": {"cmd/slipway/cli", "phases/machine", "internal/bundle", "internal/config", "internal/fault", "internal/ui"},
	"cmd/slipway/certs": {
		"cmd/slipway/cli", "cmd/slipway/env", "phases/renew", "internal/config", "internal/host/linux", "internal/pki",
		"internal/thisnode", "internal/ui",
	},
	"cmd/slipway/config": {"cmd/slipway/cli", "cmd/slipway/env", "phases/node", "internal/config", "internal/host/linux", "internal/profile"},
	"cmd/slipway/diagnose": {
		"cmd/slipway/cli", "cmd/slipway/env", "internal/benchmark", "internal/cluster", "internal/config", "internal/diagnose", "internal/etcd",
		"internal/fault", "internal/host", "internal/host/linux", "internal/support", "internal/thisnode",
	},
	"cmd/slipway/encryption": {
		"cmd/slipway/cli", "cmd/slipway/env", "phases/encryption", "phases/reconfigure", "phases/step", "internal/config",
		"internal/encryption", "internal/reconfiguring", "internal/ui",
	},
	"cmd/slipway/etcd": {
		"cmd/slipway/cli", "cmd/slipway/env", "phases/maintenance", "phases/node", "phases/recovery", "phases/snapshot", "phases/step",
		"internal/config", "internal/etcd", "internal/fault", "internal/host", "internal/snapshots", "internal/ui",
	},
	"cmd/slipway/node": {
		"cmd/slipway/cli", "cmd/slipway/env", "phases", "phases/bootstrap", "phases/machine", "phases/reset", "phases/snapshot", "phases/step",
		"preflight", "internal/bundle", "internal/config", "internal/containerd", "internal/fault", "internal/host",
		"internal/host/linux", "internal/joining", "internal/thisnode", "internal/ui",
	},
	"cmd/slipway/reconfigure": {
		"cmd/slipway/cli", "cmd/slipway/env", "phases/address", "phases/reconfigure", "phases/step", "phases/trial",
		"internal/config", "internal/fault", "internal/host", "internal/host/linux", "internal/reconfiguring", "internal/retry", "internal/ui",
	},
	"cmd/slipway/token": {"cmd/slipway/cli", "cmd/slipway/env", "phases/bootstrap", "internal/config", "internal/tokens", "internal/ui"},
	"cmd/slipway/upgrade": {
		"cmd/slipway/cli", "cmd/slipway/env", "phases/edits", "phases/node", "phases/rollback", "phases/step", "phases/upgrade", "preflight",
		"internal/cluster", "internal/config", "internal/fault", "internal/inventory", "internal/joining", "internal/plan",
		"internal/redact", "internal/thisnode", "internal/ui", "internal/upgrading",
	},
	"cmd/slipway": {
		"cmd/slipway/bundle", "cmd/slipway/certs", "cmd/slipway/cli", "cmd/slipway/config", "cmd/slipway/diagnose",
		"cmd/slipway/encryption", "cmd/slipway/etcd", "cmd/slipway/node", "cmd/slipway/reconfigure", "cmd/slipway/token", "cmd/slipway/upgrade",
		"phases", "phases/bootstrap", "phases/machine", "phases/reset", "phases/step", "phases/upgrade", "preflight", "internal/config", "internal/fault", "internal/ui",
	},
}

// onlyIn bans an import outside the packages it names. A name that ends with a slash includes all packages below.
var onlyIn = []struct {
	imported, reason string
	packages         []string
}{
	{"github.com/spf13/cobra", "commands are made in one place", []string{"cmd/slipway/"}},
	{"github.com/spf13/pflag", "flags are in one table, or in the file of their command", []string{"cmd/slipway/", "internal/config"}},
	{"github.com/coreos/go-systemd/", "only the host's seam talks to systemd, or a dry run would too", []string{"internal/host/linux/systemd"}},
	{"os/exec", "only the host's seam runs programs", []string{"internal/host/linux/"}},
	{"go.etcd.io/etcd/", "only the membership's seam talks to etcd, or a dry run would too", []string{"internal/etcd"}},
	{"filippo.io/age", "only the package that knows sealed snapshots encrypts", []string{"internal/snapshots"}},
	{"go.etcd.io/bbolt", "only the package that knows etcd's buckets opens its database", []string{"internal/etcd"}},
	{"go.etcd.io/etcd/server/v3/storage/mvcc", "etcd's storage engine makes every start too slow: docs/design/etcd-restore.md", nil},
	{"k8s.io/client-go/dynamic", "only the cluster's seam talks to the API, or a dry run would too", []string{"internal/cluster"}},
	{"k8s.io/client-go/rest", "only the cluster's seam talks to the API, or a dry run would too", []string{"internal/cluster"}},
	{"k8s.io/client-go/kubernetes", "the typed clientset makes every start too slow: docs/design/api-requests.md", nil},
	{"k8s.io/cluster-bootstrap/token/util", "it compiles its expressions at every start, config.NewToken does without", nil},
	{"k8s.io/kubernetes", "the product stands on published libraries", nil},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func TestImportsRunDownwards(t *testing.T) {
	for _, p := range productPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("package %s has no place in the picture: add it to mayImport and to docs/architecture.md", name)
			continue
		}
		for _, imported := range p.Imports {
			ours, isOurs := strings.CutPrefix(imported, module)
			if isOurs && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s, which it may not", name, ours)
			}
		}
		for _, ours := range allowed {
			if !slices.Contains(p.Imports, module+ours) {
				t.Errorf("%s may import %s, and doesn't: delete that from mayImport", name, ours)
			}
		}
	}
}

func TestImportsStayInTheirPlace(t *testing.T) {
	for _, p := range productPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, ban := range onlyIn {
			for _, imported := range p.Imports {
				hit := imported == strings.TrimSuffix(ban.imported, "/") || strings.HasPrefix(imported, strings.TrimSuffix(ban.imported, "/")+"/")
				if hit && !slices.ContainsFunc(ban.packages, func(p string) bool { return name == p || strings.HasSuffix(p, "/") && strings.HasPrefix(name+"/", p) }) {
					t.Errorf("%s imports %s: %s", name, imported, ban.reason)
				}
			}
			if len(ban.packages) == 0 && slices.ContainsFunc(p.Deps, func(d string) bool { return d == ban.imported || strings.HasPrefix(d, ban.imported+"/") }) {
				t.Errorf("%s depends on %s: %s", name, ban.imported, ban.reason)
			}
		}
	}
}

// productPackages lists the product's packages, without tests and lab.
func productPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.ImportPath, module+"test/") {
			list = append(list, p)
		}
	}
	if len(list) < len(mayImport)/2 {
		t.Fatalf("go list found %d packages only", len(list))
	}
	return list
}
