// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine makes a bare host ready to become a node (host prepare): programs, container runtime, kernel settings, swap,
// images. It records all its changes, and takes exactly those back (host reset).
//
//   - prepare.go: Prepare, the phases of `host prepare`
//   - programs.go, programs_replace.go: the bundle's programs, and which present ones they may replace
//   - container_runtime.go, container_runtime_find.go: containerd's files and unit, and the runtimes that a host may already have
//   - kernel.go, memory_swap.go, kubelet.go, images.go: modules and parameters, swap, the kubelet's unit, and images
//   - record.go: the record of all changes
//   - reset.go and reset_*.go: the phases of `host reset`
package machine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

// Prepare makes a host ready for init or join: kernel, swap, container runtime, kubelet and images. If the host already has
// something good enough, it's used and never replaced.
type Prepare struct {
	// Bundle has the programs and images; nil does only the rest.
	Bundle *bundle.Bundle
	// BundleFile is the bundle's path, and BundleDigest its pin, for the commands that join other hosts.
	BundleFile, BundleDigest string
	// Alone means that nothing follows, so the last phase names the next step.
	Alone bool
	// ControlPlane is the control plane this host already is; nil if it isn't.
	ControlPlane *config.Node
	// KeepSwap leaves swap on; AllowDowngrade lets older programs replace a node's.
	KeepSwap, AllowDowngrade bool
	// Mirrors are containerd's sources for other registries' images.
	Mirrors []containerd.Mirror

	recording sync.Mutex // of the record
}

// Phases is the workflow of host prepare.
func (p *Prepare) Phases() []step.Phase {
	return []step.Phase{
		{Name: "preflight", Summary: "Check this host, its existing software, and the bundle",
			Flags: prepareFlags("allow-downgrade", "ignore-preflight-errors"), Run: p.runPreflight},
		{Name: "record", Summary: "Record this host's state, so that host reset can restore it", Flags: prepareFlags(), Run: p.runRecord},
		{Name: "kernel", Summary: "Load kernel modules and set kernel parameters, now and at boot", Flags: prepareFlags(), Run: runKernel},
		{Name: "swap", Summary: "Turn swap off, now and at boot, unless --swap=keep is given or the kubelet allows swap",
			Flags: prepareFlags("swap"), Run: p.runSwap, Needs: []string{"record"}},
		{Name: "programs", Summary: "Verify the bundle, and put its programs and units in place",
			Flags: prepareFlags("allow-downgrade"), Run: p.runPrograms, Needs: []string{"record"}},
		{Name: "container-runtime", Summary: "Write containerd's settings, or check the existing runtime, and start it",
			Flags: prepareFlags("registry-mirror"), Run: p.runContainerRuntime, Needs: []string{"kernel", "programs"}},
		{Name: "kubelet", Summary: "Write the kubelet's unit and drop-in, and enable it",
			Flags: prepareFlags(), Run: p.runKubelet, Needs: []string{"swap", "container-runtime"}},
		{Name: "images", Summary: "Import the bundle's images, pin them, and unpin those of an earlier bundle",
			Flags: prepareFlags(), Run: p.runImages, Needs: []string{"container-runtime"}},
		{Name: "verify", Summary: "Check that this host has everything init and join need",
			Flags: prepareFlags(), Run: p.runVerify, Needs: []string{"kubelet", "images"}},
	}
}

func (p *Prepare) runPreflight(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Checking this host")
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return err
	}
	if found.foreign() {
		if err := p.checkSandboxImage(ctx, env, found); err != nil && !errors.As(err, new(*host.RuntimeError)) { // the check CRI reports that
			return err
		}
	}
	var pending pendingFiles
	if !slices.Contains(env.Machine.SkipPhases, "programs") {
		if pending, err = p.pendingFiles(ctx, env); err != nil {
			return err
		}
	}
	if !slices.Contains(env.Machine.SkipPhases, "kubelet") {
		if err := p.refuseHidden(ctx, env); err != nil {
			pending.refused = append(pending.refused, err)
		}
	}
	parameters, err := wantedParameters(env.Host)
	if err != nil {
		return err
	}
	checks := preflight.Prepare(env.Machine, preflight.Preparation{
		Runtime: found.check(ctx, env), Sizes: p.sizes(ctx, env, found, pending), Parameters: parameters, SysctlFile: sysctlPath, Refused: pending.refused,
		Written: pending.directories(),
	})
	checks = append(append(checks, trial.NewUnfinishedCheck(env)), p.skewChecks(ctx, env)...)
	return node.Check(ctx, env, checks...)
}

// phase is a phase's name in the running command: on its own, or as a part of up.
func (p *Prepare) phase(name string) string {
	if p.Alone {
		return name
	}
	return "prepare/" + name
}

