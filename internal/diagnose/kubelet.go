// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// kubeletUnit finds a unit that can't run or was stopped.
func kubeletUnit(o *observation) []symptom {
	f := symptom{Finding: fault.Finding{Subject: kubeletService}}
	switch u := o.unit; {
	case errors.Is(o.unitErr, host.ErrNoSystemd):
		if p, found := o.h.PortHolder(10250); found && p.Name == kubeletName {
			return nil // something else has started it
		}
		f.Message, f.minDuration = o.unitErr.Error(), never
		f.Remedy = "start the kubelet in another way, such as with this host's init system"
	case o.unitErr != nil:
		return nil
	case u.LoadState == "not-found":
		f.Message = "systemd has no such unit"
		f.Remedy = "install the package kubelet, which contains it, or write the unit and run `systemctl daemon-reload`"
	case u.LoadState == "masked" || u.UnitFileState == "masked":
		f.Message = "the unit is masked, so it cannot be started"
		f.Remedy = "run `systemctl unmask kubelet`, then the same command again"
	case u.LoadState != "loaded":
		f.Message = "systemd cannot load the unit: its load state is " + u.LoadState
		f.Remedy = "see `systemctl status kubelet`, fix the unit, and run `systemctl daemon-reload`"
	case u.ActiveState == "inactive":
		f.Message, f.minDuration = "the unit is stopped", 2*time.Second
		f.Remedy = "start it with `systemctl start kubelet`; `systemctl list-jobs` and `journalctl -u kubelet` may show who stopped it"
		f.Evidence = o.systemdLines()
	default:
		return nil
	}
	return []symptom{f}
}

// systemdLines returns systemd's last lines about the kubelet's unit.
func (o *observation) systemdLines() []string {
	var lines []string
	for _, e := range o.journal {
		if e.Program == "systemd" {
			lines = append(lines, e.Message)
		}
	}
	return last(lines, 2)
}

// kubeletRefused returns matching lines if the kubelet ended with them. If it kept running, they don't matter, or not any more.
func (o *observation) kubeletRefused(p lazyregexp.Pattern) []string {
	running := o.unit.SubState == "running"
	if running && o.ago(o.unit.ActiveSince) > settled {
		return nil
	}
	var lines []string
	for _, l := range o.sources[0].said {
		if p().MatchString(l.text) && (!running || !l.last.After(o.unit.ActiveSince)) {
			lines = append(lines, l.text)
		}
	}
	return lines
}

var swapRefused = lazyregexp.New(`running with swap on is not supported`)

func swap(o *observation) []symptom {
	lines := o.kubeletRefused(swapRefused)
	areas, err := o.h.Swap()
	if len(lines) == 0 || err != nil || len(areas) == 0 {
		return nil
	}
	return []symptom{{Finding: fault.Finding{
		Subject: kubeletName, Evidence: last(lines, 1),
		Message: "swap is on (" + strings.Join(areas, ", ") + "), and the kubelet refuses to run with it",
		Remedy: "turn it off, now and at boot, with `slipway host prepare phase swap`, or set failSwapOn: false in the KubeletConfiguration: " +
			"https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/",
	}}}
}

var cgroupVersionRefused = lazyregexp.New(`configured to not run on a host using cgroup v1|cgroup v1 support is (?:unsupported|deprecated).*failed`)

func cgroupVersion(o *observation) []symptom {
	lines := o.kubeletRefused(cgroupVersionRefused)
	if len(lines) == 0 {
		return nil
	}
	return []symptom{{Finding: fault.Finding{
		Subject: kubeletName, Evidence: last(lines, 1),
		Message: "this host uses cgroup v1, and the kubelet refuses to run on it",
		Remedy: "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1 on the kernel's command line), " +
			"or set failCgroupV1: false in the KubeletConfiguration: https://kubernetes.io/docs/concepts/architecture/cgroups/",
	}}}
}

var cgroupDriverRefused = lazyregexp.New(`cgroup driver: .* is different from|expected cgroupsPath to be of format|` +
	`cgroup driver.*mismatch|systemd cgroup flag passed, but systemd support`)

