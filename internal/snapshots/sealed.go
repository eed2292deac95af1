// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"filippo.io/age"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// A sealed snapshot is a tar, encrypted with age: the record of the snapshot inside, then the cluster's configuration and the control
// plane's files, then the snapshot. The record and the snapshot have the names they'd have on their own. The files' names are their paths on the host, below
// one of two directories.
const (
	forAnyHost  = "cluster"
	forThisHost = "host"
)

// Configuration is the name of a sealed snapshot's file with the cluster's configuration, as `init --config` takes it.
const Configuration = "kubeadm.yaml"

// What a sealed snapshot holds in memory is bounded. Only the snapshot is larger, and streamed.
const (
	MaxFile   = 1 << 20
	MaxFiles  = 16 << 20
	maxRecord = 1 << 20
)

// File is a file of the control plane.
type File struct {
	Path  string
	Mode  fs.FileMode
	Owner host.Owner
	// OfHost marks a file with this host's name, addresses or settings, such as a static Pod or a serving certificate. A control
	// plane with other ones makes its own.
	OfHost bool
	Data   []byte
}

// Sealed says of a snapshot that it's encrypted, together with files of its control plane.
type Sealed struct {
	// OpensWith lists the public keys that it's encrypted to, or has only "passphrase".
	OpensWith []string `json:"opensWith"`
}

// Content is a snapshot to seal, with its record and files.
type Content struct {
	Name     string // the snapshot's own
	Record   Record
	Files    []File
	Snapshot io.Reader
}

// Seal encrypts the content to w. It fails if the snapshot isn't the one the record describes.
func (c Content) Seal(w io.Writer, to Recipients) error {
	record, err := c.Record.Encode()
	if err == nil && len(record) > maxRecord {
		err = errors.Errorf("its record has %d bytes, and Open reads %d", len(record), maxRecord)
	}
	if err != nil {
		return err
	}
	sealing, err := age.Encrypt(w, to...)
	if err != nil {
		return errors.WithStack(err)
	}
	t := tar.NewWriter(sealing)
	put := func(h tar.Header, content io.Reader) {
		if err != nil {
			return
		}
		h.Typeflag, h.ModTime, h.Format = tar.TypeReg, c.Record.Taken, tar.FormatPAX
		if err = t.WriteHeader(&h); err == nil {
			_, err = io.Copy(t, content)
		}
	}
	put(tar.Header{Name: RecordPath(c.Name), Mode: 0o600, Size: int64(len(record))}, bytes.NewReader(record))
	for _, f := range c.Files {
		put(f.header(), bytes.NewReader(f.Data))
	}
	put(tar.Header{Name: c.Name, Mode: 0o600, Size: c.Record.Size}, verifyingReader(c.Snapshot, c.Record))
	if err == nil {
		err = t.Close()
	}
	if err == nil {
		err = sealing.Close()
	}
	return errors.WithStack(err)
}

func (f File) header() tar.Header {
	if f.Path == Configuration {
		return tar.Header{Name: Configuration, Mode: 0o600, Size: int64(len(f.Data))}
	}
	top := forAnyHost
	if f.OfHost {
		top = forThisHost
	}
	return tar.Header{Name: top + f.Path, Mode: int64(f.Mode.Perm()), Uid: f.Owner.UID, Gid: f.Owner.GID, Size: int64(len(f.Data))}
}

// Opened is an open sealed snapshot.
type Opened struct {
	// Record is that of the snapshot inside: its size and hash are the snapshot's own.
	Record Record
	Files  []File
	// Configuration is the cluster's; nil in a snapshot of an older version.
	Configuration []byte
	// Snapshot reads the snapshot, once. At its end there's an error unless the record describes it.
	Snapshot io.Reader

	file *os.File
}

func (o *Opened) Close() error { return o.file.Close() }

// Open opens the sealed snapshot at path. Anyone who knows a public key can encrypt to it, so the files' paths are clean, but may be
// anywhere on the host.
func Open(h host.FileReader, path string, with Identities) (*Opened, error) {
	file, err := h.Open(path)
	if err != nil {
		return nil, err
	}
	o := &Opened{file: file}
	if err := o.read(with); err != nil {
		_ = file.Close()
		return nil, errors.WithMessage(err, path)
	}
	return o, nil
}

func (o *Opened) read(with Identities) error {
	plain, err := age.Decrypt(o.file, with...)
	if none := new(age.NoIdentityMatchError); errors.As(err, &none) {
		return errors.New("it does not open with this key or passphrase")
	}
	if err != nil {
		return errors.WithStack(err)
	}
	t, total := tar.NewReader(plain), 0
	name, err := o.readRecord(t)
	for err == nil {
		var h *tar.Header
		if h, err = t.Next(); err != nil {
			break
		}
		if h.Name == name && h.Size == o.Record.Size {
			o.Snapshot = verifyingReader(t, o.Record)
			return nil
		}
		var f File
		if f, err = readFile(t, h); err == nil {
			if f.Path == Configuration {
				o.Configuration = f.Data
			} else {
				o.Files = append(o.Files, f)
			}
			if total += len(f.Data); total > MaxFiles {
				err = errors.Errorf("it has more than %d MiB of files", MaxFiles>>20)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it has no snapshot")
	}
	return err
}

// readRecord returns the name of the snapshot.
func (o *Opened) readRecord(t *tar.Reader) (string, error) {
	h, err := t.Next()
	if err != nil {
		return "", errors.WithStack(err)
	}
	name, isRecord := strings.CutSuffix(h.Name, recordExtension)
	if !isRecord || h.Size > maxRecord {
		return "", errors.Errorf("it begins with %q instead of a record", h.Name)
	}
	data, err := io.ReadAll(t)
	if err == nil {
		o.Record, err = decode(h.Name, data)
	}
	return name, errors.WithStack(err)
}

func readFile(t *tar.Reader, h *tar.Header) (File, error) {
	top, rest, _ := strings.Cut(h.Name, "/")
	f := File{Path: "/" + rest, Mode: fs.FileMode(h.Mode).Perm(), Owner: host.Owner{UID: h.Uid, GID: h.Gid}, OfHost: top == forThisHost}
	if h.Name == Configuration {
		f.Path = Configuration
	}
	if top != forThisHost && top != forAnyHost && top != Configuration || h.Typeflag != tar.TypeReg || h.Size > MaxFile || path.Clean(f.Path) != f.Path {
		return f, errors.Errorf("it has an unknown entry: %q", h.Name)
	}
	var err error
	f.Data, err = io.ReadAll(t)
	return f, errors.WithStack(err)
}

// proved reads a snapshot, and compares it with its record at its end.
type proved struct {
	from   io.Reader
	record Record
	hash   hash.Hash
}

func verifyingReader(from io.Reader, r Record) io.Reader {
	return &proved{from: from, record: r, hash: sha256.New()}
}

func (p *proved) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.hash.Write(b[:n])
	if errors.Is(err, io.EOF) {
		if sum := hex.EncodeToString(p.hash.Sum(nil)); sum != p.record.SHA256 {
			return n, fmt.Errorf("the snapshot has the SHA-256 %s, and its record says %s", sum, p.record.SHA256)
		}
	}
	return n, err
}
