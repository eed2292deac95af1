// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"os"
	"testing"
)

// TestReadData reads logs that etcd's own package wrote (3.6.8, with small files): of a member that has started but received
// nothing, of members with a first entry and with a snapshot, and a log's fourth file.
func TestReadData(t *testing.T) {
	for name, empty := range map[string]bool{"empty": true, "started": false, "snapshot": false, "later": false} {
		head, err := os.ReadFile("testdata/" + name + ".wal")
		if err != nil {
			t.Fatal(err)
		}
		want := Data{Member: 0xfedcba9876543210, Cluster: 0x1234, Empty: empty}
		if got, err := ReadData(head); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// TestReadDataThatGoesOn accepts a record that extends beyond the head.
func TestReadDataThatGoesOn(t *testing.T) {
	head, err := os.ReadFile("testdata/started.wal")
	if err != nil {
		t.Fatal(err)
	}
	const firstEntry = 0x48
	for size, empty := range map[int]bool{firstEntry: true, firstEntry + 12: false} {
		if got, err := ReadData(head[:size]); err != nil || got.Empty != empty {
			t.Errorf("the first %d bytes: %+v, %v", size, got, err)
		}
	}
}

// TestReadDataOfSomethingElse never takes other files for a log.
func TestReadDataOfSomethingElse(t *testing.T) {
	good, err := os.ReadFile("testdata/started.wal")
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[40] ^= 1
	for name, head := range map[string][]byte{
		"nothing":        nil,
		"zeroes":         make([]byte, 2048),
		"text":           []byte("this is not the log of an etcd, but some text that is long enough to be one"),
		"a damaged one":  flipped,
		"only its start": good[:20],
	} {
		if got, err := ReadData(head); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestReadDamagedData: if a record doesn't match its checksum, as after a power cut, the log's owner may become unknown, but
// never another member.
func TestReadDamagedData(t *testing.T) {
	good, err := os.ReadFile("testdata/started.wal")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ReadData(good)
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for at := range good {
		head := bytes.Clone(good)
		head[at] ^= 0xff
		got, err := ReadData(head)
		if err == nil && (got.Member != want.Member || got.Cluster != want.Cluster) {
			t.Errorf("damaged at %d: %+v", at, got)
		}
		if err == nil && !got.Empty {
			known++
		}
	}
	if known == 0 {
		t.Error("the owner of the log was never known after damage")
	}
}

func FuzzReadData(f *testing.F) {
	for _, name := range []string{"empty", "started", "snapshot", "later"} {
		head, err := os.ReadFile("testdata/" + name + ".wal")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(head[:512])
	}
	f.Fuzz(func(_ *testing.T, head []byte) { _, _ = ReadData(head) })
}
