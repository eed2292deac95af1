// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

var (
	noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	cp1  = Owner{Node: "cp-1"}
)

// every returns a Node's snapshots, one each interval, the last of them now.
func every(interval time.Duration, count int) (list []Snapshot) {
	for i := range count {
		taken := noon.Add(-interval * time.Duration(count-1-i))
		list = append(list, Snapshot{Path: Name("cp-1", taken), Record: Record{Node: "cp-1", Taken: taken}})
	}
	return list
}

// TestSurplus: after three weeks of a snapshot every six hours, the newest five stay, and one for each day before them.
func TestSurplus(t *testing.T) {
	policy := Policy{Newest: 5, Days: 7}
	list := every(6*time.Hour, 84)
	list = append([]Snapshot{{Path: "theirs.db", Record: Record{Node: "cp-2", Taken: noon.AddDate(-1, 0, 0)}}}, list...)
	gone := map[string]bool{}
	for _, s := range policy.Surplus(list, cp1, noon) {
		gone[s.Path] = true
	}
	var stay []string
	for _, s := range list {
		if !gone[s.Path] {
			stay = append(stay, s.Path)
		}
	}
	want := []string{"theirs.db"}
	for _, taken := range []string{"21T18", "22T18", "23T18", "24T18", "25T18", "26T12", "26T18", "27T00", "27T06", "27T12"} {
		want = append(want, "etcd-cp-1-202611"+taken+"0000Z.db")
	}
	if diff := cmp.Diff(want, stay); diff != "" {
		t.Errorf("(-want +stay):\n%s", diff)
	}
}

// TestSurplusLater: snapshots stay, however old, if there are no newer ones.
func TestSurplusLater(t *testing.T) {
	list := every(6*time.Hour, 8)
	for _, later := range []time.Duration{0, 24 * time.Hour, 365 * 24 * time.Hour} {
		surplus := Policy{Newest: 5, Days: 7}.Surplus(list, cp1, noon.Add(later))
		if left := len(list) - len(surplus); left < 5 {
			t.Errorf("%s later, %d snapshots stay", later, left)
		}
	}
	if surplus := (Policy{Newest: 8, Days: 1}).Surplus(list, cp1, noon); len(surplus) > 0 {
		t.Errorf("surplus: %v", surplus)
	}
}

