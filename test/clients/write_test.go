// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
)

// objects is an API that keeps the clients' ConfigMaps, and spoils some requests, counted from 1.
type objects struct {
	*testing.T
	mu     sync.Mutex
	data   map[string]map[string]string
	count  int
	spoils map[int]http.HandlerFunc
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count++; o.spoils[o.count] != nil {
		o.spoils[o.count](w, r)
		return
	}
	var sent struct {
		Metadata struct{ Name string }
		Data     map[string]string
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &sent)
	}
	if err != nil {
		o.Error(err)
	}
	if r.Method == http.MethodPost {
		if o.data[sent.Metadata.Name] != nil {
			w.WriteHeader(http.StatusConflict)
			return
		}
		o.data[sent.Metadata.Name] = map[string]string{}
		return
	}
	for key, value := range sent.Data {
		o.data[path.Base(r.URL.Path)][key] = value
	}
}

// TestWrites: a client sends a write once more if its connection breaks, waits if the server says so, and counts what fails. What was
// confirmed and isn't there is lost.
func TestWrites(t *testing.T) {
	lost := func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			conn.Close()
		}
	}
	refused := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	api := &objects{T: t, data: map[string]map[string]string{}}
	api.spoils = map[int]http.HandlerFunc{
		1: func(w http.ResponseWriter, r *http.Request) { // made, and the answer lost
			api.data["written-0"] = map[string]string{}
			lost(w, r)
		},
		4: refused,       // write 1
		6: lost, 7: lost, // write 3, twice
		9: busy, // write 5
	}
	server := httptest.NewServer(api)
	defer server.Close()
	c := &client{http: server.Client(), url: server.URL, name: "written", made: map[string]bool{}}
	for range 6 {
		_ = c.write(t.Context())
	}
	delete(api.data["written-0"], "write-5")
	r := sum([]*client{c}, api.data)
	if want := []int{0, 2, 4, 5}; !slices.Equal(c.told, want) || r.Confirmed != 4 || len(r.Failed) != 2 || r.Repeated != 2 || r.Delayed != 1 {
		t.Errorf("%+v; confirmed %d", r, c.told)
	}
	if want := []string{"written-0/write-5"}; !slices.Equal(r.Lost, want) {
		t.Errorf("lost %q", r.Lost)
	}
}