func cgroupDriver(o *observation) []symptom {
	lines := o.repeatedLines(o.sources[0], cgroupDriverRefused)
	if len(lines) == 0 {
		return nil
	}
	message := "uses another cgroup driver than the container runtime"
	if info, err := o.h.RuntimeInfo(o.ctx, o.t.Socket); err == nil && info.CgroupDriver != "" {
		message += ": the runtime's cgroup driver is " + info.CgroupDriver
	}
	return []symptom{{minDuration: 3 * time.Second, Finding: fault.Finding{
		Subject: kubeletName, Evidence: last(lines, 1),
		Message: message,
		Remedy: "set the same driver in both, systemd if the host runs systemd: cgroupDriver in the KubeletConfiguration, SystemdCgroup in " +
			"containerd's config.toml: https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/configure-cgroup-driver/",
	}}}
}

var configRefused = lazyregexp.New(`failed to load kubelet config file|failed to validate kubelet configuration|` +
	`failed to decode.*[Kk]ubelet|set feature gates from initial flags-based config|unrecognized feature gate`)

func kubeletConfig(o *observation) []symptom {
	lines := slices.DeleteFunc(o.kubeletRefused(configRefused), func(line string) bool {
		return swapRefused().MatchString(line) || cgroupVersionRefused().MatchString(line) // these are causes of their own
	})
	if len(lines) == 0 {
		return nil
	}
	path := filepath.Join(o.t.Kubelet, "config.yaml")
	if _, err := o.h.Lstat(path); err != nil {
		return []symptom{{minDuration: 2 * time.Second, Finding: fault.Finding{
			Subject: kubeletName, Evidence: last(lines, 1),
			Message: "its configuration " + path + " does not exist: this host is not a node yet",
			Remedy:  "run `slipway init` or `slipway join`",
		}}}
	}
	return []symptom{{Finding: fault.Finding{
		Subject: kubeletName, Evidence: last(lines, 1),
		Message: "does not accept its configuration " + path,
		Remedy:  "fix the KubeletConfiguration (or the patch for target kubeletconfiguration) and run the same command again",
	}}}
}

var mainExited = lazyregexp.New(`Main process exited`)

// kubeletCrash finds a kubelet that ended twice with the same message, if no other cause explains it.
func kubeletCrash(o *observation) []symptom {
	var ends []string
	var words entry             // its message about why it ended
	var ended, before time.Time // when it ended, and the process before it
	for _, e := range o.journal {
		switch {
		case e.Program == "systemd" && mainExited().MatchString(e.Message):
			ends = append(ends, e.Message)
			before, ended = ended, e.Time
		case e.Program != "systemd" && fatalLine().MatchString(e.Message):
			words = e
		}
	}
	failed := o.unit.ActiveState == "failed"
	often := len(ends) > 1 || !o.t.Waiting && o.unit.Restarts > 1
	if !often && !failed || o.unit.SubState == "running" && o.ago(o.unit.ActiveSince) > 2*settled {
		return nil
	}
	f := symptom{Finding: fault.Finding{
		Subject: kubeletName,
		Message: fmt.Sprintf("keeps crashing: unit %s is %s (%s), systemd has restarted it %d times, the last result was %s",
			kubeletService, o.unit.ActiveState, o.unit.SubState, o.unit.Restarts, o.unit.Result),
		Remedy:   "see its last messages above; `journalctl -u kubelet` shows all of them",
		Evidence: append(last(ends, 1), last(o.kubeletLines(), evidenceLines-1)...),
	}}
	if words.Message != "" {
		f.Evidence = append(last(ends, 1), words.Message)
	}
	killed := len(ends) > 0 && killedBySignal().MatchString(ends[len(ends)-1]) // by a watchdog, or out of memory
	switch {
	case failed:
		f.minDuration = 2 * time.Second // systemd won't start it again
	case killed, passing().MatchString(words.Message), words.first.After(before):
		f.minDuration = never
	}
	return []symptom{f}
}

var killedBySignal = lazyregexp.New(`code=(?:killed|dumped)`)

// fatalLine matches the line in which a component says why it ends.
var fatalLine = lazyregexp.New(`"command failed"|^E\d{4} .*(?:run|server)\.go|^F\d{4} |^panic:|^Error: |"level":"(?:fatal|panic)"|failed to run Kubelet`)
