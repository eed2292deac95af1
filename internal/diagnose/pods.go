// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
	"github.com/slipway-k8s/slipway/manifests"
)

var podRefused = lazyregexp.New(`Could not process manifest file|couldn't parse as pod|[Cc]an't process config file|Unable to process|` +
	`CreateContainerConfigError|CreateContainerError|RunContainerError|StartError|hostPath type check failed|MountVolume.SetUp failed|` +
	`Failed to create sandbox|CreatePodSandboxError|failed to create containerd task`)

// resolverMissing matches a problem that no manifest can fix: the kubelet creates no containers at all.
var resolverMissing = lazyregexp.New(`open \S*resolv\S*: no such file or directory`)

// staticPodUnusable finds manifests from which the kubelet can't create a container.
func staticPodUnusable(o *observation) []symptom {
	if o.t.Manifests == "" {
		return nil
	}
	lines := slices.DeleteFunc(o.repeatedLines(o.sources[0], podRefused), func(line string) bool {
		return passing().MatchString(line) || resolverMissing().MatchString(line)
	})
	var found []symptom
	for _, p := range o.pods {
		about := p.mentioned(lines)
		if p.running() || len(p.containers) > 0 || len(about) == 0 {
			continue
		}
		found = append(found, unusable(p.name, p.path, about))
	}
	return append(found, o.noPods()...)
}

// mentioned returns the lines about a Pod or its manifest. The bare name may be part of a volume's name or of a path.
func (p *staticPod) mentioned(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	about := regexp.MustCompile(`pod[= ]\\*"(?:kube-system/)?` + regexp.QuoteMeta(p.name) + `-|` + regexp.QuoteMeta(p.path) + `\b`)
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !about.MatchString(line) })
}

// noPods finds control plane manifests that aren't Pods, if the kubelet complains about them. Other files there do no harm.
func (o *observation) noPods() []symptom {
	var found []symptom
	lines := o.recentLines(o.sources[0], podRefused)
	for _, name := range components() {
		path := filepath.Join(o.t.Manifests, name+".yaml")
		about := mentioning(lines, path)
		if len(about) == 0 || slices.ContainsFunc(o.pods, func(p staticPod) bool { return p.path == path }) {
			continue
		}
		if _, err := o.h.Lstat(path); err == nil {
			found = append(found, unusable(name, path, about))
		}
	}
	return found
}

func unusable(subject, path string, about []string) symptom {
	return symptom{minDuration: 5 * time.Second, Finding: fault.Finding{
		Subject: subject, Evidence: last(about, 1),
		Message: "the kubelet cannot create a container from " + path,
		Remedy:  "fix extraVolumes, extraArgs or the patch in the configuration, and run the same command again",
	}}
}

// manifestMissing finds a control plane without a component, except etcd. It ends no wait, as a phase may yet write the manifest.
func manifestMissing(o *observation) []symptom {
	if !o.isControlPlane() {
		return nil
	}
	var found []symptom
	for _, name := range alwaysNeeded() {
		path := filepath.Join(o.t.Manifests, name+".yaml")
		if _, err := o.h.Lstat(path); o.pod(name) != nil || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found = append(found, symptom{minDuration: never, Finding: fault.Finding{
			Subject: name,
			Message: path + " does not exist, so the kubelet does not run this component of the control plane",
			Remedy: "move the file back, or write it again with `slipway init phase control-plane " + strings.TrimPrefix(name, "kube-") +
				"` and the configuration of this node",
		}})
	}
	return found
}

