// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestHostResetOfNode refuses while this host is a node. A directory for static Pods, which the kubelet's packages bring, and
// files in it that the kubelet doesn't read, don't make it one.
func TestHostResetOfNode(t *testing.T) {
	for path, refused := range map[string]bool{
		"/etc/kubernetes/manifests/.etcd.yaml":          false,
		"/etc/kubernetes/manifests/old/kube-vip.yaml":   false,
		"/etc/kubernetes/manifests/kube-apiserver.yaml": true,
		"/etc/kubernetes/kubelet.conf":                  true,
		"/etc/kubernetes/bootstrap-kubelet.conf":        true,
	} {
		h, root := newBareHost(t)
		fixture.Put(t, root, path, "x")
		var out bytes.Buffer
		err := step.Run(t.Context(), h.env(&out), Reset(), step.Options{Serial: true})
		if err != nil {
			env := h.env(&out)
			env.Machine.IgnorePreflightErrors = []string{"nonode"}
			fact.Error(t, step.Run(t.Context(), env, Reset(), step.Options{Serial: true}))
			phasetest.Once(t, out.String(), phasetest.Line{"[WARNING] NoNode:", path})
		}
		if refused {
			fact.Error(t, err, "NoNode", path)
		} else {
			fact.Error(t, err)
		}
	}
}

// TestHostResetOfDisks: a new file system at a directory of containerd's counts as empty, and becomes empty again.
func TestHostResetOfDisks(t *testing.T) {
	for name, p := range map[string]*Prepare{"filled": {Bundle: testBundle(t, "v1.37.2")}, "never used": {}} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			fixture.Put(t, root, "/mnt/disk/lost+found/x", "of a check")
			fixture.Put(t, root, "/var/lib/other", "")
			phasetest.Fatal(t, os.Symlink("../../mnt/disk", filepath.Join(root, containerd.DataDir)))
			h.mustPrepare(t, p)
			if p.Bundle != nil {
				fixture.Put(t, root, "/mnt/disk/io.containerd.metadata.v1.bolt/meta.db", "x")
			}
			said, err := h.resetHost(t)
			fact.Error(t, err)
			entries, err := h.ReadDir("/mnt/disk")
			if err != nil || len(entries) != 1 || entries[0].Name() != host.LostAndFound {
				t.Errorf("the disk has %v, %v", entries, err)
			}
			if _, err := h.Lstat(containerd.DataDir); err != nil || strings.Contains(said, "[WARNING]") {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// TestHostResetOfNamespaces leaves network namespaces others have made since the host was prepared.
func TestHostResetOfNamespaces(t *testing.T) {
	for name, others := range map[string][]string{"with others'": {"mine", "netns-podman"}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
			table := ""
			for i, name := range append([]string{"cni-1", "cni-2"}, others...) {
				fixture.Put(t, root, "/run/netns/"+name, "")
				table += fmt.Sprintf("%d 21 0:4 net:[1] /run/netns/%s rw - nsfs nsfs rw\n", 30+i, name)
			}
			fixture.Put(t, root, "/proc/self/mountinfo", table)
			var out bytes.Buffer
			env := h.env(&out)
			for range 2 {
				if err := step.Run(t.Context(), env, Reset(), step.Options{Serial: true}); err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				var left []string
				entries, err := h.ReadDir("/run/netns")
				for _, e := range entries {
					left = append(left, e.Name())
				}
				if !slices.Equal(left, others) || (others == nil) != errors.Is(err, fs.ErrNotExist) {
					t.Errorf("left %v, %v", left, err)
				}
			}
			if diff := cmp.Diff([]string{"/run/netns/cni-1", "/run/netns/cni-2"}, h.Did("unmount")); diff != "" {
				t.Errorf("unmounted (-want +got):\n%s", diff)
			}
		})
	}
}
