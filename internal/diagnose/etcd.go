// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// etcdInterrupted finds a restore, a recovery or a rollback that was killed after it had taken etcd's manifest away, or before init wrote
// any manifest. A rollback's record, unlike a journal, may be a former node's, so it only counts on a control plane with an etcd of its
// own. While a recovery waits itself, its own etcd runs instead. As it isn't a fallback, it hides those: an API server without etcd is only
// its consequence, and a kubelet that crashes shows as soon as the command runs again.
func etcdInterrupted(o *observation) []symptom {
	path := filepath.Join(o.t.Manifests, etcdPod+".yaml")
	own := o.t.Waiting && o.pod(thisnode.EtcdReplayName) != nil
	if _, err := o.h.Lstat(path); own || o.t.Manifests == "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	by, found, _ := thisnode.InterruptedEtcd(o.h, filepath.Dir(o.t.Manifests))
	former := filepath.Base(by.Path) == thisnode.RollbackFile && (!o.isControlPlane() || len(o.externalEtcd()) > 0)
	if !found || former {
		return nil
	}
	return []symptom{{minDuration: never, Finding: fault.Finding{
		Subject: etcdPod, Evidence: []string{by.Path},
		Message: path + " is away, and with it etcd: `slipway " + by.Command + "` was interrupted, or still runs",
		Remedy:  "unless it still runs, " + by.Remedy(),
	}}}
}

var memberRefused = lazyregexp.New(`member .*has already been bootstrapped|permanently removed from the cluster|member count is unequal|` +
	`cluster ID mismatch|unmatched member while checking PeerURLs|error validating peerURLs|couldn't find local name|` +
	`not found in the cluster|the member has been removed|member unknown`)

// etcdMember finds an etcd that its cluster doesn't know, or doesn't know any more.
func etcdMember(o *observation) []symptom {
	p := o.pod(etcdPod)
	if p == nil {
		return nil
	}
	lines := matching(p.lines, memberRefused)
	if len(lines) == 0 {
		return nil
	}
	f := symptom{Finding: fault.Finding{
		Subject: etcdPod, Evidence: last(lines, 1),
		Message: "is not a member of the cluster that it is configured to join, or no longer is one",
		Remedy: "find out which control planes have the cluster's current data (`slipway etcd status` on each). If this one does, keep it, and run " +
			"`slipway reset` on any that has another cluster's. If it doesn't, remove any entry of this node on one that does (`slipway etcd member list`), " +
			"move the content of " + p.dataDir() + " away on this host, and join this node again",
	}}
	f.minDuration = time.Second
	if !p.dead {
		if _, err := o.askEtcd("/readyz"); err == nil {
			return nil // it complains about another member
		}
		f.minDuration = 10 * time.Second
	}
	return []symptom{f}
}

var (
	dataRefused = lazyregexp.New(`crc mismatch|cannot access data directory|data dir|data-dir|permission denied|not a directory|read-only file system|` +
		`failed to open database|invalid database|version mismatch|file does not exist|freepages|failed to recover|corrupt|` +
		`failed to (?:read|open|create|load) (?:WAL|wal|snap)|database snapshot file|input/output error|wal: |walpb: |snap: `)
	etcdFatal = lazyregexp.New(`"level":"(?:fatal|panic)"|^panic:`)
)

// etcdData finds an etcd that ended because of its data directory's contents.
func etcdData(o *observation) []symptom {
	p := o.pod(etcdPod)
	if p == nil || !p.dead || len(matching(p.lines, noSpace)) > 0 || len(matching(p.lines, inUse)) > 0 {
		return nil
	}
	fatal := matching(p.lines, etcdFatal)
	lines := matching(fatal, dataRefused)
	if len(lines) == 0 {
		return nil
	}
	dir := p.dataDir()
	return []symptom{{minDuration: time.Second, Finding: fault.Finding{
		Subject: etcdPod, Evidence: lines,
		Message: "cannot use the data in " + dir,
		Remedy: fmt.Sprintf("check the owner, mode and disk of %s. If the data is damaged, restore a snapshot on the only control plane "+
			"(`slipway etcd restore`); on one of several, move the content of that directory away and join again, which replaces the member", dir),
	}}}
}

