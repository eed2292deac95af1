// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package journal keeps a disk's writes and flushes in the order in which the disk got them, and makes of them the disk that a
// power cut would have left.
package journal

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"

	"github.com/pkg/errors"
)

// SectorSize is the unit of writes, in bytes.
const SectorSize = 512

// The format of QEMU's blklogwrites, which is that of Linux's dm-log-writes: a sector that counts the entries, and then for each
// entry a sector and its data.
const (
	magic   = 0x6a736677736872
	version = 1

	flagFlush   = 1 << 0
	flagDiscard = 1 << 2
)

// header begins the first sector.
type header struct {
	Magic, Version, Entries uint64
	SectorSize              uint32
}

// entry begins the sector of an entry.
type entry struct {
	Sector, Sectors, Flags, DataLength uint64
}

// Flushed returns how many entries of a journal a disk is sure to have: all up to the last flush. The writer counts at each flush.
func Flushed(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, errors.Wrap(err, "cannot open the journal of writes")
	}
	defer f.Close()
	return flushed(f)
}

func flushed(journal io.ReaderAt) (uint64, error) {
	var h header
	if err := read(journal, 0, &h); err != nil {
		return 0, err
	}
	if h.Magic != magic || h.SectorSize != SectorSize {
		return 0, errors.Errorf("not a journal of writes: it begins with %+v", h)
	}
	return h.Entries, nil
}

func replay(journal io.ReaderAt, disk io.WriterAt, entries uint64) (kept, lost uint64, err error) {
	end, err := lastFlush(journal, entries)
	if err != nil {
		return 0, 0, err
	}
	err = walk(journal, end, func(e entry, data int64) error {
		if e.Flags&flagDiscard != 0 || e.Sectors == 0 {
			return nil // a discarded sector may keep its content
		}
		length := int64(e.Sectors) * SectorSize
		n, err := io.Copy(io.NewOffsetWriter(disk, int64(e.Sector)*SectorSize), io.NewSectionReader(journal, data, length))
		if err == nil && n < length {
			err = io.ErrUnexpectedEOF
		}
		return errors.Wrap(err, "cannot write to the disk")
	})
	return end, entries - end, err
}

// lastFlush returns the number of entries up to the last flush among the first ones.
func lastFlush(journal io.ReaderAt, entries uint64) (last uint64, err error) {
	at := uint64(0)
	err = walk(journal, entries, func(e entry, _ int64) error {
		at++
		if e.Flags&flagFlush != 0 {
			last = at
		}
		return nil
	})
	return last, err
}

// walk calls fn with the first entries of a journal and the places of their data.
func walk(journal io.ReaderAt, entries uint64, fn func(e entry, data int64) error) error {
	at := int64(SectorSize)
	for range entries {
		var e entry
		if err := read(journal, at, &e); err != nil {
			return err
		}
		at += SectorSize
		if err := fn(e, at); err != nil {
			return err
		}
		if e.Flags&flagDiscard == 0 {
			at += int64(e.Sectors) * SectorSize
		}
	}
	return nil
}

func read(from io.ReaderAt, at int64, into any) error {
	data := make([]byte, binary.Size(into))
	if _, err := from.ReadAt(data, at); err != nil {
		return errors.Wrap(err, "cannot read the journal of writes")
	}
	return errors.Wrap(binary.Read(bytes.NewReader(data), binary.LittleEndian, into), "cannot read the journal of writes")
}

// Replay writes the first entries of a journal to a disk, up to the last flush among them: the disk's content if the power fails
// after that many entries, and it loses everything it hasn't been told to keep. The limit 0 stands for all entries up to the last
// flush. It returns how many entries it wrote, and how many of the given ones were lost.
func Replay(journal, disk string, limit uint64) (kept, lost uint64, err error) {
	from, err := os.Open(journal)
	if err != nil {
		return 0, 0, errors.Wrap(err, "cannot open the journal of writes")
	}
	defer from.Close()
	if limit == 0 {
		if limit, err = flushed(from); err != nil {
			return 0, 0, err
		}
	}
	to, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return 0, 0, errors.Wrap(err, "cannot open the disk")
	}
	defer to.Close()
	kept, lost, err = replay(from, to, limit)
	if err != nil {
		return kept, lost, err
	}
	return kept, lost, errors.Wrap(to.Close(), "cannot write to the disk")
}
