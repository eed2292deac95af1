// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	names "github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/encryption"
)

// outputAPI is the version of this package's output objects.
const outputAPI = "slipway.encryption/v1"

func newStatus(g *cli.Globals) *cobra.Command {
	out := &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how Secrets are encrypted in etcd, and which keys each API server has",
		Long: "Show how Secrets are encrypted in etcd, and which keys each API server has loaded, by name. It counts the Secrets in etcd that\n" +
			"use the wrong key, and changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := out.Printer(); err != nil { // before anything is asked
				return err
			}
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			defer p.Close()
			now, err := encryption.ReadStatus(cmd.Context(), p.Env)
			if err != nil {
				return err
			}
			s := newReport(now)
			return out.Print(g, s, s.table)
		},
	}
	out.Bind(cmd.Flags())
	return cmd
}

// report is the output of `encryption status`; docs/encryption.md describes it.
type report struct {
	metav1.TypeMeta `json:",inline"`

	// State is disabled, changing or encrypted.
	State string `json:"state"`
	// Key is the name of the key that all Secrets are to have: identity for none.
	Key     string      `json:"key"`
	Secrets int         `json:"secrets"`
	Others  int         `json:"secretsWithoutKey"`
	Servers []apiServer `json:"apiServers"`
	// Kept are the keys that no API server has loaded: only snapshots may need them.
	Kept []string `json:"keptKeys"`
}

// apiServer has the names of the keys that an API server has loaded.
type apiServer struct {
	Node   string   `json:"node"`
	Writes string   `json:"writes"`
	Reads  []string `json:"reads"`
}

func (r *report) DeepCopyObject() runtime.Object { return new(*r) }

func newReport(now *encryption.Status) *report {
	r := &report{
		TypeMeta: metav1.TypeMeta{APIVersion: outputAPI, Kind: "Status"}, State: "changing", Key: cmp.Or(now.Target, names.Identity),
		Secrets: now.Secrets, Others: now.Others, Servers: []apiServer{}, Kept: []string{},
	}
	switch {
	case now.Target == "", r.Key == names.Identity && now.Settled():
		r.State = "disabled"
	case now.Settled():
		r.State = "encrypted"
	}
	loaded := map[string]bool{}
	for _, s := range now.Servers {
		a := apiServer{Node: s.Node, Writes: names.Identity, Reads: []string{names.Identity}}
		if len(s.Order) > 0 {
			a.Writes, a.Reads = s.Order[0], s.Order
		}
		for _, name := range a.Reads {
			loaded[name] = true
		}
		r.Servers = append(r.Servers, a)
	}
	for _, name := range now.Keys {
		if !loaded[name] {
			r.Kept = append(r.Kept, name)
		}
	}
	return r
}

func (r *report) table(w io.Writer) error {
	fmt.Fprintf(w, "State: %s\n", r.State)
	if r.Secrets > 0 {
		fmt.Fprintf(w, "Key: %s, for %d Secrets in etcd; %d have a different key\n", r.Key, r.Secrets-r.Others, r.Others)
	}
	if len(r.Kept) > 0 {
		fmt.Fprintf(w, "Kept for snapshots: %s\n", strings.Join(r.Kept, ", "))
	}
	var rows [][]string
	for _, s := range r.Servers {
		rows = append(rows, []string{s.Node, s.Writes, strings.Join(s.Reads, ", ")})
	}
	return ui.Table(w, "\nAPI SERVER\tWRITES WITH\tREADS", rows)
}
