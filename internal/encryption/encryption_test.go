// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// newRing has n keys, made a minute apart.
func newRing(n int) Keyring {
	r := Keyring{Target: Identity}
	for i := range n {
		k := NewKey(time.Date(2026, 1, 2, 3, i, 0, 0, time.UTC))
		r.Keys, r.Target = append(r.Keys, k), k.Name
	}
	return r
}

func newSeal(t *testing.T) []byte {
	t.Helper()
	key, err := certs.NewKey(config.ECDSAP256)
	if err != nil {
		t.Fatal(err)
	}
	data, err := certs.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSeal: a sealed keyring shows no key, and opens only with the same key, unchanged.
func TestSeal(t *testing.T) {
	r, seal := newRing(2), newSeal(t)
	sealed, err := r.Seal(seal)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Keys {
		if bytes.Contains(sealed, []byte(k.Secret.Reveal())) || strings.Contains(fmt.Sprintf("%+v", r), k.Secret.Reveal()) {
			t.Error("a key is readable")
		}
	}
	if again, err := Open(sealed, seal); err != nil || !again.Same(r) {
		t.Errorf("opened: %v, %v", again, err)
	}
	if _, err := Open(sealed, newSeal(t)); err == nil {
		t.Error("another key opens it")
	}
	for i := range sealed {
		changed := slices.Clone(sealed)
		changed[i] ^= 1
		if _, err := Open(changed, seal); err == nil {
			t.Fatalf("byte %d changed, and it opens", i)
		}
	}
	if _, err := Open(nil, seal); err == nil {
		t.Error("nothing opens")
	}
}

func TestSameName(t *testing.T) {
	r := newRing(1)
	other := NewKey(time.Now())
	other.Name = r.Keys[0].Name
	if _, err := r.With(other); err == nil || strings.Contains(err.Error(), other.Secret.Reveal()) {
		t.Errorf("two keys of one name: %v", err)
	}
	if got := Made(r.Keys[0].Name); !got.Equal(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)) {
		t.Errorf("it was made at %s", got)
	}
}

// TestFile: a file is read as it was written, is recognized by its hash, and isn't Slipway's once it's edited.
func TestFile(t *testing.T) {
	r := newRing(3)
	a, b := r.Keys[0].Name, r.Keys[1].Name
	for _, o := range []Order{{Identity}, {Identity, a}, {a, Identity}, {b, a, Identity}, {Identity, b, a}} {
		data, err := r.File(o)
		if err != nil {
			t.Fatal(err)
		}
		got, ring, err := Parse(data)
		if err != nil || !slices.Equal(got, o) || len(ring.Keys) != len(o)-1 {
			t.Errorf("%v is read as %v: %v", o, got, err)
		}
		if known, _ := r.Find(Hash(data)); !slices.Equal(known, o) || !r.Findable(o) {
			t.Errorf("the hash of %v is known as %v", o, known)
		}
		for _, edited := range []string{string(data) + "\n", strings.Replace(string(data), "secrets", "configmaps", 1), "", "a: [", strings.Replace(string(data), Identity, "kms", 1)} {
			if _, _, err := Parse([]byte(edited)); err == nil {
				t.Errorf("this isn't edited:\n%s", edited)
			}
		}
	}
	if _, err := (Keyring{}).File(Order{a}); err == nil {
		t.Error("a file without its key")
	}
}

// TestFind: of many keys, the newest and the target's are found in larger files than recalled ones. Names are found however old they are.
func TestFind(t *testing.T) {
	r := newRing(50)
	name := func(i int) string { return r.Keys[i].Name }
	for _, test := range []struct {
		order    Order
		findable bool
		likely   []string
		found    bool
	}{
		{Order{name(49), name(48), name(47), name(46), Identity}, true, nil, true},
		{Order{name(49), name(30), name(31), Identity}, true, nil, true},
		{Order{name(49), name(30), name(31), name(32), Identity}, false, nil, false},
		{Order{name(49), name(30), name(31), name(32), Identity}, false, []string{name(30), name(31), name(32)}, true},
		{Order{name(49), name(48), name(47), name(46), name(45), Identity}, false, nil, false},
		{Order{name(49), name(3), Identity}, true, nil, false},
		{Order{name(49), name(3), Identity}, true, []string{name(3)}, true},
	} {
		data, err := r.File(test.order)
		if err != nil {
			t.Fatal(err)
		}
		got, found := r.Find(Hash(data), test.likely...)
		if found != test.found || found && !slices.Equal(got, test.order) || r.Findable(test.order) != test.findable {
			t.Errorf("%v: %v, %t; findable: %t", test.order, got, found, r.Findable(test.order))
		}
	}
	r.Target = name(0)
	if data, err := r.File(Only(r.Target)); err != nil || !r.Findable(Only(r.Target)) {
		t.Errorf("the target isn't found: %v", err)
	} else if _, found := r.Find(Hash(data)); !found {
		t.Error("the target isn't found")
	}
}

func TestLoaded(t *testing.T) {
	const ours = "apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:1\",hash=\"sha256:2\"} 1\n"
	for text, want := range map[string]string{"": "", "up 1\n": "", "up 1\n" + ours + "down 0\n": "sha256:2"} {
		if got, err := Loaded(strings.NewReader(text)); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestProvider(t *testing.T) {
	for value, want := range map[string]string{
		"k8s\x00text": Identity, "": Identity, "k8s:enc:secretbox:v1:a:x": "a", "k8s:enc:secretbox:v1:ab:x:y": "ab",
		"k8s:enc:secretbox:v2:a:x": "secretbox:v2:a", "k8s:enc:kms:v2:a:x": "kms:v2:a", "k8s:enc:a": "of an unknown kind",
	} {
		if got := Provider([]byte(value)); got != want {
			t.Errorf("%q: %q", value, got)
		}
	}
}

// TestNext: each step needs the one before on all API servers.
func TestNext(t *testing.T) {
	plain, reads, writes := Order{Identity}, Order{Identity, "k"}, Order{"k", Identity}
	both := Order{"k", "old", Identity}
	proven, others, lost := Values{}, Values{Others: []string{Identity}}, Values{Others: []string{Identity, "lost"}}
	for name, test := range map[string]struct {
		own    Order
		other  Order
		values Values
		do     Operation
		order  Order
	}{
		"new":                      {plain, nil, others, Write, reads},
		"another has no file":      {reads, nil, others, Wait, nil},
		"another can't read":       {reads, plain, others, Wait, nil},
		"all read":                 {reads, reads, others, Write, writes},
		"another writes as before": {writes, reads, proven, Wait, nil},
		"all write":                {writes, writes, others, Rewrite, nil},
		"an old key is left":       {both, both, proven, Write, writes},
		"an old key is needed":     {both, both, others, Rewrite, nil},
		"a key is lost":            {writes, writes, lost, Write, Order{"k", "lost", Identity}},
		"a key is lost to another": {Order{"k", "lost", Identity}, writes, lost, Wait, nil},
		"a lost key is back":       {Order{"k", "lost", Identity}, Order{"k", "lost", Identity}, lost, Rewrite, nil},
		"another has an old key":   {writes, both, proven, Wait, nil},
		"done":                     {writes, writes, proven, Done, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Next("k", test.own, []Server{{"cp-1", test.own}, {"cp-2", test.other}}, func() (Values, error) { return test.values, nil })
			if err != nil || got.Do != test.do || !slices.Equal(got.Order, test.order) || test.do == Wait && !slices.Equal(got.For, []string{"cp-2"}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
