// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/ui"
)

// table prints a line for each member, then this host's last snapshot and everything that needs an operator.
func (s *status) table(w io.Writer) error {
	headings := "NAME\tID\tROLE\tVERSION\tREVISION\tBEHIND\tSIZE\tIN USE\tQUOTA\tALARMS"
	if s.hashed {
		headings += "\tHASHKV"
	}
	var rows [][]string
	for _, m := range s.Members {
		rows = append(rows, m.cells(s.hashed))
	}
	if err := ui.Table(w, headings, rows); err != nil {
		return err
	}
	last := "none"
	if l := s.LastSnapshot; l != nil {
		last = fmt.Sprintf("%s, revision %d, %s", taken(*l), l.Revision, l.Path)
	}
	if _, err := fmt.Fprintf(w, "\nLast snapshot on this host: %s\n", last); err != nil {
		return err
	}
	for _, f := range s.Findings {
		if _, err := fmt.Fprintf(w, "\n%s\n", f); err != nil {
			return err
		}
	}
	return nil
}

const unknown = "-"

func (m *member) cells(hashed bool) []string {
	name := m.label()
	if m.ThisHost {
		name += " (this host)"
	}
	cells := []string{name, m.ID, m.role(), cmp.Or(m.Version, unknown)}
	if m.Version == "" {
		cells = append(cells, unknown, unknown, unknown, unknown, unknown)
	} else {
		cells = append(cells, strconv.FormatInt(m.Revision, 10), strconv.FormatUint(m.Behind, 10), size(m.Size), size(m.InUse), size(m.Quota))
	}
	cells = append(cells, cmp.Or(strings.Join(m.Alarms, ","), unknown))
	if hashed {
		cells = append(cells, cmp.Or(m.Hash, unknown))
	}
	return cells
}

func (m *member) label() string { return cmp.Or(m.Name, m.PeerURL) }

func (m *member) role() string {
	role := "voter"
	switch {
	case m.Leader:
		role = "leader"
	case m.Learner:
		role = "learner"
	}
	switch {
	case m.Healthy:
		return role
	case m.Answers:
		return role + ", not healthy"
	}
	return role + ", down"
}

// size writes bytes for people.
func size(bytes int64) string {
	if bytes == 0 {
		return unknown
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
