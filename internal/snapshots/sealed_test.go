// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const (
	database  = "the database"
	innerName = "etcd-cp-1-20261127T120000Z.db"
	sealedAt  = "/srv/a.tar.age"
)

func sealable() (Record, []File) {
	sum := sha256.Sum256([]byte(database))
	return Record{Node: "cp-1", Taken: noon, Revision: 7, Size: int64(len(database)), SHA256: hex.EncodeToString(sum[:])}, []File{
		{Path: "/etc/kubernetes/pki/ca.key", Mode: 0o600, Data: []byte("key of the CA")},
		{Path: "/etc/kubernetes/pki/apiserver.crt", Mode: 0o644, Owner: host.Owner{UID: 7, GID: 8}, OfHost: true, Data: []byte("certificate")},
	}
}

// keyPairs returns a recipient of each kind with its identity. The passphrase's takes less time than those of a file.
func keyPairs(t *testing.T) map[string]struct {
	Recipients
	Identities
} {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	passphrase, err := age.NewScryptRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	passphrase.SetWorkFactor(2)
	root := t.TempDir()
	h := linux.NewAt(root)
	fixture.Put(t, root, "/keys", "# made by age-keygen\n"+key.String()+"\n")
	fixture.Put(t, root, "/hybrid", hybrid.String())
	fixture.Put(t, root, "/public", key.Recipient().String()+"\n"+hybrid.Recipient().String())
	fixture.Put(t, root, "/passphrase", "correct horse\n")
	read := func(keys, passphrase string) Identities {
		i, err := ReadIdentities(h, keys, passphrase)
		if err != nil || len(i) != 1 {
			t.Fatal(i, err)
		}
		return i
	}
	public, err := ReadRecipients(h, "/public", "")
	if err != nil || len(public) != 1 && len(public) != 2 {
		t.Fatal(public, err)
	}
	fact.List(t, Recipients{key.Recipient(), passphrase}.Names(), key.Recipient().String(), "passphrase")
	type pair = struct {
		Recipients
		Identities
	}
	return map[string]pair{
		"a key":        {Recipients{key.Recipient()}, read("/keys", "")},
		"a hybrid key": {Recipients{hybrid.Recipient()}, read("/hybrid", "")},
		"a passphrase": {Recipients{passphrase}, read("", "/passphrase")},
	}
}

func TestSealed(t *testing.T) {
	pairs := keyPairs(t)
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			record, files := sealable()
			var out bytes.Buffer
			all := append([]File{{Path: Configuration, Data: []byte("kind: ClusterConfiguration")}}, files...)
			if err := (Content{innerName, record, all, strings.NewReader(database)}).Seal(&out, pair.Recipients); err != nil {
				t.Fatal(err)
			}
			fact.NotIn(t, out.String(), database, "key of the CA", "ca.key", "cp-1")
			fixture.Put(t, root, sealedAt, out.String())
			o, err := Open(linux.NewAt(root), sealedAt, pair.Identities)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			record.APIVersion, record.Kind = APIVersion, Kind
			if diff := cmp.Diff(record, o.Record) + cmp.Diff(files, o.Files); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := string(o.Configuration); text != "kind: ClusterConfiguration" {
				t.Errorf("configuration: %q", text)
			}
			if data, err := io.ReadAll(o.Snapshot); string(data) != database || err != nil {
				t.Errorf("%q, %v", data, err)
			}
			for other, wrong := range pairs {
				if other == name {
					continue
				}
				_, err := Open(linux.NewAt(root), sealedAt, wrong.Identities)
				fact.Error(t, err, sealedAt)
			}
		})
	}
}

// TestSealedRecordTooLarge: Open wouldn't read it again.
func TestSealedRecordTooLarge(t *testing.T) {
	record, files := sealable()
	record.Unknown = []string{strings.Repeat("x", maxRecord)}
	err := Content{innerName, record, files, strings.NewReader(database)}.Seal(io.Discard, keyPairs(t)["a key"].Recipients)
	fact.Error(t, err, "record")
}

