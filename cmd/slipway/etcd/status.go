// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/snapshot"
	"github.com/slipway-k8s/slipway/phases/step"
)

// outputAPI is the version of this package's output objects.
const outputAPI = "slipway.etcd/v1"

// operatorNeeded is the exit code if etcd has a problem, not the command.
const operatorNeeded = 2

func newStatus(g *cli.Globals) *cobra.Command {
	out := &cli.OutputOptions{}
	var hash bool
	dir := ""
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every member of etcd, and problems that need an operator",
		Long: "Show every member of etcd, and problems that need an operator.\n\n" +
			"It asks every member that this host's member or the cluster's Nodes list. It changes nothing, and needs neither the API nor a\n" +
			"quorum. The exit code is 0 if all is well, 2 if an operator is needed, and 1 if no member answers.\n\n" +
			"It also shows this host's last snapshot of etcd.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := out.Printer(); err != nil { // before anything is asked
				return err
			}
			return run(cmd, g, dir, func(p *env.Parts, dir string) error {
				s, err := look(cmd.Context(), p, hash)
				if err != nil {
					return err
				}
				s.addLast(p.Env, dir)
				if err := out.Print(g, s, s.table); err != nil {
					return err
				}
				return s.verdict()
			})
		},
	}
	out.Bind(cmd.Flags())
	bindDir(cmd.Flags(), &dir)
	cmd.Flags().BoolVar(&hash, "hashkv", false, "also compare the members' keys by their hash, which reads each whole database")
	return cmd
}

// status is the output of `etcd status`; docs/etcd.md describes it.
type status struct {
	metav1.TypeMeta `json:",inline"`

	ClusterID string          `json:"clusterID"`
	Members   []member        `json:"members"`
	Findings  []fault.Finding `json:"findings"`
	// LastSnapshot is this host's newest in the directory of snapshots; null if there's none.
	LastSnapshot *snapshots.Snapshot `json:"lastSnapshot"`

	hashed bool
}

func (s *status) DeepCopyObject() runtime.Object { return new(*s) }

// member is a member of etcd. Fields about its state are empty if it doesn't answer.
type member struct {
	Name       string   `json:"name"`
	ID         string   `json:"id"`
	PeerURL    string   `json:"peerURL"`
	ClientURLs []string `json:"clientURLs"`
	ThisHost   bool     `json:"thisHost"`
	Learner    bool     `json:"learner"`
	Leader     bool     `json:"leader"`
	Answers    bool     `json:"answers"`
	Healthy    bool     `json:"healthy"`
	Error      string   `json:"error,omitempty"`
	Version    string   `json:"version,omitempty"`
	Revision   int64    `json:"revision"`
	Applied    uint64   `json:"applied"`
	// Behind is how many committed entries it has yet to apply.
	Behind uint64 `json:"behind"`
	// The sizes are in bytes. Quota is 0 if the member doesn't say.
	Size   int64    `json:"size"`
	InUse  int64    `json:"sizeInUse"`
	Quota  int64    `json:"quota"`
	Alarms []string `json:"alarms"`
	// Hash is only there with --hashkv; HashedTo is the revision up to which it counts, CompactedTo the one it begins after.
	Hash        string `json:"hashKV,omitempty"`
	HashedTo    int64  `json:"hashRevision,omitempty"`
	CompactedTo int64  `json:"compactRevision,omitempty"`
	HashError   string `json:"hashError,omitempty"`
}

func look(ctx context.Context, p *env.Parts, hash bool) (*status, error) {
	all, err := etcd.AskHealth(ctx, p.Env.Etcd)
	if err != nil {
		return nil, fault.WithRemedy(err, "`slipway diagnose` on the control planes says what is wrong")
	}
	own, _ := node.OwnMember(p.Env, etcd.MembersOf(all))
	s := &status{TypeMeta: metav1.TypeMeta{APIVersion: outputAPI, Kind: "Status"}, Findings: []fault.Finding{}}
	s.Findings = append(s.Findings, etcd.Concerns(all)...)
	for i, m := range all {
		s.ClusterID = fmt.Sprintf("%x", m.Cluster)
		s.Members = append(s.Members, memberOf(all, m, i == own))
	}
	if hash {
		err = s.hash(ctx, p.Env.Etcd, etcd.CommonRevision(all))
	}
	if p.Env.Config.Cluster.Etcd.External != nil {
		etcd.ExternalRemedies(s.Findings)
	}
	return s, err
}

