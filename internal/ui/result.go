// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Secret is a value that only a run's last event may contain.
type Secret interface {
	Reveal() string
}

// Outcome is the result of a run, for the next command to use. It leaves out values the user wants hidden.
type Outcome struct {
	// CACertHashes pin the cluster's CA for joining nodes: sha256:HEX of each certificate's public key.
	CACertHashes []string
	// Token lets a node join, and CertificateKey makes it a control plane.
	Token, CertificateKey Secret
	// JoinCommand and ControlPlaneJoinCommand are complete, each on one line.
	JoinCommand, ControlPlaneJoinCommand Secret
}

func (all *Outcome) add(o Outcome) {
	if o.CACertHashes != nil {
		all.CACertHashes = o.CACertHashes
	}
	all.Token, all.CertificateKey = cmp.Or(o.Token, all.Token), cmp.Or(o.CertificateKey, all.CertificateKey)
	all.JoinCommand = cmp.Or(o.JoinCommand, all.JoinCommand)
	all.ControlPlaneJoinCommand = cmp.Or(o.ControlPlaneJoinCommand, all.ControlPlaneJoinCommand)
}

// Summary is the command's knowledge of a run, beyond its phases' messages.
type Summary struct {
	// Node is the node's name, Endpoint the host:port of the cluster's API. They're empty if the run ended before they were
	// known.
	Node, Endpoint string
	ControlPlane   bool
	Files          []File // the files changed by the run, in order
}

type File struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

// result is the last line. It always has all of its fields: a value that's unknown, doesn't exist or must not be shown is null.
type result struct {
	Time                    time.Time `json:"time"`
	Event                   string    `json:"event"`
	Command                 string    `json:"command"`
	Succeeded               bool      `json:"succeeded"`
	Error                   *string   `json:"error"`
	Remedy                  *string   `json:"remedy"`
	Seconds                 float64   `json:"seconds"`
	Node                    *string   `json:"node"`
	Role                    *string   `json:"role"`
	Endpoint                *string   `json:"endpoint"`
	CACertHashes            []string  `json:"caCertHashes"`
	Token                   *string   `json:"token"`
	CertificateKey          *string   `json:"certificateKey"`
	JoinCommand             *string   `json:"joinCommand"`
	ControlPlaneJoinCommand *string   `json:"controlPlaneJoinCommand"`
	Files                   []File    `json:"files"`
}

// End writes the last event: the run's success or failure, and its results.
func (e *Events) End(s Summary, failure error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	o := e.outcome
	r := result{
		Time: time.Now(), Event: "result", Command: e.command, Succeeded: failure == nil, Seconds: *seconds(e.began),
		Node: orNull(s.Node), Endpoint: orNull(s.Endpoint), CACertHashes: append([]string{}, o.CACertHashes...),
		Token: revealed(o.Token), CertificateKey: revealed(o.CertificateKey),
		JoinCommand: revealed(o.JoinCommand), ControlPlaneJoinCommand: revealed(o.ControlPlaneJoinCommand),
		Files: append([]File{}, s.Files...),
	}
	if failure != nil {
		r.Error, r.Remedy = orNull(failure.Error()), orNull(fault.Remedy(failure))
	}
	if s.Node != "" {
		r.Role = orNull(role(s.ControlPlane))
	}
	e.write(r)
}

func role(controlPlane bool) string {
	if controlPlane {
		return "control-plane"
	}
	return "worker"
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func revealed(s Secret) *string {
	if s == nil {
		return nil
	}
	return orNull(s.Reveal())
}