// TestSealedDamaged: a sealed snapshot that has lost or changed a byte, or isn't the one its record describes, is an error.
func TestSealedDamaged(t *testing.T) {
	pair := keyPairs(t)["a key"]
	record, files := sealable()
	var out bytes.Buffer
	if err := (Content{innerName, record, files, strings.NewReader(database)}).Seal(&out, pair.Recipients); err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(out.Bytes())
	changed[len(changed)-100] ^= 1
	for name, data := range map[string][]byte{"changed": changed, "shortened": out.Bytes()[:out.Len()-100], "empty": nil, "another file": []byte(database)} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			fixture.Put(t, root, sealedAt, string(data))
			o, err := Open(linux.NewAt(root), sealedAt, pair.Identities)
			if err == nil {
				defer o.Close()
				_, err = io.Copy(io.Discard, o.Snapshot)
			}
			if err == nil {
				t.Error("no error")
			}
		})
	}
	err := Content{innerName, record, files, strings.NewReader(strings.ToUpper(database))}.Seal(io.Discard, pair.Recipients)
	fact.Error(t, err, record.SHA256)
}

// TestSealedForged: anyone can encrypt to a public key, so entries are checked, and memory is bounded.
func TestSealedForged(t *testing.T) {
	pair := keyPairs(t)["a key"]
	record, _ := sealable()
	first, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, entries := range map[string][]tar.Header{
		"no record":       {{Name: "host/etc/passwd"}},
		"a huge record":   {{Name: innerName + ".json", Size: 1 << 40}},
		"no snapshot":     {{Name: innerName + ".json"}},
		"a path upwards":  {{Name: innerName + ".json"}, {Name: "host/etc/../../x"}},
		"another top":     {{Name: innerName + ".json"}, {Name: "etc/passwd"}},
		"a symlink":       {{Name: innerName + ".json"}, {Name: "host/etc/passwd", Typeflag: tar.TypeSymlink, Linkname: "/etc/shadow"}},
		"a huge file":     {{Name: innerName + ".json"}, {Name: "host/etc/passwd", Size: MaxFile + 1}},
		"another's size":  {{Name: innerName + ".json"}, {Name: innerName, Size: 1}},
		"many huge files": append([]tar.Header{{Name: innerName + ".json"}}, slicesOf(MaxFiles/MaxFile+1, tar.Header{Name: "host/etc/passwd", Size: MaxFile})...),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := age.Encrypt(&out, pair.Recipients...)
			if err != nil {
				t.Fatal(err)
			}
			tw := tar.NewWriter(w)
			for i, h := range entries {
				content := make([]byte, min(h.Size, MaxFile+1))
				if i == 0 && h.Size == 0 {
					content, h.Size = first, int64(len(first))
				}
				if err := tw.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				_, _ = tw.Write(content)
			}
			_ = tw.Flush()
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			fixture.Put(t, root, sealedAt, out.String())
			_, err = Open(linux.NewAt(root), sealedAt, pair.Identities)
			fact.Error(t, err, sealedAt)
		})
	}
}

func slicesOf(count int, h tar.Header) (list []tar.Header) {
	for range count {
		list = append(list, h)
	}
	return list
}

// TestKeyFiles: a broken file is named, and none of it is shown.
func TestKeyFiles(t *testing.T) {
	root := t.TempDir()
	h := linux.NewAt(root)
	const secret = "AGE-SECRET-KEY-1TOPSECRET"
	for i, text := range []string{secret, "", secret + "\n" + secret + "\n", "\n\n"} {
		path := fmt.Sprintf("/file-%d", i)
		fixture.Put(t, root, path, text)
		_, a := ReadRecipients(h, path, "")
		_, b := ReadIdentities(h, path, "")
		fact.Error(t, a, path)
		fact.Error(t, b, path)
		fact.NotIn(t, a.Error()+b.Error(), "TOPSECRET")
		if i == 0 {
			continue // it is a passphrase
		}
		_, a = ReadRecipients(h, "", path)
		_, b = ReadIdentities(h, "", path)
		fact.Error(t, a, path)
		fact.Error(t, b, path)
		fact.NotIn(t, a.Error()+b.Error(), "TOPSECRET")
	}
	if r, err := ReadRecipients(h, "", "/file-0"); len(r) != 1 || err != nil {
		t.Error(r, err)
	}
	if i, err := ReadIdentities(h, "", ""); len(i) != 0 || err != nil {
		t.Error(i, err)
	}
}

func TestTakenIn(t *testing.T) {
	for _, name := range []string{innerName, RecordPath(innerName), "etcd-cp-1-20261127T120000Z.tar.age"} {
		if taken, own := TakenIn(name, "cp-1"); !own || !taken.Equal(noon) {
			t.Errorf("%s: %v, %v", name, taken, own)
		}
		if _, own := TakenIn(name, "cp"); own {
			t.Errorf("%s is of cp", name)
		}
	}
	if _, own := TakenIn("etcd-cp-1-copy.db", "cp-1"); own {
		t.Error("a copy counts")
	}
}
