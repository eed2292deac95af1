// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

var flagRefused = lazyregexp.New(`unknown (?:shorthand )?flag|flag provided but not defined|bad flag syntax|invalid argument ".*" for "|` +
	`flag needs an argument|failed to parse kubelet flag|invalid value ".*" for flag|invalid boolean (?:value|flag)|` +
	`unrecognized feature gate|cannot set feature gate|admission-plugins plugin ".*" is unknown|unknown api (?:groups|versions?)`)

// badFlag looks only at components that have ended: a bad flag ends a program at once.
func badFlag(o *observation) []symptom {
	var found []symptom
	for _, src := range o.sources {
		if !src.dead {
			continue
		}
		lines := matching(src.lines, flagRefused)
		if len(lines) == 0 {
			continue
		}
		f := symptom{Finding: fault.Finding{Subject: src.subject, Evidence: last(lines, 1)}}
		f.Message = "does not accept one of its flags"
		f.Remedy = "fix extraArgs in the ClusterConfiguration, or the patch that adds the flag, and run the same command again"
		if src.subject == kubeletName {
			f.Remedy = "fix nodeRegistration.kubeletExtraArgs, or KUBELET_EXTRA_ARGS in /etc/default/kubelet or /etc/sysconfig/kubelet, and run the same command again"
		} else if p := o.pod(src.subject); p != nil {
			f.Message += " (" + p.path + ")"
		}
		found = append(found, f)
	}
	return found
}

var (
	inUse    = lazyregexp.New(`address already in use`)
	aboutPod = lazyregexp.New(`\b(?:pod|podUID|containerName|sandboxID|PodSandboxId)[=:]`)
	listened = lazyregexp.New(`listen (?:tcp|udp)[46]? \S*:(\d+): bind`)
)

// stopping is how long a component's previous process may take to end.
const stopping = 35 * time.Second

// portTaken finds the program on a port a component couldn't listen on: for a moment, perhaps its own previous process.
func portTaken(o *observation) []symptom {
	var found []symptom
	for _, src := range o.sources {
		if !src.dead && src.subject != kubeletName {
			continue
		}
		lines := matching(src.lines, inUse)
		if src.subject == kubeletName {
			lines = slices.DeleteFunc(lines, aboutPod().MatchString) // Pods may use a port of the host, too
		}
		if len(lines) == 0 {
			continue
		}
		line := lines[len(lines)-1]
		m := listened().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		port, _ := strconv.Atoi(m[1]) // digits
		holder, known := o.h.PortHolder(port)
		f := symptom{Finding: fault.Finding{Subject: src.subject, Evidence: []string{line}}}
		switch {
		case !known:
			f.Message = fmt.Sprintf("port %d, which it needs, was held by another program", port)
			f.Remedy = fmt.Sprintf("find the program that holds the port with `ss -ltnp 'sport = :%d'` as root, and stop it", port)
			f.minDuration = never // it is free by now
		case holder.Name == src.subject && o.holdsItself(holder.PID, src.subject):
			continue
		default:
			f.Message = fmt.Sprintf("port %d, which it needs, is held by %s (process %d)", port, holder.Name, holder.PID)
			f.Remedy = "stop that program, or give it another port; the kubelet then starts this component again"
			f.minDuration = time.Second
			if holder.Name == src.subject {
				f.minDuration = stopping
			}
		}
		found = append(found, f)
	}
	return found
}

func (o *observation) holdsItself(pid int, subject string) bool {
	if subject == kubeletName {
		return uint32(pid) == o.unit.MainPID
	}
	p := o.pod(subject)
	return p != nil && p.running()
}

// bound matches a failure to listen. A failure to connect may name an address, too, such as [::1], but then another is tried.
var bound = lazyregexp.New(`listen (?:tcp|udp)[46]? (\S+):\d+: bind: cannot assign requested address`)

// addressMissing compares the address a component couldn't listen on with this host's addresses.
func addressMissing(o *observation) []symptom {
	var found []symptom
	changed := addressChanged(o)
	for _, src := range o.sources {
		if !src.dead {
			continue
		}
		lines := matching(src.lines, bound)
		if len(lines) == 0 || slices.ContainsFunc(changed, func(c symptom) bool { return c.Subject == src.subject }) {
			continue
		}
		line := lines[len(lines)-1]
		m := bound().FindStringSubmatch(line)
		address, err := netip.ParseAddr(strings.Trim(m[1], "[]"))
		all, listErr := o.h.Addresses()
		if err == nil && listErr == nil && slices.Contains(all, address) {
			continue // it exists now
		}
		f := symptom{minDuration: time.Second, Finding: fault.Finding{
			Subject: src.subject, Evidence: []string{line},
			Message: "is configured to listen on " + m[1] + ", which is not an address of this host",
			Remedy:  "advertise an address of this host (localAPIEndpoint.advertiseAddress, --apiserver-advertise-address); `ip address` lists them",
		}}
		if listErr == nil {
			f.Evidence = append(f.Evidence, "this host has "+join(all))
		}
		found = append(found, f)
	}
	return found
}

func join(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		if a.IsGlobalUnicast() {
			texts = append(texts, a.String())
		}
	}
	return strings.Join(texts, ", ")
}
