// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"

	"github.com/pkg/errors"
)

// Writer notes a disk's writes and flushes. Its methods may be used side by side.
type Writer struct {
	mu      sync.Mutex
	journal io.WriterAt
	end     int64 // where the next entry begins, in bytes
	entries uint64
}

// NewWriter begins a journal in an empty file.
func NewWriter(journal io.WriterAt) (*Writer, error) {
	w := &Writer{journal: journal, end: SectorSize}
	return w, w.count()
}

// Write notes a write of whole sectors at an offset in bytes.
func (w *Writer) Write(offset int64, data []byte) error {
	if offset%SectorSize != 0 || len(data)%SectorSize != 0 {
		return errors.Errorf("a write of %d bytes at %d isn't one of whole sectors", len(data), offset)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(entry{Sector: uint64(offset) / SectorSize, Sectors: uint64(len(data)) / SectorSize}, data)
}

// Flush notes that the disk was told to keep everything up to now.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.add(entry{Flags: flagFlush}, nil); err != nil {
		return err
	}
	return w.count()
}

func (w *Writer) add(e entry, data []byte) error {
	if err := w.sector(w.end, e); err != nil {
		return err
	}
	if _, err := w.journal.WriteAt(data, w.end+SectorSize); err != nil {
		return errors.Wrap(err, "cannot write to the journal of writes")
	}
	w.end += SectorSize + int64(len(data))
	w.entries++
	return nil
}

// count writes the number of entries into the journal's first sector.
func (w *Writer) count() error {
	return w.sector(0, header{Magic: magic, Version: version, Entries: w.entries, SectorSize: SectorSize})
}

func (w *Writer) sector(at int64, content any) error {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, content); err != nil {
		return errors.Wrap(err, "cannot write to the journal of writes")
	}
	_, err := w.journal.WriteAt(append(b.Bytes(), make([]byte, SectorSize-b.Len())...), at)
	return errors.Wrap(err, "cannot write to the journal of writes")
}
