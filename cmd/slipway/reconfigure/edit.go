// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
)

// editorName is the source of edited documents in faults.
const editorName = "the edited configuration"

const instructions = `# The cluster's configuration, with defaults. A field that you remove goes back to its default; a document that you remove
# stays as it is. Lines at the top that begin with # are ignored. An empty or unchanged file ends this without a change.
`

// editing is a person's work on the cluster's configuration. The zero value is none.
type editing struct {
	draft *linux.Draft
	base  []byte
	load  func(documents []byte) (*reconfiguring.Change, []string, error)
}

// begin lets a person edit the cluster's configuration, and returns the change. end has to follow.
func (e *editing) begin(ctx context.Context, g *cli.Globals, l reconfiguring.Loader) (_ *reconfiguring.Change, _ []string, err error) {
	e.load = func(documents []byte) (*reconfiguring.Change, []string, error) {
		return l.Load(ctx, &config.Source{Name: editorName, Data: documents})
	}
	if e.base, err = l.Text(ctx); err != nil {
		return nil, nil, err
	}
	if e.draft, err = linux.NewDraft("configuration.yaml"); err != nil {
		return nil, nil, err
	}
	e.draft.Editor = editor(os.Getenv)
	e.draft.In, e.draft.Out, e.draft.Err = os.Stdin, os.Stdout, os.Stderr
	if g.Report.Form != "text" { // programs read standard output
		e.draft.Out = os.Stderr
	}
	return e.change(ctx)
}

// end removes the text, unless the change has failed.
func (e *editing) end(g *cli.Globals, err error) error {
	if e.draft == nil {
		return err
	}
	none := (*noChangeError)(nil)
	if errors.As(err, &none) {
		cli.NewUI(g).Printf("%v", none)
		err = nil
	}
	if err == nil {
		return e.draft.Remove()
	}
	return errors.WithMessage(err, "the edited text is in "+e.draft.Path)
}

// editor is the editor's command, as kubectl chooses it. Its words are separated by spaces: no shell reads them.
func editor(getenv func(string) string) []string {
	for _, name := range []string{"KUBE_EDITOR", "EDITOR"} {
		if words := strings.Fields(getenv(name)); len(words) > 0 {
			return words
		}
	}
	return []string{"vi"}
}

// noChangeError ends an editing without a change.
type noChangeError struct{ why string }

func (e *noChangeError) Error() string {
	return "nothing was done: the edited configuration is " + e.why
}

// change shows the text, and again with its faults, until it's right. If it's saved with the same faults, the person has given up.
func (e *editing) change(ctx context.Context) (*reconfiguring.Change, []string, error) {
	shown, faults := e.base, error(nil)
	for {
		text, err := e.draft.Edit(ctx, slices.Concat([]byte(instructions), comments(faults), shown))
		if err != nil {
			return nil, nil, err
		}
		text = withoutComments(text)
		switch {
		case len(bytes.TrimSpace(text)) == 0:
			return nil, nil, &noChangeError{"empty"}
		case bytes.Equal(text, e.base):
			return nil, nil, &noChangeError{"unchanged"}
		case faults != nil && bytes.Equal(text, shown):
			return nil, nil, faults
		}
		documents, err := reconfiguring.Edited(e.base, text)
		if err == nil && len(documents) == 0 {
			return nil, nil, &noChangeError{"the same"}
		}
		if err == nil {
			c, warnings, err := e.load(documents)
			if err == nil || !isFault(err) {
				return c, warnings, err
			}
			faults = withoutLines(err)
		} else {
			faults = err
		}
		shown = text
	}
}

func isFault(err error) bool {
	var faults config.Faults
	return errors.As(err, &faults)
}

// withoutLines removes the lines of the documents that nobody has seen.
func withoutLines(err error) error {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	faults = slices.Clone(faults)
	for i := range faults {
		faults[i].File, faults[i].Line = "", 0
	}
	return faults
}

// comments is an error as comments.
func comments(err error) []byte {
	if err == nil {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("#\n# The text that was saved has faults. Correct them, or save it again without a change to give up:\n")
	for line := range strings.Lines(err.Error()) {
		b.WriteString("#   " + strings.TrimRight(line, "\n") + "\n")
	}
	return append(b.Bytes(), "#\n"...)
}

// withoutComments returns a text without the comments at its top.
func withoutComments(text []byte) []byte {
	for bytes.HasPrefix(text, []byte("#")) {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}
