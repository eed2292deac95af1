// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pkg/errors"
)

// Times (UTC) in the names of files: BackupTime is in those of backups, as with kubeadm, and FileTime in all others.
const (
	BackupTime = "2006-01-02-15-04-05"
	FileTime   = "20060102T150405Z"
)

// SetFile is a file written together with others, see WriteSet.
type SetFile struct {
	Path string
	Mode fs.FileMode
	// Size is in bytes; SHA256 is the hash of the content.
	Size   int64
	SHA256 [sha256.Size]byte
}

// Summary stands for the content of a file too large to show.
func Summary(f SetFile) string {
	return fmt.Sprintf("(%d bytes, sha256:%s)\n", f.Size, hex.EncodeToString(f.SHA256[:]))
}

// HashOf returns the hash of a file's content as records have it, SHA-256 in hexadecimal; empty for no file.
func HashOf(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Describe returns the Summary of a large file on a host.
func Describe(h FileReader, path string) (string, error) {
	in, err := h.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, in)
	return Summary(SetFile{Size: size, SHA256: [sha256.Size]byte(sum.Sum(nil))}), err
}

// A file being written is named `.NAME`, followed by tempSuffix and eight random characters. The leading dot keeps the kubelet
// from reading a half-written manifest.
const (
	tempSuffix    = ".slipway-"
	tempRandomLen = 8
)

// TempName returns a file's name while it's being written.
func TempName(name string) string { return "." + name + tempSuffix + rand.Text()[:tempRandomLen] }

// LeftoverOf returns the name of the file that an interrupted run was writing when it left this directory entry behind.
func LeftoverOf(entry string) (name string, found bool) {
	i := strings.LastIndex(entry, tempSuffix)
	if i < 1 || entry[0] != '.' || len(entry) != i+len(tempSuffix)+tempRandomLen {
		return "", false
	}
	return entry[1:i], true
}

// Owner is a user ID and a group ID.
type Owner struct{ UID, GID int }

// OwnerIn returns the owner in a file's description; known is false if it has none.
func OwnerIn(info fs.FileInfo) (whose Owner, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return Owner{}, false
	}
	return Owner{int(stat.Uid), int(stat.Gid)}, true
}

// VisibleFiles lists the files in a directory whose names don't begin with a dot, as paths. In its own directories, the kubelet
// reads only these.
func VisibleFiles(h FileReader, dir string) (paths []string, err error) {
	entries, err := h.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// LooksSecret recognises PEM private keys and kubeconfigs that contain a key.
func LooksSecret(data []byte) bool {
	return bytes.Contains(data, []byte("PRIVATE KEY-----")) || bytes.Contains(data, []byte("client-key-data:"))
}

// ReadIfExists returns nil for a file that doesn't exist. Dangling symlinks and directories do exist: they're a *KindError.
func ReadIfExists(h Host, path string) ([]byte, error) {
	data, err := h.ReadFile(path)
	if err == nil {
		return data, nil
	}
	if info, statErr := h.Lstat(path); statErr == nil && (info.IsDir() || info.Mode().Type() == fs.ModeSymlink) {
		return nil, &KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, err
}

// ReadHead returns at most the first limit bytes of a file.
func ReadHead(h FileReader, path string, limit int64) ([]byte, error) {
	return readPart(h, path, limit, func(int64) int64 { return 0 })
}

// ReadTail returns at most the last limit bytes of a file.
func ReadTail(h FileReader, path string, limit int64) ([]byte, error) {
	return readPart(h, path, limit, func(size int64) int64 { return max(0, size-limit) })
}

func readPart(h FileReader, path string, limit int64, from func(size int64) int64) ([]byte, error) {
	f, err := h.Open(path)
	if errors.Is(err, ErrNotInPlan) { // the plan has written the file
		data, err := h.ReadFile(path)
		data = data[from(int64(len(data))):]
		return data[:min(limit, int64(len(data)))], err
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, from(info.Size()), limit))
}

// Space says how full a file system is.
type Space struct {
	// Free is the space programs may still fill, in bytes; Total is the file system's size.
	Free, Total uint64
	// FreeInodes is how many files can still be created. TotalInodes is 0 on a file system that doesn't count them.
	FreeInodes, TotalInodes uint64
	// Device identifies the file system on this host.
	Device uint64
}

// LostAndFound is at the top of many file systems, and part of them.
const LostAndFound = "lost+found"

// Removal is the result of RemoveTree.
type Removal struct {
	// Changed reports whether anything was removed.
	Changed bool
	// Kept lists the mount points below the directory, without mounts inside them.
	Kept []string
}

// IgnoreMissing drops the error of a file that doesn't exist.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// IgnoreForbidden is for plans: root will see files that this user can't.
func IgnoreForbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// Exists reports whether path exists; the empty path doesn't.
func Exists(h Reader, path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	_, err := h.Lstat(path)
	return err == nil, IgnoreMissing(err)
}
