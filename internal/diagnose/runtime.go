// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// runtimeBusy is how long a runtime may keep a look waiting, at least, before that ends a wait: the machine may be busy.
const runtimeBusy = 45 * time.Second

// runtimeDown asks the runtime whether it's ready, unless it has already failed to list its containers.
func runtimeDown(o *observation) []symptom {
	info, err := host.RuntimeInfo{}, o.runtimeErr
	if err == nil {
		if info, err = o.h.RuntimeInfo(o.ctx, o.t.Socket); err == nil && info.Ready {
			return nil
		}
	}
	if o.ctx.Err() != nil {
		return nil
	}
	failure := err
	f := symptom{minDuration: 8 * time.Second, Finding: fault.Finding{Subject: o.t.Socket}}
	f.Message = "the container runtime is not ready: " + info.Reason
	if err != nil {
		f.Message = "the container runtime does not answer"
		f.Evidence = append(f.Evidence, err.Error())
	}
	service := host.RuntimeService(o.t.Socket)
	f.Remedy = fmt.Sprintf("see `systemctl status %[1]s` and `journalctl -u %[1]s`, and start it with `systemctl start %[1]s`", service)
	unit, err := o.h.Unit(o.ctx, service)
	if err != nil {
		return []symptom{f}
	}
	f.Evidence = append(f.Evidence, fmt.Sprintf("unit %s: %s, %s (%s), result %s", service, unit.LoadState, unit.ActiveState, unit.SubState, unit.Result))
	switch {
	case unit.LoadState == "not-found":
		f.Remedy, f.minDuration = "install a container runtime, or set the right socket (criSocket, --cri-socket)", 2*time.Second
	case unit.ActiveState == "inactive" || unit.ActiveState == "failed":
		f.minDuration = 5 * time.Second // it stays down, unless it is being upgraded
	case unit.ActiveState == "activating" && unit.SubState == "start":
		f.minDuration = never // on a slow host it takes minutes, and systemd ends it if it takes too long
	case unit.ActiveState == "activating" || unit.ActiveState == "reloading":
		f.minDuration = runtimeBusy
	case errors.Is(failure, context.DeadlineExceeded):
		f.minDuration = max(runtimeBusy, o.t.limit/4) // two slow answers prove nothing on a slow machine, which is given long waits
	}
	if entries, err := o.h.Journal(o.ctx, service, o.h.Now().Add(-time.Hour), 1); err == nil && len(entries) > 0 {
		f.Evidence = append(f.Evidence, entries[len(entries)-1].Message)
	}
	return []symptom{f}
}

var (
	pullFailed    = lazyregexp.New(`[Ff]ailed to pull|PullImage.*failed|ErrImagePull|ErrImageNeverPull|ImagePullBackOff|InvalidImageName|ImageInspectError|couldn't parse image`)
	sandboxFailed = lazyregexp.New(`failed to get sandbox image "([^"\\]+)|get sandbox image \\*"([^"\\]+)`)
	// pullRefused matches answers another attempt won't change. "Not found" counts only from a registry: a busy runtime may lose
	// parts of an image while unpacking it.
	pullRefused = lazyregexp.New(`failed to resolve.*: not found|manifest unknown|name unknown|unauthorized|access.*denied|denied:|403 Forbidden|404 Not Found|x509:|` +
		`ErrImageNeverPull|InvalidImageName|invalid reference|no match for platform|unsupported`)
)

const pullRemedy = "check that this host reaches the registry, or set another one with imageRepository; " +
	"you can also load the image with `slipway config images pull` or `ctr -n k8s.io images import`"

// image looks for missing images that the kubelet failed to pull: static Pods' and the Pod sandboxes'.
func image(o *observation) []symptom {
	lines := matching(o.kubeletLines(), pullFailed)
	var found []symptom
	for _, p := range o.pods {
		about := mentioning(lines, p.spec.Image)
		if p.running() || len(about) == 0 || o.present(p.spec.Image) {
			continue
		}
		found = append(found, o.pullFinding(p.name, p.spec.Image, about))
	}
	about := matching(o.kubeletLines(), sandboxFailed)
	if len(about) == 0 {
		return found
	}
	m := sandboxFailed().FindStringSubmatch(about[len(about)-1])
	if name := m[1] + m[2]; !o.present(name) {
		f := o.pullFinding("every Pod's sandbox", name, about)
		f.Remedy += "; the container runtime's own configuration sets this image"
		found = append(found, f)
	}
	return found
}

// pullAgain is a bit less than the time after which the kubelet tries again.
const pullAgain = 8 * time.Second

var pullAttempt = lazyregexp.New(`PullImage from image service failed|Failed to pull image|RunPodSandbox from runtime service failed`)

// pullFinding counts a registry's refusal at once, and its unresolvable name soon. Otherwise, the kubelet has to fail twice.
func (o *observation) pullFinding(subject, image string, about []string) symptom {
	f := symptom{minDuration: never, Finding: fault.Finding{
		Subject: subject, Evidence: last(about, 1),
		Message: fmt.Sprintf("image %s is not on this host and cannot be pulled", image), Remedy: pullRemedy,
	}}
	registry, _, _ := strings.Cut(image, "/")
	registry, _, _ = strings.Cut(registry, ":")
	var unknown error
	if strings.Contains(registry, ".") {
		unknown = o.resolve(registry)
	}
	switch {
	case pullRefused().MatchString(about[len(about)-1]):
		f.minDuration = time.Second
	case unknown != nil:
		f.minDuration = unresolved(unknown)
	case o.failedFor(image) >= pullAgain:
		f.minDuration = 0
	}
	return f
}

// failedFor returns the time between the first and the last failure to pull an image.
func (o *observation) failedFor(image string) time.Duration {
	var first, last time.Time
	for _, l := range o.sources[0].said {
		if !pullAttempt().MatchString(l.text) || !strings.Contains(l.text, image) {
			continue
		}
		if first.IsZero() {
			first = l.first
		}
		last = l.last
	}
	return last.Sub(first)
}

func (o *observation) present(image string) bool {
	if o.runtimeErr != nil {
		return true // another cause
	}
	there, err := o.h.ImagePresent(o.ctx, o.t.Socket, image)
	return err != nil || there
}

func mentioning(lines []string, word string) []string {
	var found []string
	for _, line := range lines {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}
