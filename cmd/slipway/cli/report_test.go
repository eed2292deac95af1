// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fact"
)

// gone is standard error whose reader has ended.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestTimelineOfFailedRun: the file of a failed run is complete, even if nobody reads the bars.
func TestTimelineOfFailedRun(t *testing.T) {
	var said bytes.Buffer
	line := ui.NewTimeline(ui.NewLines(&said, &said))
	_, end := line.Start("certs")
	end(errors.New("no space"))
	path := filepath.Join(t.TempDir(), "run.json")
	r := &Report{TimelineFile: path, Sinks: Sinks{UI: line, Timeline: line}}
	r.Close(&Globals{Streams: Streams{Err: gone{}}}, errors.New("no space"))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fact.In(t, string(data), `"certs"`, "no space")
}
