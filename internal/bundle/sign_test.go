// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// newKey makes a key pair, and writes the public key as minisign does.
func newKey(t testing.TB) (*SecretKey, Keys) {
	t.Helper()
	public, secret, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, "release.pub", text)
	keys, err := configuredKeys(dir)
	if err != nil || !keys.Required() {
		t.Fatal("the key is not found", err)
	}
	return &SecretKey{secret}, keys
}

func TestSignatures(t *testing.T) {
	key, keys := newKey(t)
	_, others := newKey(t)
	both := Keys{append(append([]trustedKey{}, others.trusted...), keys.trusted...)}
	unsigned := create(t, testList(t))
	signed := create(t, testList(t), func(c *Create) { c.Sign = key })

	if b := open(t, signed, both); !strings.Contains(b.SignedBy(), "release.pub") {
		t.Errorf("it is signed by %q", b.SignedBy())
	}
	if b := open(t, signed, Keys{}); b.SignedBy() != "" {
		t.Errorf("without a key, it is signed by %q", b.SignedBy())
	}
	_, err := Open(unsigned, keys)
	refused(t, err, "not signed", "release.pub")
	_, err = Open(signed, others)
	refused(t, err, "signed by")
	if fault.Remedy(err) == "" {
		t.Error("nothing is said about what to do")
	}

	// A signature added later is the same, and replaces another.
	if err := Sign(t.Context(), unsigned, key, nil, Keys{}); err != nil {
		t.Fatal(err)
	}
	if err := Sign(t.Context(), unsigned, key, nil, Keys{}); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(signed)
	if b, _ := os.ReadFile(unsigned); !bytes.Equal(a, b) {
		t.Error("signed later, it is another file")
	}

	// A signature of something else.
	list := readEntries(t, a)
	list[2].data = minisign.Sign(key.key, []byte("something else"))
	err = verifyAll(t, writeEntries(t, list), keys)
	refused(t, err, "signature | wrong")
	list[2].data = []byte("no signature")
	refused(t, verifyAll(t, writeEntries(t, list), keys), "not in minisign's format")
	refused(t, verifyAll(t, writeEntries(t, append(list[:2], list[3:]...)), keys), "not signed")
}

// TestSignThroughLink: a link to a bundle stays, and the bundle is signed.
func TestSignThroughLink(t *testing.T) {
	key, keys := newKey(t)
	path := create(t, testList(t))
	link := filepath.Join(t.TempDir(), "latest.tar")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Sign(t.Context(), link, key, nil, Keys{}); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	open(t, path, keys)
}

// TestSignRefuses damaged bundles, and anything that isn't a signature.
func TestSignRefuses(t *testing.T) {
	key, _ := newKey(t)
	whole := readBundle(t)
	whole[len(whole)-20_000] ^= 1
	dir := t.TempDir()
	writeFile(t, dir, "b.tar", whole)
	path := filepath.Join(dir, "b.tar")
	refused(t, Sign(t.Context(), path, key, nil, Keys{}), "is damaged")
	if after, _ := os.ReadFile(path); !bytes.Equal(after, whole) {
		t.Error("the bundle has changed")
	}
	refused(t, Sign(t.Context(), create(t, testList(t)), nil, []byte("x"), Keys{}), "minisign's format")
	_, keys := newKey(t)
	refused(t, Sign(t.Context(), create(t, testList(t)), nil, minisign.Sign(key.key, []byte("another index")), keys), "release.pub")
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
}

