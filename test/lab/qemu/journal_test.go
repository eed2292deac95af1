// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// A disk keeps everything that was written before the last flush, and nothing since.
func TestReplay(t *testing.T) {
	entries := []struct {
		sector, flags uint64
		data          byte // of one sector
	}{
		{0, 0, 'a'}, {2, 0, 'b'}, {0, flagFlush, 0}, {0, 0, 'c'}, {1, flagDiscard, 'x'}, {0, flagFlush, 0}, {2, 0, 'd'},
	}
	var journal bytes.Buffer
	sector := func(content any) {
		start := journal.Len()
		if err := binary.Write(&journal, binary.LittleEndian, content); err != nil {
			t.Fatal(err)
		}
		journal.Write(make([]byte, start+sectorSize-journal.Len()))
	}
	sector(journalHeader{journalMagic, 1, 6, sectorSize})
	for _, e := range entries {
		entry := journalEntry{Sector: e.sector, Flags: e.flags}
		if e.data != 0 {
			entry.Sectors = 1
		}
		sector(entry)
		if e.data != 0 && e.flags&flagDiscard == 0 {
			journal.Write(bytes.Repeat([]byte{e.data}, sectorSize))
		}
	}
	for _, test := range []struct {
		limit      uint64
		want       string
		kept, lost uint64
	}{
		{0, "c.b.", 6, 0}, // what QEMU counted
		{2, "....", 0, 2},
		{3, "a.b.", 3, 0},
		{5, "a.b.", 3, 2},
		{7, "c.b.", 6, 1},
	} {
		disk, file := filepath.Join(t.TempDir(), "disk"), filepath.Join(t.TempDir(), "journal")
		for path, data := range map[string][]byte{disk: bytes.Repeat([]byte{'.'}, 4*sectorSize), file: journal.Bytes()} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kept, lost, err := replayFile(file, disk, test.limit)
		if err != nil || kept != test.kept || lost != test.lost {
			t.Errorf("%d entries: %d are kept, %d lost, %v", test.limit, kept, lost, err)
		}
		data, err := os.ReadFile(disk)
		if err != nil {
			t.Fatal(err)
		}
		got := string([]byte{data[0], data[sectorSize], data[2*sectorSize], data[3*sectorSize]})
		if got != test.want {
			t.Errorf("after %d entries the disk has %q, and not %q", test.limit, got, test.want)
		}
	}
}
