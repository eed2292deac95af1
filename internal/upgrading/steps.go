// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// Step is the work on one node, to be finished before the next node's.
type Step struct {
	Node string `json:"nodeName"`
	// Component is control-plane or kubelet.
	Component string `json:"component"`
	Version   string `json:"version"`
	// Commands are for a shell, in order. A line that begins with # describes manual work, such as installing packages.
	Commands []string `json:"commands"`
}

// The values of Step.Component.
const (
	stepControlPlane = "control-plane"
	stepKubelet      = "kubelet"
)

// Route holds the settings of an upgrade that its steps depend on.
type Route struct {
	config.Upgrade
	Here   string // the name of the node that makes the plan; empty elsewhere
	Leader string // the name of the node whose member leads etcd; empty if unknown
	Given  Given
	// Patched reports whether the plan has printed patches for the node Here, which its steps need.
	Patched bool
}

// Given holds the flags of the plan's command line that its steps' commands need, too.
type Given struct {
	// Config and Patches are paths; empty if not given. A configuration file replaces the flags that it has fields for.
	Config, Patches       string
	Kubeconfig            string // the path of an administrator's kubeconfig file on the control planes
	IgnorePreflightErrors []string
}

// Steps returns the way of the whole cluster to r.Version: minor by minor, all control planes before the next minor. A kubelet is
// upgraded before it would become too old for the next minor, and at the end: each time its Pods have to move.
func (s *State) Steps(r Route) ([]Step, error) {
	hops, err := s.hops(r.Version)
	if err != nil {
		return nil, err
	}
	p := planner{route: r, nodes: slices.Clone(s.Nodes), configured: s.Configured}
	now, _ := s.span()
	for _, hop := range hops {
		oldest := releases.Minor(hop.OffsetMinor(-releases.KubeletSkew))
		p.kubelets(now, func(v *version.Version) bool { return releases.Minor(v).LessThan(oldest) })
		p.controlPlanes(hop)
		now = hop
	}
	p.kubelets(now, func(v *version.Version) bool { return v.LessThan(now) })
	return p.steps, nil
}

// FirstStep returns the version to which a control plane is upgraded first on the way to the target.
func (s *State) FirstStep(node, target string) string {
	hops, err := s.hops(target)
	i := slices.IndexFunc(s.Nodes, func(n NodeVersions) bool { return n.Name == node })
	if err != nil || i < 0 {
		return target
	}
	for _, hop := range hops {
		if older(s.Nodes[i].APIServer, hop) {
			return "v" + hop.String()
		}
	}
	return target
}

// hops returns the control planes' versions on the way: the newest known patch of each minor version, and the target.
func (s *State) hops(target string) ([]*version.Version, error) {
	to, err := version.ParseSemantic(target)
	oldest, _ := s.span()
	if err != nil || oldest == nil {
		return nil, errors.Errorf("cannot tell how to get from %s to %s", s.Configured, target)
	}
	hops := []*version.Version{to}
	for minor := to.OffsetMinor(-1); releases.Minor(oldest).LessThan(releases.Minor(minor)); minor = minor.OffsetMinor(-1) {
		patch := config.NewestPatch(int(minor.Minor()))
		if patch == "" {
			return nil, fault.New("slipway cannot upgrade a cluster to Kubernetes "+releases.Minor(minor).String()+", which is on the way to "+target,
				"first upgrade the cluster to "+releases.Minor(minor).String()+" with kubeadm")
		}
		hops = append(hops, version.MustParseSemantic(patch))
	}
	slices.Reverse(hops)
	return hops, nil
}

// planner walks through an upgrade: its nodes are as they'll be after the steps so far.
type planner struct {
	route      Route
	configured string
	nodes      []NodeVersions
	steps      []Step
	// patched is set once a step uses the printed patches. They may name images of its version, so later steps need others.
	patched bool
}

// controlPlanes adds the steps to bring all control planes to a version.
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
			p.add(first, stepControlPlane, to, p.commands(first, p.apply(to))...)
			behind = slices.DeleteFunc(behind, func(n *NodeVersions) bool { return n == first })
		}
	}
	for _, n := range behind {
		p.add(n, stepControlPlane, to, p.commands(n, upgradeNode)...)
	}
	p.configured = "v" + to.String()
}

// rank puts this host first, and etcd's leader last: then the lead moves once, to a member that doesn't need to restart any more.
func (p *planner) rank(n *NodeVersions) int {
	switch n.Name {
	case p.route.Leader:
		return 2
	case p.route.Here:
		return 0
	}
	return 1
}

// first returns the control plane for `upgrade apply`: one upgraded by an interrupted run, or else the first that's behind.
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

// kubelets adds the steps to bring kubelets in need to a version, the control planes' first.
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
				commands = p.commands(n, upgradeNode)
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

// upgradeNode is the command for all nodes but the first control plane.
const upgradeNode = "slipway upgrade node"

// apply returns the command for the first control plane.
func (p *planner) apply(to *version.Version) string {
	command := "slipway upgrade apply v" + to.String()
	if p.route.Given.Config != "" {
		return command // the file allows versions that aren't stable
	}
	switch kind, _, _ := strings.Cut(to.PreRelease(), "."); kind {
	case "":
	case "rc":
		command += " --allow-release-candidate-upgrades"
	default:
		command += " --allow-experimental-upgrades"
	}
	return command
}

// printAgain is a step for later hops: printed patches name the images of the hop they were printed for.
const printAgain = "# run `slipway upgrade plan` again, and replace the earlier patches by the patches it prints"

// commands returns the command that upgrades a node, with the flags of the plan, after any manual work.
func (p *planner) commands(n *NodeVersions, command string) []string {
	given := p.route.Given
	add := func(flag, value string) {
		if value != "" {
			command += " --" + flag + " " + Quoted(value)
		}
	}
	printed := p.route.Patched && n.ControlPlane && n.Name == p.route.Here
	if n.ControlPlane {
		add("kubeconfig", given.Kubeconfig)
	}
	add("ignore-preflight-errors", strings.Join(given.IgnorePreflightErrors, ","))
	var manual []string
	if printed && p.patched {
		manual = []string{printAgain}
	} else if printed && given.Config != "" {
		manual = []string{"# put the printed patches into the directory of patches that " + given.Config + " names"}
	}
	p.patched = p.patched || printed
	if given.Config != "" {
		add("config", given.Config)
		return append(manual, command)
	}
	if n.ControlPlane && !p.route.Etcd {
		command += " --etcd-upgrade=false"
	}
	if printed {
		given.Patches = cmp.Or(given.Patches, "DIR")
	}
	add("patches", given.Patches)
	return append(manual, command)
}

func Quoted(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-,:@+=", r)
	}) {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// older reports whether text is a version older than v. An unknown version counts as older.
func older(text string, v *version.Version) bool {
	have, err := version.ParseSemantic(text)
	return err != nil || have.LessThan(v)
}
