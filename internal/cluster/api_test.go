// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// api is a server that records its requests. It tells users apart by token: admin and super.
type api struct {
	*fakeapi.Server

	mu       sync.Mutex
	requests []string // METHOD path, of every request
	// faults are used up by a method's requests, in order.
	faults map[string][]fakeapi.Fault
	// hook is asked first.
	hook func(r *http.Request, user string) fakeapi.Fault
}

func answers(code int, header, body string) fakeapi.Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// cutsAnswer executes the request, but sends only half of the answer.
func cutsAnswer(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	rec := httptest.NewRecorder()
	serve(rec, r)
	w.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	panic(http.ErrAbortHandler)
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{Server: fakeapi.New(nil), faults: map[string][]fakeapi.Fault{}}
	a.Spoil = a.spoil
	t.Cleanup(a.Close)
	return a
}

func (a *api) spoil(r *http.Request) fakeapi.Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	if a.hook != nil {
		if fault := a.hook(r, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")); fault != nil {
			return fault
		}
	}
	queue := a.faults[r.Method]
	if len(queue) == 0 {
		return nil
	}
	a.faults[r.Method] = queue[1:]
	return queue[0]
}

// put stores an object in the server, as if another client had written it.
func (a *api) put(t *testing.T, obj Object) {
	t.Helper()
	w, err := want(obj)
	if err != nil {
		t.Fatal(err)
	}
	a.Put(pathOf(w.ref), w.fields)
}

func pathOf(r ref) string {
	if r.kind.namespaced {
		return r.kind.root() + "/namespaces/" + r.namespace + "/" + r.kind.plural + "/" + r.name
	}
	return r.kind.root() + "/" + r.kind.plural + "/" + r.name
}

func (a *api) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func (a *api) written() int { return len(a.Writes()) }

// kubeconfig writes a kubeconfig for a user of the server.
func (a *api) kubeconfig(t *testing.T, user string) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return writeKubeconfig(t, user, a.URL, ca)
}

func writeKubeconfig(t *testing.T, user, server string, ca []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), user+".conf")
	encodedCA, _ := json.Marshal(ca)
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "k", "cluster": {"server": %q, "certificate-authority-data": %s}}],
"users": [{"name": "u", "user": {"token": %q}}],
"contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`, server, encodedCA, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// client connects to the server as both users.
func (a *api) client(t *testing.T) *Real {
	t.Helper()
	r := New(Options{
		Kubeconfig: a.kubeconfig(t, "admin"),
		SuperAdmin: a.kubeconfig(t, "super"),
		ReadFile:   os.ReadFile,
		Timeout:    time.Minute,
	})
	c, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Client.CloseIdleConnections)
	return r
}

// impatient is client for tests with fakeapi.Hang: it soon asks again, on a busy machine even before an answer that would have
// come.
func (a *api) impatient(t *testing.T) *Real {
	t.Helper()
	r := a.client(t)
	c, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	c.answerTimeout = 400 * time.Millisecond
	return r
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Data:       data,
	}
}
