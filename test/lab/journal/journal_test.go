// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package journal

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
		journal.Write(make([]byte, start+SectorSize-journal.Len()))
	}
	sector(header{magic, 1, 6, SectorSize})
	for _, e := range entries {
		entry := entry{Sector: e.sector, Flags: e.flags}
		if e.data != 0 {
			entry.Sectors = 1
		}
		sector(entry)
		if e.data != 0 && e.flags&flagDiscard == 0 {
			journal.Write(bytes.Repeat([]byte{e.data}, SectorSize))
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
		for path, data := range map[string][]byte{disk: bytes.Repeat([]byte{'.'}, 4*SectorSize), file: journal.Bytes()} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kept, lost, err := Replay(file, disk, test.limit)
		if err != nil || kept != test.kept || lost != test.lost {
			t.Errorf("%d entries: %d are kept, %d lost, %v", test.limit, kept, lost, err)
		}
		data, err := os.ReadFile(disk)
		if err != nil {
			t.Fatal(err)
		}
		got := string([]byte{data[0], data[SectorSize], data[2*SectorSize], data[3*SectorSize]})
		if got != test.want {
			t.Errorf("after %d entries the disk has %q, and not %q", test.limit, got, test.want)
		}
	}
}

// A journal that's written is one that's read.
func TestWriter(t *testing.T) {
	dir := t.TempDir()
	path, disk := filepath.Join(dir, "journal"), filepath.Join(dir, "disk")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := NewWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	write := func(sector int64, data string) {
		t.Helper()
		if err := w.Write(sector*SectorSize, bytes.Repeat([]byte(data[:1]), len(data)*SectorSize)); err != nil {
			t.Fatal(err)
		}
	}
	flush := func() {
		t.Helper()
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	write(1, "ab")
	flush()
	write(0, "c")
	write(2, "d")
	flush()
	write(0, "e")
	if n, err := Flushed(path); err != nil || n != 5 {
		t.Errorf("%d entries are flushed, want 5 (%v)", n, err)
	}
	for limit, want := range map[uint64]string{0: "cad.", 1: "....", 2: ".aa.", 4: ".aa.", 5: "cad.", 6: "cad."} {
		if err := os.WriteFile(disk, bytes.Repeat([]byte{'.'}, 4*SectorSize), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Replay(path, disk, limit); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(disk)
		if err != nil {
			t.Fatal(err)
		}
		if got := string([]byte{data[0], data[SectorSize], data[2*SectorSize], data[3*SectorSize]}); got != want {
			t.Errorf("after %d entries the disk has %q, want %q", limit, got, want)
		}
	}
	if err := w.Write(1, make([]byte, SectorSize)); err == nil {
		t.Error("a write off the sectors' borders is accepted")
	}
}
