// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func TestRead(t *testing.T) {
	a := newAPI(t)
	a.Answer("/metrics", "up 1\n")
	r := a.client(t)
	var text []byte
	take := func(body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	}
	// A passing error is retried, with the same parameters and media type.
	a.faults["GET"] = []fakeapi.Fault{answers(503, "", ""), answers(200, "", "later")}
	if err := r.Read(t.Context(), Query{Path: "/metrics"}, take); err != nil || string(text) != "later" {
		t.Errorf("%q, %v", text, err)
	}
	if err := r.Read(t.Context(), Query{Path: "/metrics", Params: url.Values{"limit": {"1"}}, Accept: "text/plain"}, take); err != nil || string(text) != "up 1\n" {
		t.Errorf("%q, %v", text, err)
	}
	// A path that the API lacks, and an answer that the caller can't read.
	if err := r.Read(t.Context(), Query{Path: "/apis/none"}, take); !apierrors.IsNotFound(err) || !strings.HasPrefix(err.Error(), "get /apis/none: ") {
		t.Errorf("a path that is missing: %v", err)
	}
	unread, calls := errors.New("unread"), 0
	err := r.Read(t.Context(), Query{Path: "/metrics"}, func(io.Reader) error { calls++; return unread })
	if !errors.Is(err, unread) || calls != 1 {
		t.Errorf("what take cannot read: %v, after %d calls", err, calls)
	}
}

// TestReadJSON: a kubelet's answer may have any size, and one beyond the limit is refused.
func TestReadJSON(t *testing.T) {
	a := newAPI(t)
	path := KubeletPath("w-1", "pods")
	const answer = `{"kind": "PodList"}`
	a.Answer(path, answer)
	for limit, fits := range map[int64]bool{int64(len(answer)): true, int64(len(answer)) - 1: false} {
		var list struct{ Kind string }
		err := ReadJSON(t.Context(), a.client(t), Query{Path: path}, limit, &list)
		if (err == nil) != fits || (list.Kind == "PodList") != fits {
			t.Errorf("at most %d bytes: %+v, %v", limit, list, err)
		}
		if !fits {
			fact.Error(t, err, path, strconv.FormatInt(limit, 10))
		}
	}
}

// TestReadFromServer asks another API server than the kubeconfig's.
func TestReadFromServer(t *testing.T) {
	a := newAPI(t)
	a.Answer("/metrics", "up 1\n")
	r := a.client(t)
	server, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	for at, answers := range map[string]bool{server.Host: true, "127.0.0.1:1": false} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := r.Read(ctx, Query{Path: "/metrics", Server: at}, func(io.Reader) error { return nil })
		cancel()
		if (err == nil) != answers {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestRedirects: nodes' answers pass through the API server, so another host in them gets no request, and no credentials.
// Redirects within the server are followed.
func TestRedirects(t *testing.T) {
	a, other := newAPI(t), newAPI(t)
	a.Answer("/moved", "here\n")
	redirect := func(to string) fakeapi.Fault {
		return func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}
	var text []byte
	take := func(body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	}
	for to, want := range map[string]string{a.URL + "/moved": "here\n", "/moved": "here\n", other.URL + "/moved": "", strings.Replace(other.URL, "https", "http", 1): "",
		strings.Replace(a.URL, "https", "http", 1) + "/moved": ""} {
		text = nil
		a.faults["GET"] = []fakeapi.Fault{redirect(to)}
		err := a.client(t).Read(t.Context(), Query{Path: "/api/v1/nodes/w-1/proxy/configz"}, take)
		if string(text) != want || (err == nil) != (want != "") {
			t.Errorf("to %s: %q, %v", to, text, err)
		}
	}
	if seen := other.seen(); len(seen) > 0 {
		t.Errorf("another host was asked %q", seen)
	}
}

// TestPlanReadsPaths reads from the cluster, and never succeeds without asking it.
func TestPlanReadsPaths(t *testing.T) {
	a := newAPI(t)
	a.Answer("/metrics", "up 1\n")
	asked := 0
	take := func(io.Reader) error { asked++; return nil }
	if err := NewPlan(func(Action) {}, a.client(t)).Read(t.Context(), Query{Path: "/metrics"}, take); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if err := NewPlan(func(Action) {}, nil).Read(t.Context(), Query{Path: "/metrics"}, take); err == nil || asked != 1 {
		t.Errorf("without a cluster: asked %d times, %v", asked, err)
	}
}
