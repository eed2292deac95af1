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
)

var flagRefused = lazy(`unknown (?:shorthand )?flag|flag provided but not defined|bad flag syntax|invalid argument ".*" for "|` +
	`flag needs an argument|failed to parse kubelet flag|invalid value ".*" for flag|invalid boolean (?:value|flag)`)

// badFlag looks at what has ended: a flag that is not accepted ends a program
// at once.
func badFlag(s *scene) []Finding {
	var found []Finding
	for _, src := range s.sources {
		lines := matching(src.lines, flagRefused)
		if len(lines) == 0 || !src.dead {
			continue
		}
		f := Finding{Subject: src.subject, Message: "it does not accept one of its flags", Evidence: last(lines, 1)}
		f.Next = "fix extraArgs in the ClusterConfiguration, or the patch that adds the flag, and run the same command again"
		if src.subject == kubeletName {
			f.Next = "fix nodeRegistration.kubeletExtraArgs, or KUBELET_EXTRA_ARGS in /etc/default/kubelet, and run the same command again"
		} else if p := s.pod(src.subject); p != nil {
			f.Message += " (" + p.path + ")"
		}
		found = append(found, f)
	}
	return found
}

var (
	inUse    = lazy(`address already in use`)
	aboutPod = lazy(`\b(?:pod|podUID|containerName|sandboxID|PodSandboxId)[=:]`)
	listened = lazy(`listen (?:tcp|udp)[46]? \S*:(\d+): bind`)
)

// stopping is how long a component of before may take to end.
const stopping = 35 * time.Second

// portTaken finds out who holds a port that a component could not listen on.
// Its own predecessor may, for a moment.
func portTaken(s *scene) []Finding {
	var found []Finding
	for _, src := range s.sources {
		lines := matching(src.lines, inUse)
		if src.subject == kubeletName {
			lines = slices.DeleteFunc(lines, aboutPod().MatchString) // which may want a port of the host, too
		}
		if len(lines) == 0 || !src.dead && src.subject != kubeletName {
			continue
		}
		line := lines[len(lines)-1]
		m := listened().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		port, _ := strconv.Atoi(m[1]) // digits
		holder, known := s.h.PortHolder(port)
		f := Finding{Subject: src.subject, Evidence: []string{line}}
		switch {
		case !known:
			f.Message = fmt.Sprintf("port %d, which it needs, was held by another program", port)
			f.Next = fmt.Sprintf("find what holds the port with `ss -ltnp 'sport = :%d'` as root and stop it", port)
			f.lasts = never // it is free by now
		case holder.Name == src.subject && s.holdsItself(holder.PID, src.subject):
			continue
		default:
			f.Message = fmt.Sprintf("port %d, which it needs, is held by %s (process %d)", port, holder.Name, holder.PID)
			f.Next = "stop that program, or give it another port; the kubelet then starts this one again by itself"
			f.lasts = time.Second
			if holder.Name == src.subject {
				f.lasts = stopping
			}
		}
		found = append(found, f)
	}
	return found
}

// holdsItself tells whether the holder of a port is the component that runs by
// now.
func (s *scene) holdsItself(pid int, subject string) bool {
	if subject == kubeletName {
		return uint32(pid) == s.unit.MainPID
	}
	p := s.pod(subject)
	return p != nil && p.running()
}

// bound is a refusal to listen. One to connect is said of an address, too, such
// as [::1] where there is no IPv6, and then another one is tried.
var bound = lazy(`listen (?:tcp|udp)[46]? (\S+):\d+: bind: cannot assign requested address`)

// addressMissing compares the address that could not be listened on with those
// of this host.
func addressMissing(s *scene) []Finding {
	var found []Finding
	for _, src := range s.sources {
		lines := matching(src.lines, bound)
		if len(lines) == 0 || !src.dead {
			continue
		}
		line := lines[len(lines)-1]
		m := bound().FindStringSubmatch(line)
		address, err := netip.ParseAddr(strings.Trim(m[1], "[]"))
		all, listErr := s.h.Addresses()
		if err == nil && listErr == nil && slices.Contains(all, address) {
			continue // it is there by now
		}
		f := Finding{
			Subject: src.subject, Message: "it shall listen on " + m[1] + ", which is not an address of this host",
			Evidence: []string{line}, lasts: time.Second,
			Next: "advertise an address of this host (localAPIEndpoint.advertiseAddress, --apiserver-advertise-address); `ip address` lists them",
		}
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
