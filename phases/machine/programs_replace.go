// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// mayReplace reports whether a part of the bundle goes to a path where another file may be. An earlier bundle's unedited file is
// replaced, unless it's newer on a node. Any other file is used instead of the bundle's, unless it has to fit the rest.
func (p *Prepare) mayReplace(ctx context.Context, env *step.Env, part bundle.Part, path string) (write bool, refusal, err error) {
	if _, err := env.Host.Lstat(path); err != nil {
		return true, nil, host.IgnoreMissing(err)
	}
	hasToFit := part.Type == bundle.Program && (part.Name == "kubelet" || runtimePrograms[part.Name])
	switch {
	case env.Host.Unchanged(path):
		refusal, err = p.olderOnNode(ctx, env, part, path)
		return refusal == nil, refusal, err
	case hasToFit && env.Host.CreatedBySlipway(path):
		return false, fault.New(path+" was changed since a bundle put it there, and stays",
			"to keep it, skip the phase with --skip-phases="+p.phase("programs")+"; to get the bundle's, remove it and run the same command again"), nil
	case hasToFit:
		return false, fault.New(path+" is not from a bundle, and differs from the one in this bundle",
			"remove it if nothing needs it, and run the same command again"), nil
	}
	return false, nil, nil
}

// versioned are the programs that tell their version. A bundle's other programs go with them.
var versioned = map[string]bool{"kubelet": true, "containerd": true, "runc": true}

// olderOnNode refuses a program that is, or may be, older than the node's program it would replace: an older bundle has a valid
// signature, too, and faults the newer lacks.
func (p *Prepare) olderOnNode(ctx context.Context, env *step.Env, part bundle.Part, path string) (refusal, err error) {
	if part.Type != bundle.Program || !versioned[part.Name] || p.AllowDowngrade {
		return nil, nil
	}
	if sign, err := thisnode.NodeEvidence(env.Host, env.Machine.Paths); err != nil || sign == "" {
		return nil, err
	}
	text, err := env.Host.ProgramVersion(ctx, path)
	const remedy = "get a newer bundle; to replace it by an older one on purpose, add --allow-downgrade"
	have, want := versionIn(text), versionIn(part.Version)
	switch {
	case err != nil:
		return fault.New(fmt.Sprintf("cannot tell whether %s is newer than the bundle's: %v", path, err), remedy), nil
	case have == nil || want == nil:
		return fault.New(fmt.Sprintf("cannot tell whether %s (%q) is newer than the bundle's (%q)", path, text, part.Version), remedy), nil
	case want.LessThan(have):
		return fault.New(fmt.Sprintf("%s is v%s on this node, and the bundle's v%s is older", path, have, want), remedy), nil
	}
	return nil, nil
}

// olderThanOther refuses the bundle's kubelet if the node runs a newer kubelet from elsewhere: the bundle's replaces that, too.
func (p *Prepare) olderThanOther(ctx context.Context, env *step.Env, unit host.UnitState) (refusal, err error) {
	other := unit.Program
	if other == "" {
		if other, err = env.Host.LookPath("kubelet"); err != nil {
			return nil, nil //nolint:nilerr // there is none
		}
	}
	part := p.program("kubelet")
	if part == nil || strings.HasPrefix(other, programDir+"/") { // mayReplace compares with it
		return nil, nil
	}
	return p.olderOnNode(ctx, env, *part, other)
}

// versionIn is the first version in a program's output, such as containerd github.com/containerd/containerd/v2 v2.2.0 1c4457e,
// without a build's suffix: Debian's runc is 1.1.5+ds1-1+deb12u1. It's nil if there is none.
func versionIn(text string) *version.Version {
	for _, word := range strings.Fields(text) {
		if i := strings.IndexAny(word, "+~"); i >= 0 {
			word = word[:i]
		}
		if v, err := version.ParseSemantic(word); err == nil {
			return v
		}
	}
	return nil
}

// skewChecks check the bundle's kubelet if it replaces another on a node. After an interrupted init, there's no API server to
// ask, and the node has the kubelet of the bundle to continue with.
func (p *Prepare) skewChecks(ctx context.Context, env *step.Env) []preflight.Check {
	if _, err := env.Host.Lstat(env.Machine.Paths.KubeletKubeconfig()); err != nil || !p.replacesKubelet(ctx, env) {
		return nil
	}
	if !p.Alone {
		return []preflight.Check{preflight.SameKubelet(p.Bundle.Index().KubernetesVersion)}
	}
	controlPlane, err := controlPlaneVersion(ctx, env)
	return []preflight.Check{preflight.BundledKubelet(p.Bundle.Index().KubernetesVersion, controlPlane, err)}
}

// replacesKubelet reports whether the bundle has a kubelet that will replace this host's.
func (p *Prepare) replacesKubelet(ctx context.Context, env *step.Env) bool {
	if !p.startsKubelet(ctx, env) {
		return false
	}
	f, _ := fileOf(env.Host, *p.program("kubelet"))
	same, err := env.Host.HasFile(f)
	return err != nil || !same
}

// controlPlaneVersion is the version of this node's API server or, on a worker, of the cluster's configuration: the control plane
// was upgraded to it first.
func controlPlaneVersion(ctx context.Context, env *step.Env) (string, error) {
	path := env.Machine.Paths.StaticPod(manifests.APIServerName)
	if data, err := env.Host.ReadFile(path); err == nil {
		version, err := upgrading.VersionOf(data)
		if err == nil && version == "" {
			err = errors.New("its image has no version")
		}
		return version, errors.WithMessage(err, path)
	}
	stored, err := joining.StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return "", err
	}
	return config.StoredVersion(stored)
}
