// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

// Step is what to do on one node, before anything is done on the next.
type Step struct {
	Node string `json:"nodeName"`
	// Component is what the step upgrades: control-plane or kubelet.
	Component string `json:"component"`
	Version   string `json:"version"`
	// Commands are for a shell, in order. A line that begins with # says what depends on the node's packages.
	Commands []string `json:"commands"`
}

// The values of Step.Component.
const (
	stepControlPlane = "control-plane"
	stepKubelet      = "kubelet"
)

// Route are the settings of an upgrade that its steps depend on.
type Route struct {
	config.Upgrade
	// Here is the name of the node on which the plan is made; empty if that is none of the cluster.
	Here string
	// Leader is the name of the node whose member leads etcd; empty if it is not known.
	Leader string
}

// Steps returns how to bring the whole cluster to r.Version: one minor version after the other, all control planes before
// the next minor. A kubelet is upgraded when it would become too old for the next minor, and at the end: each time its
// Pods have to move.
func (s *State) Steps(r Route) ([]Step, error) {
	hops, err := s.hops(r.Version)
	if err != nil {
		return nil, err
	}
	p := planner{route: r, nodes: slices.Clone(s.Nodes), configured: s.Configured}
	now, _ := s.span()
	for _, hop := range hops {
		p.kubelets(now, tooOldFor(hop))
		p.controlPlanes(hop)
		now = hop
	}
	p.kubelets(now, func(v *version.Version) bool { return v.LessThan(now) })
	return p.steps, nil
}

// hops are the versions that the control planes go through: the newest known patch of each minor version, and the target.
func (s *State) hops(target string) ([]*version.Version, error) {
	to, err := version.ParseSemantic(target)
	oldest, _ := s.span()
	if err != nil || oldest == nil {
		return nil, errors.Errorf("cannot tell how to get from %s to %s", s.Configured, target)
	}
	hops := []*version.Version{to}
	for minor := to.OffsetMinor(-1); minorOf(oldest).LessThan(minorOf(minor)); minor = minor.OffsetMinor(-1) {
		patch := config.NewestPatch(int(minor.Minor()))
		if patch == "" {
			return nil, fault.New("slipway cannot upgrade a cluster to Kubernetes "+minorOf(minor).String()+", which is on the way to "+target,
				"first upgrade the cluster to "+minorOf(minor).String()+" with kubeadm")
		}
		hops = append(hops, version.MustParseSemantic(patch))
	}
	slices.Reverse(hops)
	return hops, nil
}

// planner goes through an upgrade: its nodes are as they are after the steps so far.
type planner struct {
	route      Route
	configured string
	nodes      []NodeVersions
	steps      []Step
}

// controlPlanes adds the steps by which all control planes get a version.
func (p *planner) controlPlanes(to *version.Version) {
	var behind []*NodeVersions
	for i := range p.nodes {
		if n := &p.nodes[i]; n.ControlPlane && older(n.APIServer, to) {
			behind = append(behind, n)
		}
	}
	slices.SortStableFunc(behind, func(a, b *NodeVersions) int { return cmp.Compare(p.rank(a), p.rank(b)) })
	if older(p.configured, to) {
		if first := p.first(behind, to); first != nil {
			p.add(first, stepControlPlane, to, p.apply(to))
			behind = slices.DeleteFunc(behind, func(n *NodeVersions) bool { return n == first })
		}
	}
	for _, n := range behind {
		p.add(n, stepControlPlane, to, p.flags("slipway upgrade node"))
	}
	p.configured = "v" + to.String()
}

// rank puts this host first, and etcd's leader last: then the lead moves once, to a member that need not restart any more.
func (p *planner) rank(n *NodeVersions) int {
	switch n.Name {
	case p.route.Leader:
		return 2
	case p.route.Here:
		return 0
	}
	return 1
}

// first is the control plane for `upgrade apply`: one that an interrupted run has already upgraded, or else the first of
// those behind.
func (p *planner) first(behind []*NodeVersions, to *version.Version) *NodeVersions {
	for i := range p.nodes {
		if n := &p.nodes[i]; n.ControlPlane && n.APIServer == "v"+to.String() {
			return n
		}
	}
	if len(behind) == 0 {
		return nil
	}
	return behind[0]
}

// kubelets adds the steps by which the kubelets that need it get a version: those of the control planes first.
func (p *planner) kubelets(to *version.Version, needed func(*version.Version) bool) {
	for _, controlPlanes := range []bool{true, false} {
		for i := range p.nodes {
			n := &p.nodes[i]
			have, err := version.ParseSemantic(n.Kubelet)
			if n.ControlPlane != controlPlanes || err != nil || !needed(have) {
				continue
			}
			var commands []string
			if !n.ControlPlane && config.NewestPatch(int(to.Minor())) != "" {
				commands = append(commands, "slipway upgrade node")
			}
			p.add(n, stepKubelet, to, append(commands,
				"kubectl drain "+n.Name+" --ignore-daemonsets --delete-emptydir-data",
				"# install kubelet and kubectl v"+to.String(),
				"systemctl daemon-reload && systemctl restart kubelet",
				"kubectl uncordon "+n.Name)...)
		}
	}
}

func (p *planner) add(n *NodeVersions, component string, to *version.Version, commands ...string) {
	v := "v" + to.String()
	p.steps = append(p.steps, Step{n.Name, component, v, commands})
	if component == stepKubelet {
		n.Kubelet = v
	} else {
		n.APIServer = v
	}
}

// apply is the command for the first control plane.
func (p *planner) apply(to *version.Version) string {
	command := []string{"slipway upgrade apply v" + to.String()}
	switch kind, _, _ := strings.Cut(to.PreRelease(), "."); kind {
	case "":
	case "rc":
		command = append(command, "--allow-release-candidate-upgrades")
	default:
		command = append(command, "--allow-experimental-upgrades")
	}
	return p.flags(strings.Join(command, " "))
}

// flags adds the flags of the plan that each command for a control plane needs.
func (p *planner) flags(command string) string {
	if !p.route.Etcd {
		command += " --etcd-upgrade=false"
	}
	return command
}

// tooOldFor reports whether a kubelet must not stay when the control planes get a version.
func tooOldFor(next *version.Version) func(*version.Version) bool {
	oldest := minorOf(next.OffsetMinor(-kubeletSkew))
	return func(v *version.Version) bool { return minorOf(v).LessThan(oldest) }
}

// older reports whether text is a version older than v. One that is not known counts as older.
func older(text string, v *version.Version) bool {
	have, err := version.ParseSemantic(text)
	return err != nil || have.LessThan(v)
}