var quotaReached = lazyregexp.New(`database space exceeded|ALARM NOSPACE|alarm:NOSPACE`)

// etcdSpace asks etcd about its alarms, and looks for complaints in logs.
func etcdSpace(o *observation) []symptom {
	said := o.said(quotaReached)
	answer, err := o.askEtcd("/health")
	switch {
	case quotaReached().MatchString(answer):
		said = append(said, "GET /health: "+answer)
	case err == nil && answer != "":
		return nil // somebody has disarmed it
	}
	if len(said) == 0 {
		return nil
	}
	return []symptom{{minDuration: 3 * time.Second, Finding: fault.Finding{
		Subject: etcdPod, Evidence: said,
		Message: "its database has reached its quota, so it accepts no more writes",
		Remedy:  etcd.FullRemedy,
	}}}
}

func etcdUnhealthy(o *observation) []symptom {
	p := o.pod(etcdPod)
	if p == nil || !p.running() || o.ago(p.containers[0].Created) < settled {
		return nil
	}
	answer, err := o.unhealthy(func() (string, error) { return o.askEtcd("/readyz?verbose") })
	if err == nil {
		return nil
	}
	evidence := append(failing(answer), last(matching(p.lines, etcdWarning), 2)...)
	if len(evidence) == 0 {
		evidence = []string{err.Error()}
	}
	return []symptom{{minDuration: never, Finding: fault.Finding{
		Subject: etcdPod, Evidence: evidence,
		Message: "runs, but is not ready: it may have no leader",
		Remedy: "check that most members run and reach each other on port 2380, and that the disk is fast enough; " +
			"`crictl logs` of its container shows more",
	}}}
}

var etcdWarning = lazyregexp.New(`"level":"(?:warn|error)"`)

// askEtcd sends a request to the address of etcd's metrics. It returns the body even if the status isn't 200.
func (o *observation) askEtcd(path string) (string, error) {
	p := o.pod(etcdPod)
	if p == nil || !p.running() {
		return "", nil
	}
	base, ok := manifests.ProbeBase(&p.spec)
	if !ok {
		return "", nil
	}
	return o.ask(base + path)
}

func (o *observation) ask(url string) (string, error) {
	ctx, cancel := context.WithTimeout(o.ctx, answerTimeout)
	defer cancel()
	data, err := o.h.Fetch(ctx, host.Probe{URL: url})
	var answer *host.ProbeError
	if errors.As(err, &answer) {
		return answer.Body, err
	}
	return string(data), err
}

// unhealthy repeats a question about a component's health, as a single check may fail on a busy host. In a wait, which has asked
// often already, once is enough.
func (o *observation) unhealthy(ask func() (string, error)) (answer string, err error) {
	p := retry.Policy{First: time.Second, Tries: 3}
	if o.t.Waiting {
		p.Tries = 1
	}
	err = p.Do(o.ctx, func(context.Context) (err error) {
		answer, err = ask()
		return err
	})
	return answer, err
}

// failing returns the failed checks in a verbose answer.
func failing(answer string) []string {
	var lines []string
	for line := range strings.Lines(answer) {
		if strings.HasPrefix(line, "[-]") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func apiServerUnhealthy(o *observation) []symptom {
	p := o.pod(apiServerPod)
	if p == nil || !p.running() || o.ago(p.containers[0].Created) < settled {
		return nil
	}
	base, ok := manifests.ProbeBase(&p.spec)
	if !ok {
		return nil
	}
	answer, err := o.unhealthy(func() (string, error) { return o.ask(base + "/livez?verbose") })
	if err == nil {
		return nil
	}
	evidence := failing(answer)
	if len(evidence) == 0 {
		evidence = append(last(p.lines, 2), err.Error())
	}
	return []symptom{{minDuration: never, Finding: fault.Finding{
		Subject: apiServerPod, Evidence: evidence,
		Message: "runs, but is not healthy",
		Remedy:  "see the failed checks above for what it waits for, mostly etcd; `crictl logs` of its container shows more",
	}}}
}
