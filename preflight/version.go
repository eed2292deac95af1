// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// newest is the Kubernetes version this program was made for.
func newest() *version.Version { return version.MustParseSemantic(config.DefaultKubernetesVersion) }

func kubernetesVersion(_ context.Context, _ View, wanted string) []fault.Finding {
	v, err := version.ParseSemantic(wanted)
	if err != nil {
		return fail("invalid Kubernetes version %q (expected something like %s)", wanted, config.DefaultKubernetesVersion).
			remedy("set kubernetesVersion or --kubernetes-version")
	}
	if releases.Minor(newest()).LessThan(releases.Minor(v)) {
		return warn("Kubernetes %s is newer than this program, which was made for %s", v, releases.Minor(newest())).
			remedy("use a release of this program for Kubernetes %s", releases.Minor(v))
	}
	return nil
}

func kubeletVersion(ctx context.Context, h View, controlPlane string) []fault.Finding {
	have, err := InstalledKubelet(ctx, h)
	if errors.Is(err, host.ErrNotInPlan) {
		return unasked("the version of a kubelet that is not installed yet")
	}
	if err != nil {
		return fail("cannot read the kubelet's version: %v", err).remedy("%s", cmp.Or(fault.Remedy(err), "install kubelet "+controlPlane))
	}
	want, err := version.ParseSemantic(controlPlane)
	if err != nil {
		return nil // the check KubernetesVersion reports it
	}
	return skew(have, want)
}

// skew compares the versions of a kubelet and its control plane.
func skew(have, want *version.Version) []fault.Finding {
	if releases.Minor(want).LessThan(releases.Minor(have)) {
		return fail("the kubelet (v%s) is newer than the control plane (v%s), which is not supported", have, want).
			remedy("install kubelet %s, or choose a newer control plane with --kubernetes-version", releases.Minor(want))
	}
	if oldest := want.OffsetMinor(-releases.KubeletSkew); releases.Minor(have).LessThan(releases.Minor(oldest)) {
		return fail("the kubelet (v%s) is older than %s, the oldest for a control plane of %s", have, releases.Minor(oldest), releases.Minor(want)).
			remedy("install kubelet %s", releases.Minor(want))
	}
	return nil
}

// BundledKubelet checks a bundle's kubelet on a node, where it would replace another. controlPlane is the cluster's version,
// unknown is why it isn't known.
func BundledKubelet(bundled, controlPlane string, unknown error) Check {
	return Check{
		Name: "KubeletVersion", Description: "the bundle's kubelet is not newer than the control plane, at most three minor versions older, and no older minor version than the installed one",
		Run: func(ctx context.Context, h View) []fault.Finding {
			if errors.Is(unknown, fs.ErrPermission) {
				return skip("only root can ask this node's cluster for its version")
			}
			if unknown != nil {
				return fail("this host is a node, and the version of its cluster is not known: %v", unknown).
					remedy("make sure that the API server can be reached; the kubelet must not become newer than it")
			}
			have, err := version.ParseSemantic(bundled)
			if err != nil {
				return fail("the bundle's version of Kubernetes %q is not a version", bundled).remedy("make the bundle again")
			}
			want, err := version.ParseSemantic(controlPlane)
			if err != nil {
				return fail("the cluster's version %q is not a version", controlPlane).remedy("check ConfigMap kube-system/kubeadm-config")
			}
			if now, err := InstalledKubelet(ctx, h); err == nil && releases.Minor(have).LessThan(releases.Minor(now)) {
				return fail("the bundle's kubelet (v%s) is older than the installed one (v%s), and a kubelet cannot go back on a node", have, now).
					remedy("use a bundle of v%s or newer", releases.Minor(now))
			}
			return findings(skew(have, want)).remedy("use a bundle of v%s", releases.Minor(want))
		},
	}
}

// SameKubelet checks the bundle's kubelet when `up` runs on a node again: up neither upgrades a node nor takes it back.
func SameKubelet(bundled string) Check {
	return Check{
		Name: "KubeletVersion", Description: "on a node, the bundle of `up` has the version of the installed kubelet",
		Run: func(ctx context.Context, h View) []fault.Finding {
			if _, err := kubeletPath(ctx, h); err != nil { // then none is replaced
				return nil
			}
			now, err := InstalledKubelet(ctx, h)
			if err != nil {
				return fail("this host is a node, and the version of its kubelet cannot be read: %v", err).
					remedy("%s", cmp.Or(fault.Remedy(err), "use the bundle that this node was made with"))
			}
			if have, err := version.ParseSemantic(bundled); err == nil && have.EqualTo(now) {
				return nil
			}
			return fail("this host is a node with kubelet v%s, the bundle is for %s, and `up` does not change the version of a node", now, bundled).
				remedy("use a bundle of v%s; to upgrade, begin with `slipway upgrade plan %s`", now, bundled)
		},
	}
}

// InstalledKubelet returns the version of this host's kubelet.
func InstalledKubelet(ctx context.Context, h View) (*version.Version, error) {
	path, err := kubeletPath(ctx, h)
	if err != nil {
		return nil, err
	}
	text, err := h.ProgramVersion(ctx, path)
	if err != nil {
		return nil, err
	}
	return version.ParseSemantic(strings.TrimPrefix(text, "Kubernetes "))
}

// kubeletPath returns the kubelet that kubelet.service starts or, if there's none, the first in PATH: a host may have a package's and
// a bundle's. The unit's files tell it in a plan and in an image's root file system, too. For a user who may not read them, systemd does.
func kubeletPath(ctx context.Context, h View) (string, error) {
	if path, _ := thisnode.KubeletProgram(h); isKubelet(h, path) {
		return path, nil
	}
	if unit, err := h.Unit(ctx, kubeletUnit); err == nil && isKubelet(h, unit.Program) {
		return unit.Program, nil
	}
	return h.LookPath("kubelet")
}

// isKubelet reports whether a unit's program is a kubelet's file. Others are wrappers, or missing.
func isKubelet(h View, path string) bool {
	if !filepath.IsAbs(path) || filepath.Base(path) != "kubelet" {
		return false
	}
	info, err := h.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