func memberOf(all []etcd.Health, h etcd.Health, own bool) member {
	m := member{
		Name: h.Name, ID: h.IDText(), PeerURL: h.PeerURL, ClientURLs: append([]string{}, h.ClientURLs...), ThisHost: own,
		Learner: h.Learner, Leader: h.Leads(), Answers: h.Answers, Healthy: h.Err == nil, Version: h.Status.Version, Revision: h.Status.Revision,
		Applied: h.Status.Applied, Behind: etcd.Lag(all, h), Size: h.Status.Size, InUse: h.Status.InUse, Quota: h.Status.Quota,
		Alarms: append([]string{}, etcd.AlarmsOf(all, h)...),
	}
	if h.Err != nil {
		m.Error = h.Err.Error()
	}
	return m
}

// addLast adds this host's last snapshot. A directory that can't be read says nothing about etcd.
func (s *status) addLast(e *step.Env, dir string) {
	list, unrecorded, err := snapshots.List(e.Host, dir)
	if err != nil {
		e.UI.Warnf("cannot see the last snapshot: %v", err)
	}
	for _, u := range unrecorded {
		if !errors.Is(u.Err, fs.ErrNotExist) {
			e.UI.Warnf("%v does not count", u)
		}
	}
	ca, err := snapshot.OwnCA(e)
	if err != nil {
		e.UI.Warnf("cannot tell which snapshots are this cluster's: %v", err)
	}
	if last, found := snapshots.Newest(list, snapshots.Owner{Node: e.Config.Name, CA: ca}, e.Host.Now()); found {
		s.LastSnapshot = &last
	}
}

// hash adds the hashes of all members' keys. It asks again if some members have just been compacted, and others not yet.
func (s *status) hash(ctx context.Context, e etcd.Etcd, revision int64) error {
	hashes, err := e.HashKV(ctx, revision)
	if err == nil && !etcd.Comparable(hashes) {
		hashes, err = e.HashKV(ctx, revision)
	}
	if err != nil {
		return err
	}
	s.hashed = true
	for i := range s.Members {
		m := &s.Members[i]
		for _, h := range hashes {
			switch {
			case h.PeerURL != m.PeerURL:
			case h.Err != nil:
				m.HashError = h.Err.Error()
			default:
				m.Hash, m.HashedTo, m.CompactedTo = fmt.Sprintf("%08x", h.Hash), revision, h.Compacted
			}
		}
	}
	if etcd.Differ(hashes) {
		f := etcd.CorruptFinding(fmt.Sprintf("the members do not have the same keys up to revision %d: their hashes differ", revision))
		f.Severity, f.Subject = fault.Broken, "etcd"
		s.Findings = append([]fault.Finding{*f}, s.Findings...)
	}
	s.notCompared(etcd.Comparable(hashes))
	return nil
}

// notCompared finds that the hashes say nothing about some of the members that answer. A learner never has one.
func (s *status) notCompared(comparable bool) {
	var why []string
	for _, m := range s.Members {
		switch {
		case m.Hash == "" && m.Answers && !m.Learner:
			why = append(why, fmt.Sprintf("%s has no hash (%s)", m.label(), cmp.Or(m.HashError, "it was not asked")))
		case m.Hash != "" && !comparable:
			why = append(why, fmt.Sprintf("%s was compacted up to revision %d", m.label(), m.CompactedTo))
		}
	}
	if len(why) == 0 {
		return
	}
	f := fault.NewFinding(etcd.NotCompared, fault.Broken, "run this again; if it is the same, `slipway diagnose` on the members' hosts says what is wrong",
		"whether all members have the same keys is not known: %s", strings.Join(why, "; "))
	f.Subject = "etcd"
	s.Findings = append(s.Findings, f)
}

// verdict returns an error with exit code 2 if an operator is needed.
func (s *status) verdict() error {
	var names []string
	for _, f := range s.Findings {
		if text := f.Name + " (" + f.Subject + ")"; !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return cli.ExitError{Code: operatorNeeded, Message: "etcd needs an operator: " + strings.Join(names, ", ")}
}