// encryptionFileMissing finds an API server without its keys, even while it runs: it wouldn't start again. It ends a wait once the
// API server has ended twice, as containerCrash does: until then, a phase may yet write the file.
func encryptionFileMissing(o *observation) []symptom {
	p := o.pod(apiServerPod)
	if p == nil {
		return nil
	}
	path := p.file(manifests.EncryptionFlag)
	if path == "" {
		return nil
	}
	if _, err := o.h.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	remedy := "put the file back, from a copy or from another control plane; the kubelet then starts this component again"
	if path == config.EncryptionFile {
		remedy = "run `slipway encryption enable` on this control plane, which restores the file from " + config.EncryptionKeyring +
			"; without that file, copy both from another control plane"
	}
	lasts := never
	if p.dead && p.exits() >= 2 {
		lasts = crashDuration
	}
	return []symptom{{minDuration: lasts, Finding: fault.Finding{
		Subject: apiServerPod, Remedy: remedy,
		Message: path + " does not exist, so it cannot start: it reads the keys of the Secrets in etcd from there (" + p.path + ": --" + manifests.EncryptionFlag + ")",
	}}}
}

// crashDuration is how long a container that has ended twice must stay down.
const crashDuration = 2 * time.Second

// containerCrash finds a container that ended twice with the same message, if no other cause explains it, unless the message is
// about something that isn't ready yet.
func containerCrash(o *observation) []symptom {
	var found []symptom
	for _, p := range o.pods {
		if !p.dead || p.exits() < 2 && o.t.Waiting {
			continue
		}
		words := lastWords(p.lines)
		c := p.ended()
		f := symptom{minDuration: crashDuration, Finding: fault.Finding{
			Subject: p.name, Evidence: words,
			Message: fmt.Sprintf("its container has ended %d times, the last time with exit code %d (%s)", p.exits(), c.ExitCode, c.Reason),
			Remedy:  "see its last message above; " + c.LogPath + " has the rest. Its flags are in " + p.path,
		}}
		killed := c.ExitCode == 0 || c.ExitCode > 128 || stoppedEarly(p.lines, c.ExitCode) // mostly by the kubelet, because a probe failed
		if c.Reason == "OOMKilled" {
			f.Message += ": it ran out of memory"
			f.Remedy, killed = "give this host more memory", false
		}
		same, known := o.repeats(&p)
		switch {
		case killed || passing().MatchString(strings.Join(words, "\n")) || known && !same || !known && p.exits() < 3:
			f.minDuration = never
		case !known: // the kubelet keeps one ended container, so nobody knows how earlier containers ended
			f.minDuration = 10 * time.Second
		}
		found = append(found, f)
	}
	return found
}

// stoppedEarly reports whether a component was stopped before it handled signals, such as an etcd that was still catching up: in a
// container, where its process has the ID 1, a Go program then exits with code 2, as after a panic, but without a word.
func stoppedEarly(lines []string, code int32) bool {
	return code == 2 && len(matching(lines, fatalLine)) == 0
}

// repeats reports whether the container before the last one ended in the same way, if that's known.
func (o *observation) repeats(p *staticPod) (same, known bool) {
	c := p.ended()
	for _, before := range p.containers {
		if before.ID == c.ID || before.State != "exited" {
			continue
		}
		a, b := lastWords(p.lines), lastWords(texts(tail(o.h, before.LogPath, time.Time{})))
		return before.ExitCode == c.ExitCode && normalize(strings.Join(a, "\n")) == normalize(strings.Join(b, "\n")), true
	}
	return false, false
}

// lastWords returns the line in which a component says why it ends, or else its last line.
func lastWords(lines []string) []string {
	if words := last(matching(lines, fatalLine), 1); len(words) > 0 {
		return words
	}
	return last(lines, 1)
}

func notRunning(o *observation) []symptom {
	if o.runtimeErr != nil { // nobody knows its containers
		return nil
	}
	var found []symptom
	for _, p := range o.pods {
		if len(p.containers) > 0 || o.ago(p.changed) < 2*settled {
			continue
		}
		found = append(found, symptom{minDuration: never, Finding: fault.Finding{
			Subject: p.name, Evidence: last(mentioning(o.kubeletLines(), p.name), 2),
			Message: "the kubelet has not created a container from " + p.path,
			Remedy:  "see `journalctl -u kubelet` for the kubelet's work, and `crictl pods` for the runtime's Pods",
		}})
	}
	return found
}
