// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
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
	case hasToFit && env.Host.Made(path):
		return false, fault.New(path+" was changed since a bundle put it there, and stays",
			"to keep it, skip the phase with --skip-phases="+p.phase("programs")+"; to get the bundle's, remove it and run the same command again"), nil
	case hasToFit:
		return false, fault.New(path+" is not from a bundle, and differs from the one in this bundle",
			"remove it if nothing needs it, and run the same command again"), nil
	}
	return false, nil, nil
}

// refusedPrograms are found before anything changes, unless the programs are left out.
func (p *Prepare) refusedPrograms(ctx context.Context, env *step.Env) ([]error, error) {
	if slices.Contains(env.Config.SkipPhases, "programs") {
		return nil, nil
	}
	pending, err := p.pendingFiles(ctx, env)
	return pending.refused, err
}

// versioned are the programs that tell their version. A bundle's other programs go with them.
var versioned = map[string]bool{"kubelet": true, "containerd": true, "runc": true}

// olderOnNode refuses a program that is, or may be, older than the node's program it would replace: an older bundle has a valid
// signature, too, and faults the newer lacks.
func (p *Prepare) olderOnNode(ctx context.Context, env *step.Env, part bundle.Part, path string) (refusal, err error) {
	if part.Type != bundle.Program || !versioned[part.Name] || p.AllowDowngrade {
		return nil, nil
	}
	if sign, err := thisnode.Sign(env.Host, env.Config); err != nil || sign == "" {
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
func (p *Prepare) olderThanOther(ctx context.Context, env *step.Env, unit host.UnitState) (refused []error, err error) {
	other := unit.Program
	if other == "" {
		if other, err = env.Host.LookPath("kubelet"); err != nil {
			return nil, nil //nolint:nilerr // there is none
		}
	}
	if strings.HasPrefix(other, programDir+"/") { // mayReplace compares with it
		return nil, nil
	}
	for _, part := range p.parts() {
		if part.Type != bundle.Program || part.Name != "kubelet" {
			continue
		}
		refusal, err := p.olderOnNode(ctx, env, part, other)
		if err != nil || refusal == nil {
			return nil, err
		}
		return []error{refusal}, nil
	}
	return nil, nil
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
