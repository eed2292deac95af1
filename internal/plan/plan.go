// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan is the output of a dry run. Recorders of the host, the API and etcd pass each step to a Plan (AddHost,
// AddCluster, AddEtcd). Write prints it as text, JSON or YAML; after CompareWith, as differences from the present state.
package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// Plan holds the steps of a dry run, in order.
type Plan struct {
	Form          string // output form: text, json or yaml
	Command, Node string // as they appear in the plan
	// Shown is a text as this program's messages have it; nil for the same.
	Shown func(text string) string
	now   *present // the state before the plan; nil without --diff
	// warn reports why the plan can't be compared with a cluster.
	warn    func(format string, args ...any)
	assumed *config.Node // the node of a plan for a cluster that wasn't asked; otherwise nil

	mu      sync.Mutex
	phase   string // being planned
	Steps   []step
	effects []ui.Effect // beyond the steps
}

// step is one action of a plan, see docs/machine-output.md. It has no secrets, and nothing that differs between dry runs.
type step struct {
	Phase string `json:"phase,omitempty"`
	// Action is one word: write, mkdir, start-unit, ensure, ...
	Action  string `json:"action"`
	Path    string `json:"path,omitempty"`
	NewPath string `json:"newPath,omitempty"`
	Mode    string `json:"mode,omitempty"` // octal, four digits
	// Owner is UID:GID, with -1 for an ID that doesn't change.
	Owner  string     `json:"owner,omitempty"`
	Unit   string     `json:"unit,omitempty"`
	Image  string     `json:"image,omitempty"`
	Object *objectRef `json:"object,omitempty"`
	Member *memberRef `json:"etcdMember,omitempty"`
	// Name belongs to a Pod, or to something in the kernel's network.
	Name string `json:"name,omitempty"`
	// Entries are the contents of a directory to remove; directories end with a slash.
	Entries []string `json:"entries,omitempty"`
	Secret  bool     `json:"secret,omitempty"`
	Content string   `json:"content,omitempty"`
	// Manifest is the object to write, without the values of Secrets.
	Manifest json.RawMessage `json:"manifest,omitempty"`
	// Change is create, update, delete or none, if known.
	Change string `json:"change,omitempty"`
	// Now is the state of a unit before this step; Diff is the change to a file or object. Both need --diff.
	Now  string `json:"now,omitempty"`
	Diff string `json:"diff,omitempty"`

	title  string // for people
	body   string
	opaque bool // Content only describes the file
}

type objectRef struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

type memberRef struct {
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerURL"`
}

// CompareWith adds to the steps their differences from a host's present state. warn reports why a cluster can't be compared.
func (p *Plan) CompareWith(h host.Host, warn func(format string, args ...any)) {
	p.now, p.warn = newPresent(h), warn
}

func (p *Plan) enter(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = phase
}

func (p *Plan) add(s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Phase = p.phase
	if p.assumed != nil {
		p.markAssumed(&s)
	}
	if p.now != nil {
		p.now.describe(&s)
	}
	p.Steps = append(p.Steps, s)
	// Images are pulled in parallel, in no fixed order, so the plan sorts them.
	for i := len(p.Steps) - 1; i > 0 && p.Steps[i].isPull() && p.Steps[i-1].isPull() && p.Steps[i].Image < p.Steps[i-1].Image; i-- {
		p.Steps[i], p.Steps[i-1] = p.Steps[i-1], p.Steps[i]
	}
}

func (s step) isPull() bool { return s.Image != "" }

func word[verb ~string](v verb) string { return strings.ReplaceAll(string(v), " ", "-") }

// AddHost adds a change to the host, as a step.
func (p *Plan) AddHost(a host.Action) {
	s := step{Action: word(a.Verb), Path: a.Path, NewPath: a.NewPath, Unit: a.Unit, Image: a.Image, Name: a.Name, Entries: a.Entries,
		Secret: a.Secret, title: a.String(), opaque: a.Opaque}
	switch a.Verb {
	case host.Write, host.Mkdir, host.Chmod:
		s.Mode = fmt.Sprintf("%04o", a.Mode.Perm())
	case host.Chown:
		s.Owner = fmt.Sprintf("%d:%d", a.UID, a.GID)
	}
	switch {
	case a.Secret:
		s.title += " (secret, not shown)"
	case a.Verb == host.Write:
		s.Content = describeFile(a.Data)
		s.body = s.Content
	default:
		s.body = strings.Join(a.Entries, "\n")
	}
	if a.Verb == host.Write {
		s.Change = "update"
		if a.Created {
			s.Change = "create"
		}
	}
	p.add(s)
}

