// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func (p *Prepare) runImages(ctx context.Context, env *step.Env) error {
	if len(p.bundled()) == 0 {
		return nil
	}
	found, err := p.findRuntime(ctx, env)
	if err != nil {
		return err
	}
	if err := env.Host.RepairInterruptedFetches(ctx, found.socket); err != nil {
		return err
	}
	present, err := presentImages(ctx, env, found)
	if err != nil {
		return err
	}
	record, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	missing, unpinned := p.lacking(env, record, present)
	if !found.takesImages() && len(missing)+len(unpinned) > 0 {
		return fault.New("only containerd can be given images, and this host has another container runtime",
			"put them into a registry that it can pull from with `slipway bundle push`, and skip this phase with --skip-phases="+p.phase("images"))
	}
	return p.importAndPin(ctx, env, found, missing, unpinned)
}

// lacking returns the bundle's images that the runtime doesn't have, and those it may remove. It keeps somebody else's.
func (p *Prepare) lacking(env *step.Env, record prepared, present map[string]host.Image) (missing, unpinned []string) {
	for name, id := range p.bundled() {
		switch have, ok := present[name]; {
		case ok && have.ID != "" && have.ID != id && !record.imported(name, have.ID):
			keepImage(env, name, have.ID, id)
		case !ok || have.ID != "" && have.ID != id:
			missing = append(missing, name)
		case !have.Pinned:
			unpinned = append(unpinned, name)
		}
	}
	slices.Sort(missing)
	slices.Sort(unpinned)
	return missing, unpinned
}

// imported reports whether the image with this name and ID came from a bundle. Earlier releases recorded no IDs.
func (p prepared) imported(name, id string) bool {
	return slices.Contains(p.Imported, name) && (len(p.ImageIDs[name]) == 0 || slices.Contains(p.ImageIDs[name], id))
}

// keepImage says that somebody else's image stays under a name the bundle uses, too.
func keepImage(env *step.Env, name, have, want string) {
	env.UI.Warn(fmt.Sprintf("keeping the existing image %s (%s), which is not the bundle's (%s)", name, have, want),
		fmt.Sprintf("if it is not meant to differ, remove it with `crictl rmi %s` and run the same command again", name))
}

func (p *Prepare) bundled() map[string]string {
	ids := map[string]string{}
	for _, part := range p.parts() {
		if part.Type == bundle.Image && part.ConfigDigest != nil {
			ids[part.Name] = part.ConfigDigest.String()
		}
	}
	return ids
}

// presentImages are the runtime's images by name; none before it's installed.
func presentImages(ctx context.Context, env *step.Env, found hostRuntime) (map[string]host.Image, error) {
	images, err := env.Host.Images(ctx, found.socket)
	if err != nil {
		return nil, err
	}
	byName := map[string]host.Image{}
	for _, i := range images {
		for _, name := range i.Names {
			byName[name] = i
		}
	}
	return byName, nil
}

func (p *Prepare) importAndPin(ctx context.Context, env *step.Env, found hostRuntime, missing, unpinned []string) error {
	wanted := p.bundled()
	settings, err := host.ReadIfExists(env.Host, containerd.ConfigPath)
	if err != nil {
		return err
	}
	var old []string
	err = p.note(env, func(r *prepared) {
		for _, name := range r.Images {
			if wanted[name] == "" && !bytes.Contains(settings, []byte(strconv.Quote(name))) { // sandboxes still need it
				old = append(old, name)
			}
		}
		r.Images = with(r.Images, slices.Concat(missing, unpinned)...)
		r.Imported = with(r.Imported, missing...)
		for _, name := range missing {
			r.ImageIDs[name] = with(r.ImageIDs[name], wanted[name])
		}
		if len(r.Images) > 0 {
			r.Socket = found.socket
		}
	})
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		env.UI.Printf("Importing %d images", len(missing))
		err := env.Host.ImportImages(ctx, found.socket, missing, func(w io.Writer) error { return p.Bundle.WriteImages(ctx, missing, w) })
		if err == nil {
			err = awaitImported(ctx, env, found, missing)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range unpinned {
		if err := env.Host.PinImage(ctx, found.socket, name, true); err != nil {
			return err
		}
	}
	return p.unpin(ctx, env, found, old)
}

// importShown is how long after an import the kubelet may still not see an image: containerd tells its CRI about new ones in events.
const importShown = 30 * time.Second

// awaitImported makes sure that the kubelet sees imported images. With a client that doesn't fit containerd, it may see none.
func awaitImported(ctx context.Context, env *step.Env, found hostRuntime, names []string) error {
	var asked time.Time // a listing may take long, but what it shows is as old as the question
	deadline := time.Now().Add(importShown)
	soon := func(error) bool { return asked.Before(deadline) }
	return retry.Policy{First: node.PollInterval, Retryable: soon}.Do(ctx, func(ctx context.Context) error {
		asked = time.Now()
		present, err := presentImages(ctx, env, found)
		if err != nil {
			return err
		}
		lost := slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, there := present[name]; return there })
		if len(lost) == 0 {
			return nil
		}
		message := "ctr has imported %s, but the runtime at %s does not list them to the kubelet"
		return fault.New(fmt.Sprintf(message, strings.Join(lost, ", "), found.socket),
			"compare the versions of client and server that `ctr version` prints: if they differ, put the ctr of this containerd first in PATH, "+
				"and run the same command again")
	})
}

// unpin lets the kubelet remove an earlier bundle's images. Somebody may have removed some, and an interrupted run may have
// recorded images that it didn't import.
func (p *Prepare) unpin(ctx context.Context, env *step.Env, found hostRuntime, names []string) error {
	if len(names) == 0 {
		return nil
	}
	present, err := presentImages(ctx, env, found)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, there := present[name]; !there {
			continue
		}
		env.UI.Printf("Unpinning %s, which is not in this bundle", name)
		if err := env.Host.PinImage(ctx, found.socket, name, false); err != nil {
			return err
		}
	}
	return p.note(env, func(r *prepared) { r.Images = without(r.Images, names...) })
}
