// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/retry"
)

const (
	// pullLimit bounds the pulls of all images: 300 MB over 3 Mbit/s.
	pullLimit = 15 * time.Minute
	// pullsTogether is what registries and disks bear well.
	pullsTogether = 4
	// pullTries and pullPause get a pull over a hiccup of a registry.
	pullTries = 3
	pullPause = time.Second
)

// Puller is the part of the container runtime that images come from.
type Puller interface {
	ImagePresent(ctx context.Context, socket, image string) (bool, error)
	PullImage(ctx context.Context, socket, image string) error
}

// What Progress is told of an image: that it is present; or that it is pulled
// now, and then how that ended.
const (
	ImagePresent = "present"
	ImagePulling = "pulling"
	ImagePulled  = "pulled"
	ImageFailed  = "failed"
)

// Progress is told of each image, by one caller at a time; took is how long
// the pull was.
type Progress func(image, state string, took time.Duration)

// Images makes sure that the node has images, by the node's policy. As a check,
// ImagePull, it has a name to ignore and reports every fault; but it is the one
// that acts, and so it runs when the others have found nothing.
func Images(n *config.Node, images []string, runtime Puller, progress Progress) Check {
	p := puller{node: n, runtime: runtime, progress: progress}
	return Check{Name: "ImagePull", Limit: pullLimit, Asks: "the images are there, or can be pulled", Run: func(ctx context.Context, h View) []Finding {
		info, err := h.RuntimeInfo(ctx, n.CRISocket)
		if err != nil {
			return fault("no image can be pulled, because the container runtime does not answer: %v", err)
		}
		limit := pullsTogether
		if n.ImagePullSerial {
			limit = 1
		}
		found := make([][]Finding, len(images))
		sideBySide(len(images), limit, func(i int) { found[i] = p.ensure(ctx, images[i]) })
		return slices.Concat(append(found, sandbox(info.SandboxImage, images))...)
	}}
}

type puller struct {
	node     *config.Node
	runtime  Puller
	progress Progress
	telling  sync.Mutex
}

func (p *puller) tell(image, state string, took time.Duration) {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.progress(image, state, took)
}

func (p *puller) ensure(ctx context.Context, image string) []Finding {
	policy := p.node.ImagePullPolicy
	if policy != corev1.PullAlways {
		present, err := p.runtime.ImagePresent(ctx, p.node.CRISocket, image)
		if err != nil {
			return fault("%s: %v", image, err)
		}
		if present {
			p.tell(image, ImagePresent, 0)
			return nil
		}
	}
	if policy == corev1.PullNever {
		return warn("%s is not on this node, and imagePullPolicy Never forbids to pull it now: load it into the container runtime", image)
	}
	p.tell(image, ImagePulling, 0)
	start := time.Now()
	err := p.pull(ctx, image)
	if err != nil {
		p.tell(image, ImageFailed, time.Since(start))
		return fault("%s: %v; try `crictl pull %s` on this host, load the image by hand, or name another registry with --image-repository", image, err, image)
	}
	p.tell(image, ImagePulled, time.Since(start))
	return nil
}

func (p *puller) pull(ctx context.Context, image string) error {
	policy := retry.Policy{First: pullPause, Slowest: 2 * pullPause, Tries: pullTries, Passes: func(err error) bool { return !hopeless(err) }}
	return policy.Do(ctx, func(ctx context.Context) error {
		return p.runtime.PullImage(ctx, p.node.CRISocket, image)
	})
}

// hopeless knows refusals that will be the same next time. CRI has no code for
// most of them, only the runtime's text.
func hopeless(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc([]string{"not found", "unauthorized", "forbidden", "denied", "invalid reference", "no space left"},
		func(s string) bool { return strings.Contains(text, s) })
}

// sandbox compares the runtime's own image of Pods' first container with that
// of this Kubernetes version: pulling one does not spare the other.
func sandbox(own string, images []string) []Finding {
	i := slices.IndexFunc(images, func(image string) bool { return strings.HasPrefix(path.Base(image), "pause:") })
	if i < 0 || own == "" || own == images[i] {
		return nil
	}
	return warn("the container runtime uses %s for Pods' sandboxes, which it has to pull besides: set %s in its configuration", own, images[i])
}