// prepareFlags are the flags of a phase's own command.
func prepareFlags(more ...string) []string {
	return append([]string{"bundle", "cri-socket", "digest", "dry-run", "public-key"}, more...)
}

// A bundle's programs go here.
const (
	programDir = "/usr/local/bin"
	cniDir     = "/opt/cni/bin"
)

// sizes are the bytes that this run adds, by directory: programs to put in place, and images that the runtime lacks. Of a runtime
// that doesn't run yet, nobody knows any images. A distribution's containerd says where it keeps them.
func (p *Prepare) sizes(ctx context.Context, env *step.Env, found hostRuntime, pending pendingFiles) map[string]uint64 {
	sizes := map[string]uint64{}
	for _, f := range pending.files {
		if dir := filepath.Dir(f.Path); dir == programDir || dir == cniDir {
			sizes[dir] += uint64(f.Size)
		}
	}
	if !found.takesImages() || slices.Contains(env.Machine.SkipPhases, "images") {
		return sizes
	}
	dir := ""
	if found.foreign() {
		dir, _ = env.Host.ImageDir(ctx, found.socket) // the check CRI reports an error
	}
	dir = cmp.Or(dir, containerd.DataDir)
	present, err := presentImages(ctx, env, found)
	if err != nil {
		present = nil
	}
	for _, part := range p.parts() {
		have, there := present[part.Name]
		there = there && part.ConfigDigest != nil && (have.ID == "" || have.ID == part.ConfigDigest.String())
		if part.Type == bundle.Image && !there {
			sizes[dir] += 2 * uint64(part.Size) // the layers, and their unpacked files
		}
	}
	return sizes
}

func (p *Prepare) parts() []bundle.Part {
	if p.Bundle == nil {
		return nil
	}
	return p.Bundle.Index().Parts
}

// KubernetesVersion is the bundle's, such as v1.37.2; empty without a bundle.
func (p *Prepare) KubernetesVersion() string {
	if p.Bundle == nil {
		return ""
	}
	return p.Bundle.Index().KubernetesVersion
}

// program is the bundle's program of that name; nil if it has none.
func (p *Prepare) program(name string) *bundle.Part {
	for _, part := range p.parts() {
		if part.Type == bundle.Program && part.Name == name {
			return &part
		}
	}
	return nil
}

// ensureFiles makes the host hold files, and reports whether it changed the content of any. Operators' files and
// edits stay.
func ensureFiles(ctx context.Context, env *step.Env, files ...ownership.File) (changed bool, err error) {
	differing, err := ownership.Differing(env.Host, files)
	if err != nil {
		return false, err
	}
	for _, f := range differing {
		have, err := host.ReadIfExists(env.Host, f.Path)
		if err != nil {
			return changed, err
		}
		if have != nil && !env.Host.Unchanged(f.Path) {
			f.SayKept(env.UI, have, fmt.Sprintf("if it is not meant to differ, remove %s and run the same command again", f.Path))
			continue
		}
		if err := ensureDir(env, filepath.Dir(f.Path)); err != nil {
			return changed, err
		}
		env.UI.Printf("Writing %s", f.Path)
		if _, err := f.Write(env.Host); err != nil {
			return changed, err
		}
		if err := relabel(ctx, env, f.Path); err != nil {
			return changed, err
		}
		changed = changed || have == nil || !bytes.Equal(have, f.Data)
	}
	return changed, nil
}

// ensureDir makes a missing directory. An existing directory keeps its mode, such as 2775 for Debian's /usr/local/bin.
func ensureDir(env *step.Env, dir string) error {
	if info, err := env.Host.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	return env.Host.EnsureDir(dir, 0o755)
}

// runVerify comes last: it reports success only if the host has all it needs.
func (p *Prepare) runVerify(ctx context.Context, env *step.Env) error {
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return err
	}
	var missing, from []string
	if found.owner == noRuntime && p.program("containerd") == nil {
		missing = append(missing, "a container runtime")
		from = append(from, "containerd 2.0 or later: https://containerd.io/downloads/")
	}
	if _, err := env.Host.LookPath("kubelet"); err != nil && p.program("kubelet") == nil {
		missing = append(missing, "the kubelet")
		from = append(from, "the packages kubelet and kubernetes-cni: https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/")
	}
	if len(missing) > 0 {
		env.UI.Warn("this host is not ready for `slipway init` or `slipway join`: it still lacks "+strings.Join(missing, " and "),
			"give a bundle with --bundle, which has both; or install "+strings.Join(from, ", and "))
		return nil
	}
	if err := p.checkSandboxImage(ctx, env, found); err != nil {
		return err
	}
	p.warnOfSandbox(ctx, env, found)
	if !p.Alone {
		return nil
	}
	env.UI.Nextf("This host is prepared. Continue with `slipway init` or `slipway join`")
	return nil
}
