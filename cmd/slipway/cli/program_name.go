// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// Messages call this program slipway. A user who calls it by another name, such as a link named kubeadm, reads that name instead:
// all output passes through Shown, which replaces the name where it begins a command: in backquotes, as in `slipway token
// create`, and in commands printed for copying, to join and to upgrade. TestCommandsInMessages checks the form.
const (
	ownName    = "`slipway "
	ownJoin    = "slipway join "
	ownUp      = "slipway up "
	ownUpgrade = "slipway upgrade "
)

func renamed(program, text string) string {
	return strings.NewReplacer(ownName, "`"+program+" ", ownJoin, program+" join ", ownUp, program+" up ", ownUpgrade, program+" upgrade ").Replace(text)
}

// Shown returns a message for users: with the program's name, and without passwords in URLs, which libraries' errors repeat.
func Shown(program, text string) string { return renamed(program, redact.URLs(text)) }

// discreetWriter takes libraries' messages, a line at a time.
type discreetWriter struct{ to io.Writer }

func (w discreetWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(w.to, redact.URLs(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

type shownError struct {
	error
	program string
}

func (e shownError) Error() string { return Shown(e.program, e.error.Error()) }

func (e shownError) Unwrap() error { return e.error }

// Remedy is empty if the error has none.
func (e shownError) Remedy() string { return Shown(e.program, fault.Remedy(e.error)) }

func (g *Globals) named(err error) error {
	if err == nil {
		return nil
	}
	return shownError{err, g.Program}
}

type namedUI struct {
	ui.UI
	program string
}

func (u namedUI) Printf(format string, args ...any) {
	u.UI.Printf("%s", Shown(u.program, fmt.Sprintf(format, args...)))
}

func (u namedUI) Warnf(format string, args ...any) {
	u.UI.Warnf("%s", Shown(u.program, fmt.Sprintf(format, args...)))
}

func (u namedUI) Result(text string) { u.UI.Result(Shown(u.program, text)) }

func (u namedUI) Outcome(o ui.Outcome) {
	o.JoinCommand = u.renamedSecret(o.JoinCommand)
	o.ControlPlaneJoinCommand = u.renamedSecret(o.ControlPlaneJoinCommand)
	u.UI.Outcome(o)
}

func (u namedUI) renamedSecret(s ui.Secret) ui.Secret {
	if s == nil {
		return nil
	}
	return config.NewSecret(renamed(u.program, s.Reveal()))
}

func (u namedUI) Warn(message, remedy string) {
	u.UI.Warn(Shown(u.program, message), Shown(u.program, remedy))
}

func (u namedUI) Nextf(format string, args ...any) {
	u.UI.Nextf("%s", Shown(u.program, fmt.Sprintf(format, args...)))
}

func (u namedUI) Start(phase string) (ui.UI, func(error)) {
	in, end := u.UI.Start(phase)
	return namedUI{in, u.program}, func(err error) {
		if err != nil {
			err = shownError{err, u.program}
		}
		end(err)
	}
}

// NewUI shows progress in the form the user asked for.
func NewUI(g *Globals) ui.UI {
	if g.EmulatesKubeadm() {
		return peerUI{UI: g.ShownUI()}
	}
	return g.ShownUI()
}

// ShownUI has the program's name, but none of kubeadm's lines.
func (g *Globals) ShownUI() ui.UI {
	if g.Report != nil {
		return namedUI{g.Report.UI, g.Program}
	}
	return namedUI{PlainUI(g, ""), g.Program}
}

func Warn(u ui.UI, warnings []string) {
	for _, w := range warnings {
		u.Warnf("%s", w)
	}
}

// PlainUI is a terminal, or lines for a file.
func PlainUI(g *Globals, command string) ui.UI {
	if t, ok := g.Streams.Err.(*ui.Terminal); ok {
		if g.verbosity > 0 {
			t.ShowDetails()
		}
		return t
	}
	lines := ui.NewLines(g.Streams.Err, g.Streams.Out)
	if command == "up" || command == "down" {
		lines.ShowParts()
	}
	return lines
}
