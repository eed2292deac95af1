// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/maintenance"
)

func newMember(g *cli.Globals) *cobra.Command {
	return cli.Group("member", "List the members of etcd, and remove one whose host is gone", newMemberList(g), newMemberRemove(g))
}

// memberList is the output of `etcd member list`.
type memberList struct {
	metav1.TypeMeta `json:",inline"`

	ClusterID string       `json:"clusterID"`
	Members   []listMember `json:"members"`
}

func (l *memberList) DeepCopyObject() runtime.Object { return new(*l) }

// listMember is what etcd stores about a member.
type listMember struct {
	Name       string   `json:"name"`
	ID         string   `json:"id"`
	PeerURL    string   `json:"peerURL"`
	ClientURLs []string `json:"clientURLs"`
	Learner    bool     `json:"learner"`
}

func newMemberList(g *cli.Globals) *cobra.Command {
	out := &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the members of etcd",
		Long:  "List the members of etcd, as all members know them, which needs a quorum. `etcd status` needs none.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := out.Printer(); err != nil { // before anything is asked
				return err
			}
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			defer p.Close()
			members, err := p.Env.Etcd.Members(cmd.Context())
			if err != nil {
				return fault.WithRemedy(etcd.WithHealth(cmd.Context(), p.Env.Etcd, err), "`slipway etcd status` says what each member needs")
			}
			l := newMembers(members)
			return out.Print(g, l, l.table)
		},
	}
	out.Bind(cmd.Flags())
	return cmd
}

func newMembers(members []etcd.Member) *memberList {
	l := &memberList{TypeMeta: metav1.TypeMeta{APIVersion: outputAPI, Kind: "MemberList"}, Members: []listMember{}}
	for _, m := range members {
		l.ClusterID = fmt.Sprintf("%x", m.Cluster)
		l.Members = append(l.Members, listMember{m.Name, m.IDText(), m.PeerURL, append([]string{}, m.ClientURLs...), m.Learner})
	}
	return l
}

func (l *memberList) table(w io.Writer) error {
	var rows [][]string
	for _, m := range l.Members {
		role, name, urls := "voter", m.Name, strings.Join(m.ClientURLs, ",")
		if m.Learner {
			role = "learner"
		}
		if name == "" && urls == "" {
			name, urls = unknown, "not started"
		}
		rows = append(rows, []string{name, m.ID, role, m.PeerURL, urls})
	}
	return ui.Table(w, "NAME\tID\tROLE\tPEER URL\tCLIENT URLS", rows)
}

func newMemberRemove(g *cli.Globals) *cobra.Command {
	o := &config.RemovalFlags{}
	cmd := &cobra.Command{
		Use:   "remove NAME|ID|URL",
		Short: "Remove a member of etcd whose host is lost",
		Long: "Remove a member of etcd that has lost its host, by its name, ID or peer URL. A member that etcd needs for its quorum stays.\n\n" +
			"A host that still runs leaves with `slipway reset`, which also removes everything that needs the member.",
		Args: cli.Takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			removal, err := maintenance.NewRemoval(cmd.Context(), p.Env, args[0])
			if err != nil {
				p.Close()
				return err
			}
			return confirmed(cmd, g, p, o.Yes, removal)
		},
	}
	config.Bind(cmd.Flags(), "etcd member remove", o)
	env.Reporting(g, cmd)
	return cmd
}

func newDefrag(g *cli.Globals) *cobra.Command {
	o := &config.DefragFlags{}
	cmd := &cobra.Command{
		Use:   "defrag",
		Short: "Defragment the members' databases to free disk space",
		Long: "Defragment the members' databases to free disk space: one at a time, only while all members work, and the\n" +
			"leader last, after a handover. A member serves nothing meanwhile.\n\n" +
			"It rewrites only databases with more than 40 % and 100 MiB of free space, and any near their quota; --all rewrites all. If a\n" +
			"database has reached its quota, it first discards the history of all keys, and disarms the alarm NOSPACE at the end.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			return p.Run(cmd.Context(), (&maintenance.Defragmentation{All: o.All}).Phases(), nil)
		},
	}
	config.Bind(cmd.Flags(), "etcd defrag", o)
	env.Reporting(g, cmd)
	return cmd
}