// AddCluster adds a change to the cluster's objects, as a step.
func (p *Plan) AddCluster(a cluster.Action) {
	s := step{Action: word(a.Verb)}
	if a.Kind == "" { // it waits
		s.title = string(a.Verb) + " " + a.Name
		s.Content = a.Name
		p.add(s)
		return
	}
	s.Object = &objectRef{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}
	name := a.Name
	if a.Namespace != "" {
		name = a.Namespace + "/" + name
	}
	s.title = fmt.Sprintf("%s %s %s", a.Verb, a.Kind, name)
	if a.Object != nil {
		s.Object.APIVersion = a.Object.GetObjectKind().GroupVersionKind().GroupVersion().String()
		s.Secret = a.Kind == "Secret"
		s.Manifest, s.body = showObject(a.Object)
	}
	if a.Verb == cluster.VerbPrecreate {
		s.body = "" // the rest is up to the cluster
	}
	switch d := a.Difference; {
	case d == nil:
	case d.Err != nil:
		p.warn("cannot ask the cluster, so objects are shown in full: %v", d.Err)
	default:
		s.compared(d)
	}
	p.add(s)
}

// AddEtcd adds a change to etcd, as a step.
func (p *Plan) AddEtcd(a etcd.Action) {
	s := step{Action: word(a.Verb), title: strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", a.Verb, a.Name, a.PeerURL)), " ")}
	if a.PeerURL != "" {
		s.Member = &memberRef{a.Name, a.PeerURL}
	}
	p.add(s)
}

// document is a plan for programs. Its schema changes when a field is removed or changes meaning, but not when a field is added.
type document struct {
	Schema  string `json:"schema"`
	Command string `json:"command"`
	Node    string `json:"node,omitempty"`
	// Assumed means the cluster wasn't asked: content that depends on it is <from the cluster: WHAT>.
	Assumed bool `json:"assumed,omitempty"`
	// These are what the steps cause, or leave to do: see ui.Effect.
	Changes    []ui.Field     `json:"changes,omitempty"`
	Restarts   []string       `json:"restarts,omitempty"`
	APIAway    float64        `json:"apiAwaySeconds,omitempty"`
	OtherNodes []ui.OtherNode `json:"otherNodes,omitempty"`
	Steps      []step         `json:"steps"`
}

const schemaVersion = "slipway.plan/v1"

func (p *Plan) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	d := document{Schema: schemaVersion, Command: p.Command, Node: p.Node, Assumed: p.assumed != nil}
	d.Steps = append([]step{}, p.Steps...)
	for _, e := range p.effects {
		d.Changes = append(d.Changes, e.Changes...)
		d.Restarts = append(d.Restarts, e.Restarts...)
		d.APIAway += e.APIAway.Seconds()
		d.OtherNodes = append(d.OtherNodes, e.Others...)
	}
	err := enc.Encode(d)
	return b.Bytes(), err
}

// UI shows only warnings and questions; steps and effects are in the plan.
type UI struct {
	ui.UI
	Plan *Plan // nil during discovery
}

// Start keeps the phase's UI quiet, too.
func (p UI) Start(phase string) (ui.UI, func(error)) {
	if p.Plan != nil {
		p.Plan.enter(phase)
	}
	in, end := p.UI.Start(phase)
	return UI{in, p.Plan}, end
}

// Kept adds a step to a plan with --diff, and warns otherwise.
func (p UI) Kept(k ui.Kept) {
	if p.Plan == nil || p.Plan.now == nil {
		k.Warn(p.UI)
		return
	}
	s := step{Action: "keep", Path: k.Path, Change: cluster.None, Diff: labelled(k.Title(), "asked for", k.Now, k.Ours), title: "keep " + k.Title()}
	if k.Kind != "" {
		s.Object = &objectRef{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
	}
	if s.Diff == "" {
		s.Diff = k.Summary + "\n"
	}
	p.Plan.add(s)
}

// Effect adds an effect to the plan.
func (p UI) Effect(e ui.Effect) {
	if p.Plan == nil {
		return
	}
	if p.Plan.Shown != nil {
		e.Text = p.Plan.Shown(e.Text)
	}
	p.Plan.mu.Lock()
	defer p.Plan.mu.Unlock()
	p.Plan.effects = append(p.Plan.effects, e)
}

func (UI) Printf(string, ...any) {}

func (UI) Nextf(string, ...any) {}

func (UI) Result(string) {}

func (UI) Skip(string, string) {}