// TestSurplusAhead: snapshots from a clock that was ahead take no place from the others, and stay until nobody doubts their age.
func TestSurplusAhead(t *testing.T) {
	list := every(6*time.Hour, 8)
	for i := range 5 {
		taken := noon.AddDate(1, 0, i)
		list = append(list, Snapshot{Path: Name("cp-1", taken), Record: Record{Node: "cp-1", Taken: taken}})
	}
	policy := Policy{Newest: 5, Days: 1}
	if diff := cmp.Diff(list[:3], policy.Surplus(list, cp1, noon)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if newest, found := Newest(list, cp1, noon); !found || !newest.Taken.Equal(noon) {
		t.Errorf("newest: %+v", newest)
	}
	if newest, found := Newest(list[8:], cp1, noon); !found || newest.Path != list[12].Path {
		t.Errorf("newest: %+v", newest)
	}
	if _, found := Newest(list, Owner{Node: "cp-2"}, noon); found {
		t.Error("another Node's counts")
	}
	if surplus := policy.Surplus(list, cp1, noon.AddDate(2, 0, 0)); len(surplus) != 8 {
		t.Errorf("two years later, %d go", len(surplus))
	}
}

// TestOwner: clusters may have Nodes of the same name. Their UIDs tell them apart, or else their CAs.
func TestOwner(t *testing.T) {
	for name, c := range map[string]struct {
		owner          Owner
		uid            string // in the record
		ca             []string
		own, undecided bool
	}{
		"the same UID, another CA":       {Owner{"cp-1", "a", []string{"1"}}, "a", []string{"2"}, true, false},
		"another UID, the same CA":       {Owner{"cp-1", "a", []string{"1"}}, "b", []string{"1"}, false, false},
		"no UID in the record":           {Owner{"cp-1", "a", []string{"1"}}, "", []string{"1"}, true, false},
		"no UID in the record, its CA":   {Owner{"cp-1", "a", []string{"1"}}, "", []string{"2"}, false, true},
		"neither in the record":          {Owner{"cp-1", "a", []string{"1"}}, "", nil, false, true},
		"no API":                         {Owner{"cp-1", "", []string{"1"}}, "a", []string{"1"}, true, false},
		"no API, another CA":             {Owner{"cp-1", "", []string{"1"}}, "a", []string{"2"}, false, true},
		"while the CA is replaced":       {Owner{"cp-1", "", []string{"1", "2"}}, "", []string{"2", "3"}, true, false},
		"another Node":                   {Owner{"cp-2", "", []string{"1"}}, "", []string{"1"}, false, false},
		"nobody knows this host's CA":    {Owner{"cp-1", "", nil}, "a", nil, true, false},
		"nor does the record":            {Owner{"cp-1", "", nil}, "", nil, true, false},
		"only the record has a CA":       {Owner{"cp-1", "", nil}, "", []string{"1"}, false, true},
		"only the UID is known, another": {Owner{"cp-1", "b", nil}, "a", nil, false, false},
	} {
		list := every(time.Hour, 1)
		list[0].ClusterUID, list[0].Authorities = c.uid, map[string][]string{"ca": c.ca, "etcd-ca": {"1"}}
		own, _ := OwnOf(list, c.owner, noon)
		if undecided := Undecided(list, c.owner); len(own) == 1 != c.own || len(undecided) == 1 != c.undecided {
			t.Errorf("%s: %d are own, %d undecided", name, len(own), len(undecided))
		}
	}
}

// TestTurns: at most one member may begin at any time, with half a turn left for it, and the others wait until they may.
func TestTurns(t *testing.T) {
	for members := 1; members <= 7; members++ {
		for at := noon; at.Before(noon.Add(3 * time.Hour)); at = at.Add(37 * time.Second) {
			having := 0
			for position := range members {
				wait := UntilTurn(at, position, members)
				if wait == 0 {
					having++
				}
				if wait < 0 || wait > turn*time.Duration(members) || UntilTurn(at.Add(wait), position, members) != 0 {
					t.Fatalf("%d of %d waits %s at %s", position, members, wait, at)
				}
			}
			want := 1
			if members > 1 && time.Duration(at.UnixNano())%turn >= turn/2 {
				want = 0
			}
			if having != want {
				t.Fatalf("%d of %d members may begin at %s", having, members, at)
			}
		}
	}
}

func TestList(t *testing.T) {
	root := t.TempDir()
	h := linux.NewAt(root)
	if list, unrecorded, err := List(h, Dir); len(list)+len(unrecorded) > 0 || err != nil {
		t.Errorf("a missing directory: %v, %v, %v", list, unrecorded, err)
	}
	put := func(name, text string) { fixture.Put(t, root, filepath.Join(Dir, name), text) }
	want := []Snapshot{}
	for i, name := range []string{"z.db", "a.db"} { // by time, not by name
		r := Record{Node: "cp-1", Taken: noon.Add(time.Duration(i) * time.Hour), Revision: 7, Authorities: map[string][]string{"ca": {"sha256:1"}}}
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		put(name, "database")
		put(name+".json", string(data))
		r.APIVersion, r.Kind = APIVersion, Kind
		want = append(want, Snapshot{filepath.Join(Dir, name), r})
	}
	put("others.db", "database")
	put(".b.db.slipway-12345678", "half")
	put("alone.db.json", "{}") // whose snapshot is elsewhere
	put("README", "")
	list, unrecorded, err := List(h, Dir)
	if diff := cmp.Diff(want, list); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if len(unrecorded) != 1 || unrecorded[0].Path != filepath.Join(Dir, "others.db") || !errors.Is(unrecorded[0].Err, fs.ErrNotExist) {
		t.Errorf("without a record: %v", unrecorded)
	}

	for _, bad := range []string{"{", "{}", `{"apiVersion": "v1", "kind": "Snapshot"}`, fmt.Sprintf(`{"apiVersion": %q}`, APIVersion)} {
		put("z.db.json", bad)
		list, unrecorded, err := List(h, Dir)
		if err != nil || len(list) != 1 || len(unrecorded) != 2 || unrecorded[1].Path != filepath.Join(Dir, "z.db") {
			t.Fatalf("a record %q: %v, %v, %v", bad, list, unrecorded, err)
		}
		if err := unrecorded[1].Err; errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a record %q counts as missing", bad)
		}
		fact.In(t, unrecorded[1].String(), "z.db.json")
	}
}
