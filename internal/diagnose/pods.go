// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

var podRefused = lazy(`Could not process manifest file|couldn't parse as pod|[Cc]an't process config file|Unable to process|` +
	`CreateContainerConfigError|CreateContainerError|RunContainerError|StartError|hostPath type check failed|MountVolume.SetUp failed|` +
	`Failed to create sandbox|CreatePodSandboxError|failed to create containerd task`)

// staticPodUnusable is for what keeps the kubelet from making a container.
func staticPodUnusable(s *scene) []Finding {
	if s.t.Manifests == "" {
		return nil
	}
	lines := slices.DeleteFunc(s.insists(s.sources[0], podRefused), passing().MatchString)
	var found []Finding
	for _, p := range s.pods {
		about := p.mentioned(lines)
		if p.running() || len(p.containers) > 0 || len(about) == 0 {
			continue
		}
		found = append(found, unusable(p.name, p.path, about))
	}
	return append(found, s.noPods()...)
}

// mentioned are the lines that are about a Pod or its manifest: the name alone
// may also be a part of a volume's or of a path.
func (p *staticPod) mentioned(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	about := regexp.MustCompile(`pod[= ]\\*"(?:kube-system/)?` + regexp.QuoteMeta(p.name) + `-|` + regexp.QuoteMeta(p.path) + `\b`)
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !about.MatchString(line) })
}

// noPods looks for manifests of the control plane that are no Pods, if the
// kubelet complains of them. Whatever else is in the folder keeps nothing from
// working.
func (s *scene) noPods() []Finding {
	var found []Finding
	lines := s.lately(s.sources[0], podRefused)
	for _, name := range components() {
		path := filepath.Join(s.t.Manifests, name+".yaml")
		about := mentioning(lines, path)
		if len(about) == 0 || slices.ContainsFunc(s.pods, func(p staticPod) bool { return p.path == path }) {
			continue
		}
		if _, err := s.h.Lstat(path); err == nil {
			found = append(found, unusable(name, path, about))
		}
	}
	return found
}

func unusable(subject, path string, about []string) Finding {
	return Finding{
		Subject: subject, Message: "the kubelet cannot make a container of " + path, Evidence: last(about, 1), lasts: 5 * time.Second,
		Next: "fix extraVolumes, extraArgs or the patch that the manifest has from the configuration, and run the same command again",
	}
}

// manifestMissing is for a control plane of which a part was taken away. It ends
// no wait, for the rest may still be written, and etcd may be on other hosts.
func manifestMissing(s *scene) []Finding {
	needed := []string{apiServerPod, controllerManagerPod, schedulerPod}
	if !slices.ContainsFunc(needed, func(name string) bool { return s.pod(name) != nil }) {
		return nil
	}
	var found []Finding
	for _, name := range needed {
		path := filepath.Join(s.t.Manifests, name+".yaml")
		if _, err := s.h.Lstat(path); s.pod(name) != nil || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found = append(found, Finding{
			Subject: name, Message: path + " does not exist, so the kubelet does not run it beside the rest of the control plane", lasts: never,
			Next: "move the file back, or write it again with `slipway init phase control-plane " + strings.TrimPrefix(name, "kube-") + "` and the configuration of this node",
		})
	}
	return found
}

// containerCrash is for a container that ended twice with the same words, of
// which none of the other causes knows the meaning. Complaints about something
// else that is not there yet are none.
func containerCrash(s *scene) []Finding {
	var found []Finding
	for _, p := range s.pods {
		if !p.dead || p.exits() < 2 && s.t.Waiting {
			continue
		}
		words := lastWords(p.lines)
		c := p.ended()
		f := Finding{
			Subject:  p.name,
			Message:  fmt.Sprintf("its container has ended %d times, the last time with exit code %d (%s)", p.exits(), c.ExitCode, c.Reason),
			Evidence: words, Next: "its last words are above; " + c.LogPath + " has the rest. The flags are in " + p.path, lasts: 2 * time.Second,
		}
		killed := c.ExitCode == 0 || c.ExitCode > 128 // mostly by the kubelet, as a probe failed
		if c.Reason == "OOMKilled" {
			f.Message += ": it was out of memory"
			f.Next, killed = "give this host more memory", false
		}
		if killed || passing().MatchString(strings.Join(words, "\n")) || !s.repeats(&p) {
			f.lasts = never
		}
		found = append(found, f)
	}
	return found
}

// repeats tells whether the container before the last one said the same.
func (s *scene) repeats(p *staticPod) bool {
	if len(p.containers) < 2 {
		return false
	}
	c := p.ended()
	for _, before := range p.containers {
		if before.ID == c.ID || before.State != "exited" {
			continue
		}
		a, b := lastWords(p.lines), lastWords(texts(tail(s.h, before.LogPath, time.Time{})))
		return before.ExitCode == c.ExitCode && saying(strings.Join(a, "\n")) == saying(strings.Join(b, "\n"))
	}
	return false
}

// lastWords are the lines in which a component says why it ends, or its last
// line.
func lastWords(lines []string) []string {
	if words := last(matching(lines, telling), 1); len(words) > 0 {
		return words
	}
	return last(lines, 1)
}

// notRunning is the least that can be said.
func notRunning(s *scene) []Finding {
	var found []Finding
	for _, p := range s.pods {
		if len(p.containers) > 0 || s.ago(p.changed) < 2*settled {
			continue
		}
		found = append(found, Finding{
			Subject: p.name, Message: "the kubelet has made no container of " + p.path,
			Evidence: last(mentioning(s.kubeletLines(), p.name), 2), lasts: never,
			Next: "`journalctl -u kubelet` says what the kubelet does; `crictl pods` shows what the runtime has",
		})
	}
	return found
}
