// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// CompareTimeout limits a request to the cluster a plan is compared with; the cluster may be down.
const CompareTimeout = 2 * time.Second

// notShown stands for a difference in values that no plan shows, such as environment variables.
const notShown = "(only hidden values change)\n"

// present is this host before the plan, plus the plan's changes so far.
type present struct {
	host  host.Host
	files map[string]string // by path, as a plan shows them
	units map[string]string // by name
}

func newPresent(h host.Host) *present {
	return &present{host: h, files: map[string]string{}, units: map[string]string{}}
}

// describe adds to a step its change to this host.
func (n *present) describe(s *step) {
	switch {
	case s.Unit != "":
		n.describeUnit(s)
	case s.opaque:
		now, _ := host.Describe(n.host, s.Path) // empty for a new file
		s.Diff = planned(s.Path, now, s.Content)
	case s.Action == string(host.Write) && !s.Secret:
		s.Diff = n.modes(s) + planned(s.Path, n.before(s.Path), s.Content)
		if s.Diff == "" && s.Change == cluster.Update {
			s.Diff = notShown
		}
		n.files[s.Path] = s.Content
	}
}

// before is a file's current content as a plan may show it.
func (n *present) before(path string) string {
	if text, planned := n.files[path]; planned {
		return text
	}
	data, err := n.host.ReadFile(path)
	switch {
	case err != nil:
		return ""
	case host.LooksSecret(data):
		return "(the current file holds a secret and is not shown)\n"
	}
	return describeFile(data)
}

// modes shows a file's change of mode as git does.
func (n *present) modes(s *step) string {
	if _, planned := n.files[s.Path]; planned {
		return ""
	}
	info, err := n.host.Lstat(s.Path)
	if err != nil {
		return ""
	}
	before := fmt.Sprintf("%04o", info.Mode().Perm())
	if before == s.Mode {
		return ""
	}
	return "old mode " + before + "\nnew mode " + s.Mode + "\n"
}

func (n *present) describeUnit(s *step) {
	ctx, cancel := context.WithTimeout(context.Background(), CompareTimeout)
	defer cancel()
	state, err := n.host.Unit(ctx, s.Unit)
	if err != nil {
		s.Now = "unknown"
		return
	}
	s.Now = state.ActiveState
	if planned, ok := n.units[s.Unit]; ok {
		s.Now = planned
	}
	switch host.Verb(strings.ReplaceAll(s.Action, "-", " ")) {
	case host.Enable:
		s.Now = state.UnitFileState
	case host.Stop:
		n.units[s.Unit] = "inactive"
	case host.Start, host.Restart:
		n.units[s.Unit] = "active"
	}
}

// compared adds to a step its change to the cluster.
func (s *step) compared(d *cluster.Difference) {
	s.Change = d.Change
	name := s.Object.Kind + " " + strings.TrimPrefix(s.Object.Namespace+"/"+s.Object.Name, "/")
	switch {
	case s.Secret: // only the fact that it changes may be shown
	case d.Change == cluster.Create:
		s.Diff = planned(name, "", s.body)
	case d.Change == cluster.Update:
		if s.Diff = planned(name, fieldsYAML(d.Before), fieldsYAML(d.After)); s.Diff == "" {
			s.Diff = notShown
		}
	}
}

func fieldsYAML(fields map[string]any) string {
	redact.Fields(fields)
	data, err := yaml.Marshal(fields)
	if err != nil {
		return err.Error()
	}
	return withoutRandom(string(data))
}

func planned(name, before, after string) string { return labelled(name, "planned", before, after) }

func labelled(name, label, before, after string) string {
	return Unified(name+"\tnow", name+"\t"+label, before, after, udiff.DefaultContextLines)
}

// Unified returns the difference in the form of diff -u, which patch can read.
func Unified(from, to, before, after string, context int) string {
	text, err := udiff.ToUnified(from, to, before, udiff.Lines(before, after), context)
	if err != nil {
		return err.Error() // the edits don't fit the text they were made from
	}
	return text
}

// Assume marks the plan of a node whose cluster is assumed. Its values from the cluster become placeholders.
func (p *Plan) Assume(node *config.Node) {
	if node.Join != nil && node.Join.Assumed {
		p.assumed = node
	}
}

// markAssumed replaces values that depend on a cluster Slipway didn't ask with placeholders.
func (p *Plan) markAssumed(s *step) {
	if s.Image != "" {
		name, _, _ := strings.Cut(path.Base(s.Image), ":")
		s.Image = fromCluster("the image of " + name)
		s.title = string(host.Pull) + " " + s.Image
	}
	if s.Action != string(host.Write) || s.Secret {
		return
	}
	if source := sourceOf(p.assumed, s.Path); source != "" {
		s.Content = fromCluster(source) + "\n"
		s.body = s.Content
	}
}

func fromCluster(what string) string { return "<from the cluster: " + what + ">" }

// sourceOf names the cluster object that determines a file. It's empty if this node's own configuration does.
func sourceOf(n *config.Node, file string) string {
	p := n.Paths
	isPKI := strings.HasPrefix(file, p.PKI+"/")
	switch {
	case n.ControlPlane && pki.IsShared(n, file):
		return "Secret kube-system/kubeadm-certs"
	case file == n.Join.CAPath:
		return "its CA"
	case isPKI, filepath.Dir(file) == p.Manifests:
		return config.ClusterSource
	case file == p.KubeletConfig():
		return config.KubeletSource
	}
	return ""
}