// TestKeysFailClosed: an unusable key is an error, never no key.
func TestKeysFailClosed(t *testing.T) {
	none := t.TempDir()
	for _, dir := range []string{none, filepath.Join(none, "not-there")} {
		if k, err := configuredKeys(dir); err != nil || k.Required() {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for name, text := range map[string]string{"empty.pub": "", "text.pub": "hello\n", "release.key": "x"} {
		dir := t.TempDir()
		writeFile(t, dir, name, []byte(text))
		_, err := configuredKeys(dir)
		refused(t, err, dir)
	}
	dir := t.TempDir()
	if err := os.Symlink("/nowhere", filepath.Join(dir, "gone.pub")); err != nil {
		t.Fatal(err)
	}
	_, err := configuredKeys(dir)
	refused(t, err, "gone.pub", "/nowhere")
	for link, keys := range map[string]string{"keys.d": "keys.d", "slipway": "slipway/keys.d"} {
		if err := os.Symlink("nowhere/"+link, filepath.Join(none, link)); err != nil {
			t.Fatal(err)
		}
		_, err := configuredKeys(filepath.Join(none, keys))
		refused(t, err, filepath.Join(none, link)+" ", "nowhere/"+link)
	}
	if err := os.Symlink(dir, filepath.Join(none, "whole")); err != nil {
		t.Fatal(err)
	}
	if k, err := configuredKeys(filepath.Join(none, "whole", "not-there")); err != nil || k.Required() {
		t.Errorf("a missing directory below a link: %v", err)
	}
	writeFile(t, none, "file", nil)
	_, err = configuredKeys(filepath.Join(none, "file", "dir"))
	refused(t, err, "public keys")
	_, err = keysFromFiles(filepath.Join(none, "absent.pub"))
	refused(t, err, "absent.pub")
}

func TestSecretKeys(t *testing.T) {
	key, _ := newKey(t)
	dir := t.TempDir()
	plain, err := key.key.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "plain.key", plain)
	noPassword := func() (string, error) { return "", errors.New("asked") }
	if got, err := SecretKeyFromFile(filepath.Join(dir, "plain.key"), noPassword); err != nil || !got.key.Equal(key.key) {
		t.Errorf("a key without a password: %v", err)
	}
	writeFile(t, dir, "wrong.key", []byte("x"))
	_, err = SecretKeyFromFile(filepath.Join(dir, "wrong.key"), noPassword)
	refused(t, err, "wrong.key")
	_, err = SecretKeyFromFile(filepath.Join(dir, "none.key"), noPassword)
	refused(t, err, "none.key")
}

// TestMinisign: Debian's minisign and Slipway accept each other's signatures and keys, including keys with a password.
func TestMinisign(t *testing.T) {
	program, err := exec.LookPath("minisign")
	if err != nil {
		t.Skip("minisign is not installed")
	}
	dir := t.TempDir()
	run := func(input string, args ...string) {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("minisign %q: %v: %s", args, err, out)
		}
	}
	run("secret\nsecret\n", "-G", "-p", "locked.pub", "-s", "locked.key")
	for password, right := range map[string]bool{"secret": true, "wrong": false} {
		_, err := SecretKeyFromFile(filepath.Join(dir, "locked.key"), func() (string, error) { return password, nil })
		if right && err != nil {
			t.Error(err)
		}
		if !right {
			refused(t, err, "password | wrong")
		}
	}
	run("", "-G", "-W", "-p", "m.pub", "-s", "m.key")
	keys, err := keysFromFiles(filepath.Join(dir, "m.pub"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := SecretKeyFromFile(filepath.Join(dir, "m.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	path := create(t, testList(t), func(c *Create) { c.Sign = key })
	open(t, path, keys)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := readEntries(t, data)
	writeFile(t, dir, entryIndex, list[1].data)
	writeFile(t, dir, entrySignature, list[2].data)
	run("", "-V", "-p", "m.pub", "-m", entryIndex)

	run("", "-S", "-s", "m.key", "-m", entryIndex)
	signature, err := os.ReadFile(filepath.Join(dir, entrySignature))
	if err != nil {
		t.Fatal(err)
	}
	unsigned := create(t, testList(t))
	if err := Sign(t.Context(), unsigned, nil, signature, Keys{}); err != nil {
		t.Fatal(err)
	}
	if b := open(t, unsigned, keys); !strings.Contains(b.SignedBy(), "m.pub") {
		t.Errorf("it is signed by %q", b.SignedBy())
	}
}
