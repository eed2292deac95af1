// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/program"
)

const (
	// journalTimeout bounds one run of journalctl. A big journal on a slow disk takes a second or two, on a slow host many.
	journalTimeout = time.Minute
	// journalLine is the longest entry that counts, in JSON. systemd limits a line of a program's output to 48 KiB, but the journal
	// takes longer messages from programs that speak its own protocol.
	journalLine = 256 << 10
)

// Journal runs journalctl, because reading the journal's files takes a C library. https://systemd.io/JOURNAL_EXPORT_FORMATS/
// describes the output.
func (b *Bus) Journal(ctx context.Context, unit string, since time.Time, last int) ([]host.JournalEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	args := []string{
		"--unit=" + host.UnitName(unit), "--lines=" + strconv.Itoa(last), "--output=json",
		"--output-fields=MESSAGE,SYSLOG_IDENTIFIER", "--no-pager", "--quiet",
		"--all", // or a message of more than 4096 bytes is null
	}
	if !since.IsZero() {
		args = append(args, "--since=@"+strconv.FormatInt(since.Unix(), 10))
	}
	out, err := program.Run(ctx, "", "journalctl", args...)
	if err != nil {
		return nil, errors.Wrapf(err, "read the journal of %s", unit)
	}
	return parseJournal(out, since)
}

// parseJournal reads one JSON object per line. It drops huge entries, and entries older than since: journalctl only knows whole
// seconds.
func parseJournal(out string, since time.Time) ([]host.JournalEntry, error) {
	var entries []host.JournalEntry
	for line := range strings.Lines(out) {
		if len(line) > journalLine {
			continue
		}
		var raw struct {
			Time    string          `json:"__REALTIME_TIMESTAMP"`
			Program json.RawMessage `json:"SYSLOG_IDENTIFIER"`
			Message json.RawMessage `json:"MESSAGE"`
		}
		if err := json.Unmarshal([]byte(line), &raw); err != nil {
			return nil, errors.Wrap(err, "an entry of the journal")
		}
		us, err := strconv.ParseInt(raw.Time, 10, 64)
		if err != nil {
			return nil, errors.Wrap(err, "the time of an entry of the journal")
		}
		if at := time.UnixMicro(us); !at.Before(since) {
			entries = append(entries, host.JournalEntry{Time: at, Program: journalText(raw.Program), Message: journalText(raw.Message)})
		}
	}
	return entries, nil
}

// journalText is an entry's field: a string, or an array of bytes if it isn't UTF-8. It's empty if the entry has no such field,
// or has it twice.
func journalText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var numbers []int
	if json.Unmarshal(raw, &numbers) != nil {
		return ""
	}
	data := make([]byte, len(numbers))
	for i, n := range numbers {
		data[i] = byte(n)
	}
	return string(bytes.ToValidUTF8(data, []byte("?")))
}
