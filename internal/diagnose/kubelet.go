// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// kubeletUnit looks for a unit that cannot run or that somebody has stopped.
func kubeletUnit(s *scene) []Finding {
	f := Finding{Subject: kubeletService}
	switch u := s.unit; {
	case errors.Is(s.unitErr, host.ErrNoSystemd):
		if p, found := s.h.PortHolder(10250); found && p.Name == kubeletName {
			return nil // something else has started it
		}
		f.Message, f.lasts = s.unitErr.Error(), never
		f.Next = "start the kubelet another way, such as by the init system that this host has"
	case s.unitErr != nil:
		return nil
	case u.LoadState == "not-found":
		f.Message = "systemd knows no such unit"
		f.Next = "install the package kubelet, which brings it, or write the unit and run `systemctl daemon-reload`"
	case u.LoadState == "masked" || u.UnitFileState == "masked":
		f.Message = "the unit is masked, so that nothing can start it"
		f.Next = "run `systemctl unmask kubelet`, then the same command again"
	case u.LoadState != "loaded":
		f.Message = "systemd cannot read the unit: its load state is " + u.LoadState
		f.Next = "see `systemctl status kubelet`, fix the unit, and run `systemctl daemon-reload`"
	case u.ActiveState == "inactive":
		f.Message, f.lasts = "the unit is stopped", 2*time.Second
		f.Next = "start it with `systemctl start kubelet`; `systemctl list-jobs` and `journalctl -u kubelet` may show who stopped it"
		f.Evidence = s.systemdLines()
	default:
		return nil
	}
	return []Finding{f}
}

// systemdLines are systemd's words on the kubelet's unit.
func (s *scene) systemdLines() []string {
	var lines []string
	for _, e := range s.journal {
		if e.Program == "systemd" {
			lines = append(lines, e.Message)
		}
	}
	return last(lines, 2)
}

// kubeletRefused returns the lines of a kubelet that ended with them. One that
// runs on has said them in passing, or has been given something else since.
func (s *scene) kubeletRefused(p pattern) []string {
	running := s.unit.SubState == "running"
	if running && s.ago(s.unit.ActiveSince) > settled {
		return nil
	}
	var lines []string
	for _, l := range s.sources[0].said {
		if p().MatchString(l.text) && (!running || !l.last.After(s.unit.ActiveSince)) {
			lines = append(lines, l.text)
		}
	}
	return lines
}

var swapRefused = lazy(`running with swap on is not supported`)

func swap(s *scene) []Finding {
	lines := s.kubeletRefused(swapRefused)
	areas, err := s.h.Swap()
	if len(lines) == 0 || err != nil || len(areas) == 0 {
		return nil
	}
	return []Finding{{
		Subject: kubeletName, Message: "swap is on (" + strings.Join(areas, ", ") + "), and the kubelet refuses to run with it",
		Evidence: last(lines, 1),
		Next: "turn swap off with `swapoff -a` and take it out of /etc/fstab; or set failSwapOn: false in the KubeletConfiguration: " +
			"https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/",
	}}
}

var cgroupVersionRefused = lazy(`configured to not run on a host using cgroup v1|cgroup v1 support is (?:unsupported|deprecated).*failed`)

func cgroupVersion(s *scene) []Finding {
	lines := s.kubeletRefused(cgroupVersionRefused)
	if len(lines) == 0 {
		return nil
	}
	return []Finding{{
		Subject: kubeletName, Message: "this host has cgroup version 1, and the kubelet refuses to run on it", Evidence: last(lines, 1),
		Next: "boot with cgroup version 2 (systemd.unified_cgroup_hierarchy=1 on the kernel's command line); " +
			"or set failCgroupV1: false in the KubeletConfiguration: https://kubernetes.io/docs/concepts/architecture/cgroups/",
	}}
}

var cgroupDriverRefused = lazy(`cgroup driver: .* is different from|expected cgroupsPath to be of format|` +
	`cgroup driver.*mismatch|systemd cgroup flag passed, but systemd support`)

