// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// fileServer serves one file, with real servers' faults.
type fileServer struct {
	data     []byte
	breakOff int  // bytes after which each answer breaks off; 0 for never
	noRange  bool // it always sends the whole file
	status   int  // instead of an answer
	mu       sync.Mutex
	asked    []string // the header Range of each request
}

func (s *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Header.Get("Range"))
	s.mu.Unlock()
	if s.status != 0 {
		w.WriteHeader(s.status)
		return
	}
	if s.noRange {
		r.Header.Del("Range")
	}
	if s.breakOff > 0 {
		w = &breaking{w, s.breakOff}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.data))
}

// breaking ends the connection after some bytes.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if len(p) < b.left {
		b.left -= len(p)
		return b.ResponseWriter.Write(p)
	}
	_, _ = b.ResponseWriter.Write(p[:b.left])
	b.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func TestDownloads(t *testing.T) {
	file := noise(7, 500_000)
	sum := digestOf(file).Hex
	for name, tt := range map[string]struct {
		server   *fileServer
		there    []byte // of an earlier run
		requests []string
		fails    string
	}{
		"whole":                           {server: &fileServer{data: file}, requests: []string{""}},
		"breaks off":                      {server: &fileServer{data: file, breakOff: 200_000}, requests: []string{"", "bytes=200000-", "bytes=400000-"}},
		"resumes an earlier run":          {server: &fileServer{data: file}, there: file[:300_000], requests: []string{"bytes=300000-"}},
		"server does not resume":          {server: &fileServer{data: file, noRange: true}, there: file[:300_000], requests: []string{"bytes=300000-"}},
		"earlier run was complete":        {server: &fileServer{data: file}, there: file, requests: []string{"bytes=500000-"}},
		"earlier run was of another file": {server: &fileServer{data: file}, there: noise(8, 1000), requests: []string{"bytes=1000-", ""}},
		"earlier run was too long":        {server: &fileServer{data: file}, there: noise(8, 600_000), requests: []string{"bytes=600000-", ""}},
		"another file":                    {server: &fileServer{data: file[1:]}, requests: []string{""}, fails: "SHA-256"},
		"not there":                       {server: &fileServer{status: 404}, requests: []string{""}, fails: "404"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tt.server)
			defer server.Close()
			cache := t.TempDir()
			if tt.there != nil {
				writeFile(t, cache, sum+".part", tt.there)
			}
			d := download{cache, server.URL + "/kubelet", sum, t.Logf}
			path, err := d.run(t.Context())
			if fmt.Sprint(tt.server.asked) != fmt.Sprint(tt.requests) {
				t.Errorf("it asked for %q", tt.server.asked)
			}
			if tt.fails != "" {
				refused(t, err, tt.fails, "/kubelet")
				if _, err := os.Stat(filepath.Join(cache, sum)); err == nil {
					t.Error("a wrong file is in the cache")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, file) {
				t.Error("it is another file")
			}
			if left, _ := filepath.Glob(cache + "/*.part"); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
			// The next run finds it, and asks nobody.
			server.Close()
			if _, err := d.run(t.Context()); err != nil {
				t.Errorf("from the cache: %v", err)
			}
		})
	}
}

// TestDownloadsSideBySide: runs that want the same file fetch it once.
func TestDownloadsSideBySide(t *testing.T) {
	s := &fileServer{data: noise(7, 300_000)}
	server := httptest.NewServer(s)
	defer server.Close()
	cache := t.TempDir()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			d := download{cache, server.URL, digestOf(s.data).Hex, t.Logf}
			if _, err := d.run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(s.asked) != 1 {
		t.Errorf("there were %d requests", len(s.asked))
	}
}

// TestDamagedCache: a damaged file in the cache is fetched again.
func TestDamagedCache(t *testing.T) {
	s := &fileServer{data: noise(7, 3000)}
	server := httptest.NewServer(s)
	defer server.Close()
	sum := digestOf(s.data).Hex
	part := ListedPart{Name: "kubelet", Type: Program, URL: server.URL, SHA256: sum}
	cache := t.TempDir()
	writeFile(t, cache, sum, []byte("damaged"))
	path := create(t, save(t, listOf(part), t.TempDir()), func(c *Create) { c.Cache = cache })
	if onlyFile(t, path) != string(s.data) {
		t.Error("it is another file")
	}
}
