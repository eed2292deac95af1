// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package capi lets the released controllers of Cluster API make, change and repair a cluster of the lab's bare machines, on which
// kubeadm is the link to Slipway. It needs root and the lab's parts.
package capi

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/test/capi/provider"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// labPrefix is the prefix of the lab's name, as in test/e2e.
var labPrefix = cmp.Or(os.Getenv("SLIPWAY_E2E_PREFIX"), "capi-")

const (
	program  = "../../bin/slipway"
	pinned   = "controllers" // the module with Cluster API
	manifest = "testdata/cluster.yaml"
	older    = "1.36"

	namespace, clusterName = "default", "lab"
	machineLimit           = 20 * time.Minute // for a machine to become a node, or to go
	pollEvery              = 2 * time.Second
)

// suite is the state that the scenarios share: the management cluster, and a cluster under Cluster API's management.
type suite struct {
	*testing.T
	lab        *provider.Lab
	management *nodes.Node
	config     *rest.Config  // of the management cluster
	client     client.Client // of the management cluster
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, provider.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// newSuite opens an empty lab, which goes at the test's end.
func newSuite(t *testing.T) *suite {
	t.Helper()
	lab, err := nodes.Open(nodes.Options{Name: labPrefix + "lab", BuildLog: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Down(t.Context()); err != nil { // left by an interrupted run
		t.Fatal(err)
	}
	s := &suite{T: t, lab: &provider.Lab{Lab: lab, Bundles: map[string]string{}}}
	t.Cleanup(func() {
		if used, err := lab.ProcessorTime(); err == nil {
			t.Logf("its machines used %.0fs of processor time", used.Seconds())
		}
		if err := lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, minor := range []string{"", older} {
		s.lab.Bundles[lab.VersionOf(minor)] = s.bundle(minor)
	}
	return s
}

// connect returns a client for a cluster in the lab's network.
func (s *suite) connect(kubeconfig []byte) (*rest.Config, client.Client) {
	s.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		s.Fatal(err)
	}
	config.Dial = s.lab.Dial
	c, err := client.New(config, client.Options{Scheme: newScheme(s.T)})
	if err != nil {
		s.Fatal(err)
	}
	return config, c
}

// must runs a command on the management cluster's machine.
func (s *suite) must(args ...string) string {
	s.Helper()
	out, err := s.management.Output(s.Context(), args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// eventually waits for a state. What's missing is in the error of the last look.
func (s *suite) eventually(what string, limit time.Duration, look func() error) {
	s.Helper()
	started := time.Now()
	for {
		err := look()
		if err == nil {
			s.Logf("%6.0fs: %s", time.Since(started).Seconds(), what)
			return
		}
		if time.Since(started) > limit {
			s.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(pollEvery)
	}
}

// explain prints what's needed to understand a failure.
func (s *suite) explain() {
	ctx := context.Background()
	show := func(node *nodes.Node, args ...string) {
		out, _ := node.Combined(ctx, args...)
		s.Logf("%s$ %s\n%s", node.Name(), strings.Join(args, " "), out)
	}
	all, _ := s.lab.Nodes()
	for _, node := range all {
		if node.Name() != s.management.Name() {
			show(node, "cloud-init", "status", "--long")
			show(node, "tail", "--lines=40", "/var/log/cloud-init-output.log")
		}
	}
	show(s.management, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "cluster-api", "-A", "-o", "wide")
	show(s.management, "journalctl", "--no-pager", "-o", "cat", "-u", "capi-*", "-n", "60")
}

// here runs a program on this machine.
func (s *suite) here(args ...string) {
	s.Helper()
	if out, err := exec.CommandContext(s.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		s.Fatalf("%q: %v\n%s", args, err, out)
	}
}

// bundle makes a bundle of a minor version of Kubernetes, with the newest's etcd and CoreDNS: it's Slipway that chooses those.
func (s *suite) bundle(minor string) string {
	s.Helper()
	list, newest := s.bundleList(minor), s.bundleList("")
	for i, part := range list.Parts {
		image, _, _ := strings.Cut(part.Name, ":")
		if !strings.HasSuffix(image, "/etcd") && !strings.HasSuffix(image, "/coredns") {
			continue
		}
		at := slices.IndexFunc(newest.Parts, func(p bundle.ListedPart) bool { return strings.HasPrefix(p.Name, image+":") })
		list.Parts[i] = newest.Parts[at]
	}
	data, err := yaml.Marshal(list)
	if err != nil {
		s.Fatal(err)
	}
	from, into := filepath.Join(s.TempDir(), bundle.ListName), filepath.Join(s.TempDir(), "bundle.tar")
	if err := os.WriteFile(from, data, 0o600); err != nil {
		s.Fatal(err)
	}
	s.here(program, "bundle", "create", "--from", from, "-o", into)
	return into
}

// bundleList reads the lab's list of a bundle's parts.
func (s *suite) bundleList(minor string) *bundle.List {
	s.Helper()
	dir, err := s.lab.BundleParts(s.Context(), minor)
	if err != nil {
		s.Fatal(err)
	}
	list, err := bundle.ReadList(dir)
	if err != nil {
		s.Fatal(err)
	}
	for i, part := range list.Parts {
		if !filepath.IsAbs(part.File) {
			list.Parts[i].File = filepath.Join(dir, part.File)
		}
	}
	return list
}