func cgroupDriver(s *scene) []Finding {
	lines := s.insists(s.sources[0], cgroupDriverRefused)
	if len(lines) == 0 {
		return nil
	}
	message := "the kubelet and the container runtime manage cgroups in different ways"
	if info, err := s.h.RuntimeInfo(s.ctx, s.t.Socket); err == nil && info.CgroupDriver != "" {
		message += ": the runtime's cgroup driver is " + info.CgroupDriver
	}
	return []Finding{{
		Subject: kubeletName, Message: message, Evidence: last(lines, 1), lasts: 3 * time.Second,
		Next: "set both alike, to systemd where systemd is init: cgroupDriver in the KubeletConfiguration, SystemdCgroup in containerd's " +
			"config.toml: https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/configure-cgroup-driver/",
	}}
}

var configRefused = lazy(`failed to load kubelet config file|failed to validate kubelet configuration|` +
	`failed to decode.*[Kk]ubelet|set feature gates from initial flags-based config|unrecognized feature gate`)

func kubeletConfig(s *scene) []Finding {
	lines := slices.DeleteFunc(s.kubeletRefused(configRefused), func(line string) bool {
		return swapRefused().MatchString(line) || cgroupVersionRefused().MatchString(line) // which have their own names
	})
	if len(lines) == 0 {
		return nil
	}
	path := filepath.Join(s.t.Kubelet, "config.yaml")
	if _, err := s.h.Lstat(path); err != nil {
		return []Finding{{
			Subject: kubeletName, Message: "its configuration " + path + " is not there: this host is not a node yet", Evidence: last(lines, 1),
			Next: "make it one with `slipway init` or `slipway join`", lasts: 2 * time.Second,
		}}
	}
	return []Finding{{
		Subject: kubeletName, Message: "it does not accept its configuration " + path, Evidence: last(lines, 1),
		Next: "fix the KubeletConfiguration (or the patch of target kubeletconfiguration) and run the same command again",
	}}
}

var mainExited = lazy(`Main process exited`)

// kubeletCrash is for a kubelet that ended twice with the same words, of which
// none of the other causes knows the meaning.
func kubeletCrash(s *scene) []Finding {
	var ends []string
	var words entry             // why it ended, by its own words
	var ended, before time.Time // when it did, and when the process before that did
	for _, e := range s.journal {
		switch {
		case e.Program == "systemd" && mainExited().MatchString(e.Message):
			ends = append(ends, e.Message)
			before, ended = ended, e.Time
		case e.Program != "systemd" && telling().MatchString(e.Message):
			words = e
		}
	}
	failed := s.unit.ActiveState == "failed"
	often := len(ends) > 1 || !s.t.Waiting && s.unit.Restarts > 1
	if !often && !failed || s.unit.SubState == "running" && s.ago(s.unit.ActiveSince) > 2*settled {
		return nil
	}
	f := Finding{
		Subject: kubeletName,
		Message: fmt.Sprintf("it ends again and again; unit %s is %s (%s), systemd has restarted it %d times, the last result was %s",
			kubeletService, s.unit.ActiveState, s.unit.SubState, s.unit.Restarts, s.unit.Result),
		Evidence: append(last(ends, 1), last(s.kubeletLines(), evidenceLines-1)...),
		Next:     "its last words are above; `journalctl -u kubelet` has all of them",
	}
	if words.Message != "" {
		f.Evidence = append(last(ends, 1), words.Message)
	}
	killed := len(ends) > 0 && killedBySignal().MatchString(ends[len(ends)-1]) // by a watchdog, or for want of memory
	switch {
	case failed:
		f.lasts = 2 * time.Second // nobody starts it again
	case killed, passing().MatchString(words.Message), words.first.After(before):
		f.lasts = never
	}
	return []Finding{f}
}

var killedBySignal = lazy(`code=(?:killed|dumped)`)

// telling are lines in which a component says why it ends.
var telling = lazy(`"command failed"|^E\d{4} .*(?:run|server)\.go|^F\d{4} |^panic:|^Error: |"level":"(?:fatal|panic)"|failed to run Kubelet`)
