// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var _ View = host.Host(nil)

func names(checks []Check) []string {
	var out []string
	for _, c := range checks {
		out = append(out, c.Name)
	}
	return out
}

func TestInitNames(t *testing.T) {
	common := []string{
		"IsPrivilegedUser", "ExistingCluster", "NumCPU", "Mem", "KubernetesVersion",
		"Port-6443", "Port-10259", "Port-10257", "AnonymousAccess",
		"FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml",
		"FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml",
		"FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml",
		"FileAvailable--etc-kubernetes-manifests-etcd.yaml",
		"HTTPProxy", "HTTPProxyCIDR",
		"CRI", "ContainerRuntimeVersion", "CgroupDriver",
		"FileExisting-losetup", "FileExisting-mount", "FileExisting-cp",
		"SystemVerification", "KernelModules", "KernelDefaults", "Patches", "Hostname", "DNSLoop", "ResolvConf", "ControlPlaneEndpoint", "KubeletVersion", "Service-kubelet", "Swap",
		"WritableFolders", "DiskSpace-kubernetes", "DiskSpace-kubelet", "DiskSpace-runtime", "Firewalld", "MTU",
	}
	const v4, v6 = "FileContent--proc-sys-net-ipv4-ip_forward", "FileContent--proc-sys-net-ipv6-conf-default-forwarding"
	rest := []string{"Port-10250", "PodSubnetRoutes", "ServiceSubnetRoutes"}
	local := []string{"Port-2379", "Port-2380", "EtcdImageTag", "DirAvailable--var-lib-etcd", "EtcdDisk", "DiskSpace-etcd"}
	for _, tt := range []struct {
		name   string
		change func(*config.Node)
		want   []string
	}{
		{"default", func(*config.Node) {}, slices.Concat(common, []string{v4}, rest, local)},
		{"dual stack", func(n *config.Node) { n.Cluster.Networking.ServiceSubnet = "10.96.0.0/16,fd00:2::/112" },
			slices.Concat(common, []string{v4, v6}, rest, local)},
		{"IPv6 only", func(n *config.Node) { n.Cluster.Networking.ServiceSubnet = "fd00:2::/112" },
			slices.Concat(common, []string{v6}, rest, local)},
		{"external etcd", func(n *config.Node) { n.Cluster.Etcd = config.Etcd{External: &config.ExternalEtcd{}} },
			slices.Concat(common, []string{v4}, rest, []string{"ExternalEtcdVersion", "ExternalEtcdClientCertificates"})},
		{"ports and directory", func(n *config.Node) {
			n.BindPort, n.Kubelet.Port, n.Cluster.Etcd.Local.DataDir = 8443, 11250, "/data/etcd"
		},
			replaced(slices.Concat(common, []string{v4}, rest, local), map[string]string{
				"Port-6443": "Port-8443", "Port-10250": "Port-11250", "DirAvailable--var-lib-etcd": "DirAvailable--data-etcd"})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := controlPlaneNode()
			tt.change(n)
			if diff := cmp.Diff(tt.want, names(Init(n, nil))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func replaced(list []string, by map[string]string) []string {
	out := slices.Clone(list)
	for i, s := range out {
		if r, ok := by[s]; ok {
			out[i] = r
		}
	}
	return out
}

func TestHealthyHostHasNoFindings(t *testing.T) {
	r := Run(t.Context(), Init(controlPlaneNode(), nil), healthy(t), nil)
	delete(r, fault.Skipped)
	if diff := cmp.Diff(Report{}, r); diff != "" {
		t.Error(diff)
	}
}

func checkWith(name string, found ...fault.Finding) Check {
	return Check{Name: name, Run: func(context.Context, View) []fault.Finding { return slices.Clone(found) }}
}

func TestRunSortsByCheckAndSeverity(t *testing.T) {
	checks := []Check{
		checkWith("A", fail("a1")[0], warn("a2")[0], note("a3")[0]),
		checkWith("B"),
		checkWith("CRI", fail("c1")[0], fail("c2")[0]),
		checkWith(fault.EtcdQuorum, fail("e1")[0]),
	}
	for _, tt := range []struct {
		name     string
		ignore   []string
		warnings []string
		errors   []string
	}{
		{"none ignored", nil, []string{"[WARNING A]: a2"}, []string{"[ERROR A]: a1", "[ERROR CRI]: c1", "[ERROR CRI]: c2", "[ERROR EtcdQuorum]: e1"}},
		{"one ignored, in another case", []string{"numcpu", "cri"},
			[]string{"[WARNING A]: a2", "[WARNING CRI]: c1", "[WARNING CRI]: c2"}, []string{"[ERROR A]: a1", "[ERROR EtcdQuorum]: e1"}},
		{"all ignored", []string{"all"},
			[]string{"[WARNING A]: a1", "[WARNING A]: a2", "[WARNING CRI]: c1", "[WARNING CRI]: c2"}, []string{"[ERROR EtcdQuorum]: e1"}},
		{"a guard of data by its name", []string{"A", "etcdquorum"},
			[]string{"[WARNING A]: a1", "[WARNING A]: a2", "[WARNING EtcdQuorum]: e1"}, []string{"[ERROR CRI]: c1", "[ERROR CRI]: c2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Run(t.Context(), checks, healthy(t), tt.ignore)
			if diff := cmp.Diff([]string{"[NOTE A]: a3"}, texts(r[fault.Note])); diff != "" {
				t.Error("notes:", diff)
			}
			if diff := cmp.Diff(tt.warnings, texts(r[fault.Warning])); diff != "" {
				t.Error("warnings:", diff)
			}
			if diff := cmp.Diff(tt.errors, texts(r[fault.Error])); diff != "" {
				t.Error("errors:", diff)
			}
		})
	}
}

// texts begin with the severity and the name, as errors and warnings do themselves.
func texts(found []fault.Finding) []string {
	var out []string
	for _, f := range found {
		if severity, quiet := map[fault.Severity]string{fault.Note: "NOTE", fault.Skipped: "SKIPPED", fault.Unasked: "UNASKED"}[f.Severity]; quiet {
			out = append(out, "["+severity+" "+f.Name+"]: "+f.String())
		} else {
			out = append(out, f.String())
		}
	}
	return out
}

func TestErrListsEveryFault(t *testing.T) {
	r := Run(t.Context(), []Check{checkWith("NumCPU", fail("one CPU").remedy("add one")[0]), checkWith("CRI", fail("c1")[0], fail("c2")[0])}, healthy(t), nil)
	err := errors.Wrap(r.Err(), "phase preflight")
	fact.Error(t, err, "phase preflight")
	const list = ":\n" +
		"\t[ERROR NumCPU]: one CPU\n" +
		"\t  add one\n" +
		"\t[ERROR CRI]: c1\n" +
		"\t[ERROR CRI]: c2"
	if !strings.HasSuffix(err.Error(), list) {
		t.Errorf("got\n%s\nwant the list\n%s", err, list)
	}
	fact.In(t, fault.Remedy(err), "--ignore-preflight-errors=NumCPU,CRI")
	if failed := (*FailedError)(nil); !errors.As(err, &failed) || len(failed.Findings) != 3 {
		t.Error("the error does not have its findings")
	}
	guard := Run(t.Context(), []Check{checkWith(fault.EtcdQuorum, fail("e1")[0]), checkWith("CRI", fail("c1")[0])}, healthy(t), []string{"all"}).Err()
	fact.In(t, fault.Remedy(guard), "--ignore-preflight-errors="+fault.EtcdQuorum, "`all`")
	if err := (Report{fault.Warning: warn("w")}).Err(); err != nil {
		t.Errorf("a warning became the error %v", err)
	}
}

func TestEachCheckHasADeadline(t *testing.T) {
	var left time.Duration
	c := Check{Name: "A", Limit: time.Minute, Run: func(ctx context.Context, _ View) []fault.Finding {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return nil
	}}
	Run(t.Context(), []Check{c}, healthy(t), nil)
	if left < 50*time.Second || left > time.Minute {
		t.Errorf("limit of a minute: %v left", left)
	}
	c.Limit = 0
	Run(t.Context(), []Check{c}, healthy(t), nil)
	if left < defaultTimeout-10*time.Second || left > defaultTimeout {
		t.Errorf("no limit of its own: %v left", left)
	}
}

// expect compares findings with a line for each: severity and name, and the facts. An error or a warning has a remedy.
func expect(t *testing.T, found []fault.Finding, lines ...string) {
	t.Helper()
	fact.List(t, texts(found), lines...)
	for _, f := range found {
		if (f.Severity == fault.Error || f.Severity == fault.Warning) && f.Remedy == "" {
			t.Errorf("%q does not say what to do", f)
		}
	}
}
