// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package snapshots handles etcd snapshot files on a host: their names, and the record beside each, which tells a restore whether
// it fits (Read, List). Seal and Open encrypt and decrypt a snapshot that includes its control plane's files. Policy.Surplus
// chooses the snapshots to delete, and UntilTurn the time when a member may save one. phases/snapshot saves, restores and deletes
// them.
package snapshots

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// Dir is the directory of snapshots unless an operator names another.
	Dir = "/var/lib/slipway/snapshots"

	// APIVersion and Kind mark a record.
	APIVersion, Kind = "slipway.etcd/v1", "Snapshot"

	// Extension is the end of a snapshot's name, SealedExtension of a sealed one's. The record's name has recordExtension after it.
	Extension       = ".db"
	SealedExtension = ".tar.age"
	recordExtension = ".json"
)

// Record describes a snapshot. It's written once the snapshot is on disk and was read back, so a snapshot with a record was whole.
// It holds no secret.
type Record struct {
	metav1.TypeMeta `json:",inline"`

	// Taken is when the snapshot was begun, on the host of the Node.
	Taken   time.Time `json:"taken"`
	Node    string    `json:"node"`
	Slipway string    `json:"slipwayVersion"`

	// Size is the file's, in bytes; SHA256 is the hash of the whole file, as sha256sum prints it.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`

	// ClusterID is the ID of the etcd cluster in hexadecimal: a restore makes a new one. Member is the member it was taken from,
	// Members are all of them, as the snapshot has them.
	ClusterID string   `json:"clusterID"`
	Member    Member   `json:"member"`
	Members   []Member `json:"members"`
	// Revision is the newest revision of its keys, Keys their number.
	Revision int64 `json:"revision"`
	Keys     int   `json:"keys"`

	// ClusterUID is the UID of Namespace kube-system, which a cluster keeps as long as it lives, restores included. It's empty if the
	// database doesn't have it.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Alarms are the raised alarms of etcd, such as NOSPACE: a restore restores them, too, except CORRUPT.
	Alarms []string `json:"alarms,omitempty"`

	// Kubernetes is the version of the host's API server, Etcd the member's. Storage is the oldest etcd for the data, such as 3.6.0:
	// an older minor doesn't start with it.
	Kubernetes string `json:"kubernetesVersion,omitempty"`
	Etcd       string `json:"etcdVersion"`
	Storage    string `json:"storageVersion,omitempty"`

	// Authorities are the hashes of the CAs' public keys, by their name in the certificate table (ca, etcd-ca, front-proxy-ca), as in
	// --discovery-token-ca-cert-hash: objects in the snapshot hold these CAs.
	Authorities map[string][]string `json:"authorities,omitempty"`
	// Encryption lists, in the order of the API server's EncryptionConfiguration, the keys for stored objects. It's empty without such
	// a file.
	Encryption []Encryption `json:"encryption,omitempty"`
	// Unknown says what couldn't be found out for this record, or isn't in a sealed snapshot, and why.
	Unknown []string `json:"unknown,omitempty"`

	// Sealed is nil for a snapshot that isn't encrypted.
	Sealed *Sealed `json:"sealed,omitempty"`
}

// Member is a member of etcd.
type Member struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
}

// Encryption names the keys for some resources, each as its prefix in etcd does: aescbc:v1:NAME without the version.
type Encryption struct {
	Resources []string `json:"resources"`
	// Keys are PROVIDER:NAME, such as aescbc:key1, or identity. The first encrypts, and all of them may be needed to read.
	Keys []string `json:"keys"`
	// Fingerprints tell keys of the same name apart, by their names in Keys (Record.Fingerprint). Keys in a KMS have none, nor have
	// those of older records.
	Fingerprints map[string]string `json:"fingerprints,omitempty"`
}

// Fingerprint returns a text that only the same key has in this record. It tells nothing about the key, and is another one in each
// record, so it can't be looked up.
func (r Record) Fingerprint(key []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "slipway.etcd/v1 encryption key\n%s\n%s\n%s\n", r.Node, r.ClusterID, r.Taken.UTC().Format(time.RFC3339Nano))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// Snapshot is a snapshot in a directory.
type Snapshot struct {
	Path string `json:"path"`
	Record
}

// Name returns the name of the file for a Node's snapshot.
func Name(node string, taken time.Time) string {
	return "etcd-" + node + "-" + taken.UTC().Format(host.FileTime) + Extension
}

// TakenIn returns when a Node's snapshot was taken, by its name, or by that of its record; own is false for any other name.
func TakenIn(name, node string) (taken time.Time, own bool) {
	name, own = strings.CutPrefix(strings.TrimSuffix(name, recordExtension), "etcd-"+node+"-")
	name = strings.TrimSuffix(strings.TrimSuffix(name, Extension), SealedExtension)
	taken, err := time.Parse(host.FileTime, name)
	return taken, own && err == nil
}

// RecordPath returns the path of the record of the snapshot at path.
func RecordPath(path string) string { return path + recordExtension }

// Encode returns a record's file.
func (r Record) Encode() ([]byte, error) {
	r.TypeMeta = metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), errors.WithStack(err)
}

// Read reads the record of the snapshot at path. The error is fs.ErrNotExist if it has none.
func Read(h host.FileReader, path string) (r Record, err error) {
	data, err := h.ReadFile(RecordPath(path))
	if err != nil {
		return r, err
	}
	return decode(RecordPath(path), data)
}

func decode(name string, data []byte) (r Record, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return r, errors.Wrap(err, name)
	}
	if r.APIVersion != APIVersion || r.Kind != Kind {
		return r, errors.Errorf("%s is not a record of a snapshot: it has apiVersion %q and kind %q instead of %q and %q",
			name, r.APIVersion, r.Kind, APIVersion, Kind)
	}
	return r, nil
}

// Unrecorded is a snapshot without a record that this version reads. Err wraps fs.ErrNotExist if there's no record at all.
type Unrecorded struct {
	Path string
	Err  error
}

// String names the snapshot, and says what is wrong with its record.
func (u Unrecorded) String() string {
	if errors.Is(u.Err, fs.ErrNotExist) {
		return u.Path + " (no record)"
	}
	return fmt.Sprintf("%s (no readable record: %v)", u.Path, u.Err)
}

// List returns the snapshots in a directory that have a record, the oldest first, and the others. Hosts may share a directory, so
// nobody's broken record hides the rest. A missing directory is empty.
func List(h host.FileReader, dir string) (list []Snapshot, unrecorded []Unrecorded, err error) {
	entries, err := h.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !isSnapshot(e) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if record, err := Read(h, path); err == nil {
			list = append(list, Snapshot{path, record})
		} else {
			unrecorded = append(unrecorded, Unrecorded{path, err})
		}
	}
	slices.SortStableFunc(list, func(a, b Snapshot) int { return cmp.Or(a.Taken.Compare(b.Taken), cmp.Compare(a.Path, b.Path)) })
	return list, unrecorded, nil
}

// isSnapshot leaves out hidden files: they're still being written.
func isSnapshot(e fs.DirEntry) bool {
	return e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && (strings.HasSuffix(e.Name(), Extension) || IsSealed(e.Name()))
}

// IsSealed reports whether a snapshot is sealed, by its name.
func IsSealed(path string) bool { return strings.HasSuffix(path, SealedExtension) }
