// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package intact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pkg/errors"
)

// containerd's directories, in its root, with layers as they were imported, and as containers see them.
const (
	blobDir     = "io.containerd.content.v1.content/blobs/sha256"
	snapshotDir = "io.containerd.snapshotter.v1.overlayfs/snapshots"
)

// Images returns the faults of all images in containerd's root, and the number of their layers' files: each blob has its digest,
// and each file of each layer has been unpacked whole. containerd itself doesn't look: it trusts its database.
func Images(root string) (faults []string, files int, err error) {
	unpacked, err := hashes(filepath.Join(root, snapshotDir))
	if err != nil {
		return nil, 0, err
	}
	blobs, err := os.ReadDir(filepath.Join(root, blobDir))
	if err != nil {
		return nil, 0, errors.Wrap(err, "cannot list containerd's blobs")
	}
	for _, blob := range blobs {
		torn, err := tornFiles(filepath.Join(root, blobDir, blob.Name()), unpacked, &files)
		if err != nil {
			return nil, 0, err
		}
		faults = append(faults, torn...)
	}
	return faults, files, nil
}

// hashes returns the regular files of all snapshots, each as its path in the snapshot and its content's hash.
func hashes(dir string) (map[string]bool, error) {
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		sum, err := hashOf(path)
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(strings.TrimPrefix(path, dir), "/fs/")
		found[name+" "+sum] = true
		return nil
	})
	return found, errors.Wrap(err, "cannot read the unpacked images")
}

func hashOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// tornFiles returns a blob's faults: a wrong digest and, if it's a layer, its files that aren't unpacked.
func tornFiles(blob string, unpacked map[string]bool, files *int) (faults []string, err error) {
	sum, err := hashOf(blob)
	if err != nil {
		return nil, errors.Wrap(err, "cannot read a blob")
	}
	if sum != filepath.Base(blob) {
		return []string{"blob " + filepath.Base(blob)}, nil
	}
	f, err := os.Open(blob)
	if err != nil {
		return nil, errors.Wrap(err, "cannot read a blob")
	}
	defer f.Close()
	content, err := uncompressed(f)
	if err != nil {
		return nil, errors.Wrap(err, "cannot read a blob")
	}
	defer content.Close()
	for layer := tar.NewReader(content); ; {
		header, err := layer.Next()
		if err != nil { // its end, or not a layer but a manifest
			return faults, nil
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		*files++
		h := sha256.New()
		if _, err := io.Copy(h, layer); err != nil {
			return nil, errors.Wrap(err, "cannot read a layer")
		}
		if name := strings.TrimPrefix(header.Name, "./"); !unpacked[name+" "+hex.EncodeToString(h.Sum(nil))] {
			faults = append(faults, fmt.Sprintf("%s of layer %.12s", name, sum))
		}
	}
}

// uncompressed returns the content of a blob, which may be compressed with zstd, as a bundle's layers are.
func uncompressed(f *os.File) (io.ReadCloser, error) {
	r := bufio.NewReader(f)
	if head, _ := r.Peek(4); !bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) { // a shorter blob isn't
		return io.NopCloser(r), nil
	}
	z, err := zstd.NewReader(r)
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}
