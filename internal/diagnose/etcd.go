// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/host"
)

var memberRefused = lazy(`member .*has already been bootstrapped|permanently removed from the cluster|member count is unequal|` +
	`cluster ID mismatch|unmatched member while checking PeerURLs|error validating peerURLs|couldn't find local name|` +
	`not found in the cluster|the member has been removed|member unknown`)

// etcdMember is for an etcd that its cluster does not know, or no longer.
func etcdMember(s *scene) []Finding {
	p := s.pod(etcdPod)
	if p == nil {
		return nil
	}
	lines := matching(p.lines, memberRefused)
	if len(lines) == 0 {
		return nil
	}
	f := Finding{
		Subject: etcdPod, Message: "it is no member of the cluster that it shall join, or no longer", Evidence: last(lines, 1),
		Next: "list the members with `etcdctl member list` on another control plane, remove this one's entry if there is one, empty " +
			p.args["data-dir"] + " here, and join this node again",
	}
	f.lasts = time.Second
	if !p.dead {
		if _, err := s.askEtcd("/readyz"); err == nil {
			return nil // it complains of another member
		}
		f.lasts = 10 * time.Second
	}
	return []Finding{f}
}

var (
	dataRefused = lazy(`crc mismatch|cannot access data directory|data dir|data-dir|permission denied|not a directory|read-only file system|` +
		`failed to open database|invalid database|version mismatch|file does not exist|freepages|failed to recover|corrupt|` +
		`failed to (?:read|open|create|load) (?:WAL|wal|snap)|database snapshot file|input/output error|wal: |walpb: |snap: `)
	etcdFatal = lazy(`"level":"(?:fatal|panic)"|^panic:`)
)

// etcdData is for an etcd that ended because of what is in its folder.
func etcdData(s *scene) []Finding {
	p := s.pod(etcdPod)
	if p == nil || !p.dead || len(matching(p.lines, noSpace)) > 0 || len(matching(p.lines, inUse)) > 0 {
		return nil
	}
	fatal := matching(p.lines, etcdFatal)
	lines := matching(fatal, dataRefused)
	if len(lines) == 0 {
		return nil
	}
	dir := p.args["data-dir"]
	return []Finding{{
		Subject: etcdPod, Message: "it cannot use the data in " + dir, Evidence: lines, lasts: time.Second,
		Next: fmt.Sprintf("see owner, mode and disk of %s; on the only control plane restore a snapshot (`etcdutl snapshot restore`), "+
			"on one of several, move what is left in that directory away and join again: a member whose data is lost is replaced", dir),
	}}
}

var quotaReached = lazy(`database space exceeded|ALARM NOSPACE|alarm:NOSPACE`)

// etcdSpace asks etcd about its alarms where somebody complains.
func etcdSpace(s *scene) []Finding {
	said := s.said(quotaReached)
	answer, err := s.askEtcd("/health")
	switch {
	case quotaReached().MatchString(answer):
		said = append(said, "GET /health: "+answer)
	case err == nil && answer != "":
		return nil // it was disarmed
	}
	if len(said) == 0 {
		return nil
	}
	return []Finding{{
		Subject: etcdPod, Message: "its database has reached its quota, so that it takes no more writes", Evidence: said, lasts: 3 * time.Second,
		Next: "compact, defragment and disarm it: https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota; then see what writes so much",
	}}
}

// etcdUnhealthy reads etcd's own answers.
func etcdUnhealthy(s *scene) []Finding {
	p := s.pod(etcdPod)
	if p == nil || !p.running() || s.ago(p.containers[0].Created) < settled {
		return nil
	}
	answer, err := s.askEtcd("/readyz?verbose")
	if err == nil {
		return nil
	}
	evidence := append(failing(answer), last(matching(p.lines, etcdWarning), 2)...)
	if len(evidence) == 0 {
		evidence = []string{err.Error()}
	}
	return []Finding{{
		Subject: etcdPod, Message: "it runs, but is not ready: it may have no leader", Evidence: evidence, lasts: never,
		Next: "see that most of its members run and reach each other on port 2380, and that its disk is fast enough; " +
			"`crictl logs` of its container says more",
	}}
}

var etcdWarning = lazy(`"level":"(?:warn|error)"`)

// askEtcd asks at the address of its metrics. The answer is the body, also of
// one that is not 200.
func (s *scene) askEtcd(path string) (string, error) {
	p := s.pod(etcdPod)
	if p == nil || !p.running() {
		return "", nil
	}
	base, ok := ProbeBase(p.spec)
	if !ok {
		return "", nil
	}
	return s.ask(base + path)
}

func (s *scene) ask(url string) (string, error) {
	data, err := s.h.Fetch(s.ctx, host.Probe{URL: url})
	var answer *host.ProbeError
	if errors.As(err, &answer) {
		return answer.Body, err
	}
	return string(data), err
}

// failing are the checks of a verbose answer that failed.
func failing(answer string) []string {
	var lines []string
	for line := range strings.Lines(answer) {
		if strings.HasPrefix(line, "[-]") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// apiServerUnhealthy reads the API server's own answer.
func apiServerUnhealthy(s *scene) []Finding {
	p := s.pod(apiServerPod)
	if p == nil || !p.running() || s.ago(p.containers[0].Created) < settled {
		return nil
	}
	base, ok := ProbeBase(p.spec)
	if !ok {
		return nil
	}
	answer, err := s.ask(base + "/livez?verbose")
	if err == nil {
		return nil
	}
	evidence := failing(answer)
	if len(evidence) == 0 {
		evidence = append(last(p.lines, 2), err.Error())
	}
	return []Finding{{
		Subject: apiServerPod, Message: "it runs, but is not healthy", Evidence: evidence, lasts: never,
		Next: "the checks above that failed say what it waits for, mostly etcd; `crictl logs` of its container says more",
	}}
}

// ProbeBase is where a container's liveness probe asks, scheme and address
// without the path; false where it has no probe over HTTP.
func ProbeBase(c corev1.Container) (string, bool) {
	if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet == nil {
		return "", false
	}
	get := c.LivenessProbe.HTTPGet
	port := get.Port.String()
	for _, p := range c.Ports {
		if p.Name == port {
			port = strconv.Itoa(int(p.ContainerPort))
		}
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	return scheme + "://" + net.JoinHostPort(get.Host, port), true
}
