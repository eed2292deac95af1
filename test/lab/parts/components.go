// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// program is built from a component module, whose go.mod pins its version.
type program struct {
	component string // directory below test/lab/components, without the release's ending
	pkg       string // import path, or the directory of one of the lab's own main packages
	name      string // of the executable
}

// Components with a version of their own in each release. The version of kubernetes is linked into its programs, as nothing in
// the module itself says it.
const (
	kubernetes = "kubernetes"
	etcd       = "etcd"
	coredns    = "coredns"
)

// flannel is the component of the Pod network flannel, the same in all releases.
const flannel = "flannel"

// release is a minor version of Kubernetes, with the etcd and CoreDNS that its kubeadm chooses. The first is the default.
type release struct {
	name string
	// older maps older components to their directories' endings.
	older map[string]string
}

var releases = []release{
	{"1.37", nil},
	{"1.36", map[string]string{kubernetes: "-1.36", etcd: "-3.6", coredns: "-1.14.2"}},
	{"1.35", map[string]string{kubernetes: "-1.35", etcd: "-3.6", coredns: "-1.14.2"}}, // kubeadm 1.35 has older patch releases
}

// dir returns a component's directory below test/lab/components.
func (r release) dir(component string) string { return component + r.older[component] }

// programs are in build order: the API server takes longest and shares most packages with the others.
var programs = []program{
	{kubernetes, "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"},
	{kubernetes, "k8s.io/kubernetes/cmd/kubelet", "kubelet"},
	{kubernetes, "k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager"},
	{kubernetes, "k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"},
	{kubernetes, "k8s.io/kubernetes/cmd/kube-proxy", "kube-proxy"},
	{kubernetes, "k8s.io/kubernetes/cmd/kubectl", "kubectl"},
	{kubernetes, "k8s.io/kubernetes/cmd/kubeadm", "kubeadm"},
	{etcd, "go.etcd.io/etcd/server/v3", "etcd"},
	{etcd, "go.etcd.io/etcd/etcdctl/v3", "etcdctl"},
	{coredns, "./coredns", "coredns"},
	{"containerd", "github.com/containerd/containerd/v2/cmd/containerd", "containerd"},
	{"containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", "containerd-shim-runc-v2"},
	{"containerd", "github.com/containerd/containerd/v2/cmd/ctr", "ctr"},
	{"crictl", "sigs.k8s.io/cri-tools/cmd/crictl", "crictl"},
	{"cni", "github.com/containernetworking/plugins/plugins/main/bridge", "bridge"},
	{"cni", "github.com/containernetworking/plugins/plugins/main/loopback", "loopback"},
	{"cni", "github.com/containernetworking/plugins/plugins/main/ptp", "ptp"},
	{"cni", "github.com/containernetworking/plugins/plugins/ipam/host-local", "host-local"},
	{"cni", "github.com/containernetworking/plugins/plugins/meta/portmap", "portmap"},
	{flannel, flannelModule, "flanneld"},
	{flannel, flannelModule + "/cmd/install_conf", "install-conf"},
	{"flannel-cni", "github.com/containernetworking/plugins/plugins/meta/flannel", "flannel"},
	{"pause", ".", "pause"},
	{"probe", ".", "probe"},
	{"kubeadm-suite", "k8s.io/kubernetes/test/e2e_kubeadm", "e2e_kubeadm.test"},
}

// isTest reports whether the program is a package's tests. Only those who ask for it by name get it.
func (p program) isTest() bool { return strings.HasSuffix(p.name, ".test") }

// ofRelease reports whether each release has its own version of the program.
func (p program) ofRelease() bool {
	return p.component == kubernetes || p.component == etcd || p.component == coredns
}

func programNamed(name string) (program, error) {
	at := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
	if at < 0 {
		return program{}, errors.Errorf("the lab has no program %q", name)
	}
	return programs[at], nil
}

// onNode maps the programs that run on a node itself to their paths; the others run from images only. Only some nodes have
// kubeadm: see Need.
var onNode = map[string]string{
	"kubelet":                 "usr/bin/kubelet",
	"kubectl":                 "usr/bin/kubectl",
	Kubeadm:                   "usr/local/bin/kubeadm",
	"containerd":              "usr/local/bin/containerd",
	"containerd-shim-runc-v2": "usr/local/bin/containerd-shim-runc-v2",
	"ctr":                     "usr/local/bin/ctr",
	"etcd":                    "usr/local/bin/etcd", // for clusters whose etcd is external
	"etcdctl":                 "usr/local/bin/etcdctl",
	"bridge":                  "opt/cni/bin/bridge",
	"loopback":                "opt/cni/bin/loopback",
	"ptp":                     "opt/cni/bin/ptp",
	"host-local":              "opt/cni/bin/host-local",
	"portmap":                 "opt/cni/bin/portmap",
}

// Versions in the images' names, with a leading v.
type Versions struct {
	Kubernetes, Etcd, CoreDNS, Flannel string
}

// readVersions reads the versions from the component modules' go.mod files.
func readVersions(components string, r release) (Versions, error) {
	var v Versions
	for _, row := range []struct {
		component, module string
		into              *string
	}{
		{kubernetes, "k8s.io/kubernetes", &v.Kubernetes},
		{etcd, "go.etcd.io/etcd/server/v3", &v.Etcd},
		{coredns, "github.com/coredns/coredns", &v.CoreDNS},
		{flannel, flannelModule, &v.Flannel},
	} {
		data, err := os.ReadFile(filepath.Join(components, r.dir(row.component), "go.mod"))
		if err != nil {
			return v, errors.Wrap(err, "cannot read a component's versions")
		}
		if *row.into, err = requiredVersion(string(data), row.module); err != nil {
			return v, errors.Wrapf(err, "component %s", r.dir(row.component))
		}
	}
	return v, nil
}

func requiredVersion(gomod, module string) (string, error) {
	line := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + `\s+(v\S+)`)
	found := line.FindStringSubmatch(gomod)
	if found == nil {
		return "", errors.Errorf("its go.mod does not require %s", module)
	}
	return found[1], nil
}

// linkerFlags returns the -ldflags for a component's programs.
func linkerFlags(component string, v Versions) string {
	const flags = "-s -w"
	switch component {
	case kubernetes:
		const pkg = " -X k8s.io/component-base/version."
		number := strings.SplitN(strings.TrimPrefix(v.Kubernetes, "v"), ".", 3)
		return flags + pkg + "gitVersion=" + v.Kubernetes + pkg + "gitMajor=" + number[0] +
			pkg + "gitMinor=" + number[1] + pkg + "gitTreeState=clean"
	case flannel:
		return flags + " -X " + flannelModule + "/pkg/version.Version=" + v.Flannel
	}
	return flags
}
