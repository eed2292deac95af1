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
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/parallel"
	"github.com/slipway-k8s/slipway/internal/retry"
)

const (
	// pullTimeout bounds the pulls of all images: 300 MB over 3 Mbit/s.
	pullTimeout = 15 * time.Minute
	// pullsTogether is how many parallel pulls registries and disks handle well.
	pullsTogether = 4
	// pullTries and pullPause let a pull survive a hiccup of the registry.
	pullTries = 3
	pullPause = time.Second
)

// Puller is the part of the container runtime that deals with images.
type Puller interface {
	ImagePresent(ctx context.Context, socket, image string) (bool, error)
	PullImage(ctx context.Context, socket, image string) error
}

// Progress gets these states of an image: present; or pulling, and then pulled or failed.
const (
	ImagePresent = "present"
	ImagePulling = "pulling"
	ImagePulled  = "pulled"
	ImageFailed  = "failed"
)

// Progress is called for each image, by one caller at a time; took is how long the pull took.
type Progress func(image, state string, took time.Duration)

// Images makes sure that the node has images, by the node's pull policy. It's a check, ImagePull, so that it has a name to ignore
// and reports every image. As the only check that changes anything, it runs once the others have passed.
func Images(n *config.Node, images []string, runtime Puller, progress Progress) Check {
	p := puller{node: n, runtime: runtime, progress: progress}
	return Check{Name: "ImagePull", Limit: pullTimeout, Description: "the images are present, or can be pulled", Run: func(ctx context.Context, h View) []fault.Finding {
		info, err := h.RuntimeInfo(ctx, n.CRISocket)
		if err != nil {
			return fail("cannot pull images: the container runtime does not answer: %v", err).remedy(startRuntime)
		}
		limit := pullsTogether
		if n.ImagePullSerial {
			limit = 1
		}
		found := parallel.Map(images, limit, func(image string) []fault.Finding { return p.ensure(ctx, image) })
		return slices.Concat(append(found, sandbox(info.SandboxImage, images))...)
	}}
}

type puller struct {
	node     *config.Node
	runtime  Puller
	progress Progress
	calling  sync.Mutex
}

func (p *puller) report(image, state string, took time.Duration) {
	p.calling.Lock()
	defer p.calling.Unlock()
	p.progress(image, state, took)
}

func (p *puller) ensure(ctx context.Context, image string) []fault.Finding {
	policy := p.node.ImagePullPolicy
	if policy != corev1.PullAlways {
		present, err := p.runtime.ImagePresent(ctx, p.node.CRISocket, image)
		if err != nil {
			return fail("%s: %v", image, err).remedy("check the container runtime's log")
		}
		if present {
			p.report(image, ImagePresent, 0)
			return nil
		}
	}
	if policy == corev1.PullNever {
		return warn("%s is not on this node, and imagePullPolicy Never does not allow pulling it", image).
			remedy("load it into the container runtime")
	}
	p.report(image, ImagePulling, 0)
	start := time.Now()
	err := p.pull(ctx, image)
	if err != nil {
		p.report(image, ImageFailed, time.Since(start))
		return fail("%s: %v", image, err).
			remedy("try `crictl pull %s` on this host, load the image by hand, or use another registry with --image-repository", image)
	}
	p.report(image, ImagePulled, time.Since(start))
	return nil
}

func (p *puller) pull(ctx context.Context, image string) error {
	policy := retry.Policy{First: pullPause, Slowest: 2 * pullPause, Tries: pullTries, Retryable: func(err error) bool { return !hopeless(err) }}
	return policy.Do(ctx, func(ctx context.Context) error {
		return p.runtime.PullImage(ctx, p.node.CRISocket, image)
	})
}

// hopeless reports whether another try would fail alike. For most of these errors, CRI has no code, only the runtime's text.
func hopeless(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc([]string{"not found", "unauthorized", "forbidden", "denied", "invalid reference", "no space left"},
		func(s string) bool { return strings.Contains(text, s) })
}

// sandbox compares the runtime's own sandbox image with this Kubernetes version's: both would have to be pulled.
func sandbox(own string, images []string) []fault.Finding {
	i := slices.IndexFunc(images, func(image string) bool { return strings.HasPrefix(path.Base(image), "pause:") })
	if i < 0 || own == "" || own == images[i] {
		return nil
	}
	return warn("the container runtime uses %s for Pod sandboxes, so it has to pull that image as well", own).
		remedy("set %s as the sandbox image in its configuration", images[i])
}
