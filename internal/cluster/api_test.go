// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
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

	"go.uber.org/goleak"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// quiet takes what net/http says about connections that are broken on purpose.
var quiet = log.New(io.Discard, "", 0)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is an HTTPS server that speaks as much of the Kubernetes API as the
// tests need, keeps objects in memory, and fails in the ways that a real one
// cannot be asked to. Users are told apart by token: admin and super.
type api struct {
	*httptest.Server

	mu       sync.Mutex
	objects  map[string]map[string]any // by path
	version  int
	requests []string // METHOD path, of every request
	writes   int      // that changed something
	// faults are used up by the requests of a method, in order.
	faults map[string][]fault
	// hook runs first, with the lock held, and may answer instead.
	hook func(w http.ResponseWriter, r *http.Request, user string) (answered bool)
}

// fault answers in place of the server, or spoils its answer.
type fault func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc)

func answers(code int, header, body string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func conflicts(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	sendError(w, apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "x", fmt.Errorf("modified meanwhile")))
}

func hangs(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) { <-r.Context().Done() }

func resets(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) }

// losesAnswer does what was asked, and breaks the connection.
func losesAnswer(_ http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	serve(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// cutsAnswer does what was asked, and sends half of the answer.
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
	a := &api{objects: map[string]map[string]any{}, faults: map[string][]fault{}}
	for _, ns := range []string{"kube-system", "kube-public"} {
		a.objects["/api/v1/namespaces/"+ns] = map[string]any{}
	}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.EnableHTTP2 = true
	a.Config.ErrorLog = quiet
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	a.mu.Lock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	answered := a.hook != nil && a.hook(w, r, user)
	var spoil fault
	if queue := a.faults[r.Method]; !answered && len(queue) > 0 {
		spoil, a.faults[r.Method] = queue[0], queue[1:]
	}
	a.mu.Unlock()
	switch {
	case answered:
	case spoil != nil:
		spoil(w, r, a.store)
	default:
		a.store(w, r)
	}
}

// store is the server without faults.
func (a *api) store(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	_, known := a.objects[r.URL.Path]
	resource := schema.GroupResource{Resource: filepath.Base(filepath.Dir(r.URL.Path))}
	switch {
	case r.URL.Path == "/readyz":
		_, _ = io.WriteString(w, "ok")
	case r.Method == http.MethodPost:
		a.create(w, r.URL.Path, body)
	case r.Method == http.MethodGet && r.URL.Query().Has("fieldSelector"):
		a.list(w, r.URL.Path, strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "type="))
	case !known:
		sendError(w, apierrors.NewNotFound(resource, filepath.Base(r.URL.Path)))
	case r.Method == http.MethodGet:
		send(w, 200, a.objects[r.URL.Path])
	case r.Method == http.MethodPut:
		a.replace(w, r.URL.Path, body)
	case r.Method == http.MethodPatch:
		live, _ := json.Marshal(a.objects[r.URL.Path])
		merged, err := jsonpatch.MergePatch(live, body)
		if err != nil {
			panic(err)
		}
		a.replace(w, r.URL.Path, merged)
	case r.Method == http.MethodDelete:
		delete(a.objects, r.URL.Path)
		a.writes++
		send(w, 200, map[string]any{"kind": "Status", "status": "Success"})
	}
}

func (a *api) create(w http.ResponseWriter, collection string, body []byte) {
	obj := decode(body)
	name := obj["metadata"].(map[string]any)["name"].(string)
	namespace := filepath.Dir(collection)
	if filepath.Base(filepath.Dir(namespace)) == "namespaces" && a.objects[namespace] == nil {
		sendError(w, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, filepath.Base(namespace)))
		return
	}
	if a.objects[collection+"/"+name] != nil {
		sendError(w, apierrors.NewAlreadyExists(schema.GroupResource{Resource: filepath.Base(collection)}, name))
		return
	}
	a.keep(collection+"/"+name, obj)
	send(w, 201, obj)
}

func (a *api) replace(w http.ResponseWriter, path string, body []byte) {
	obj := decode(body)
	want, _ := obj["metadata"].(map[string]any)["resourceVersion"].(string)
	if have := a.objects[path]["metadata"].(map[string]any)["resourceVersion"]; want != "" && want != have {
		sendError(w, apierrors.NewConflict(schema.GroupResource{Resource: "things"}, filepath.Base(path), fmt.Errorf("modified")))
		return
	}
	a.keep(path, obj)
	send(w, 200, obj)
}

func (a *api) list(w http.ResponseWriter, collection, typ string) {
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		if filepath.Dir(path) == collection && a.objects[path]["type"] == typ {
			items = append(items, a.objects[path])
		}
	}
	send(w, 200, map[string]any{"kind": "SecretList", "apiVersion": "v1", "items": items})
}

// keep stores an object with what a server fills in.
func (a *api) keep(path string, obj map[string]any) {
	a.version++
	a.writes++
	meta := obj["metadata"].(map[string]any)
	meta["resourceVersion"], meta["uid"] = strconv.Itoa(a.version), "uid-"+path
	meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	a.objects[path] = obj
}

// put makes the server hold an object, as if somebody else had written it.
func (a *api) put(t *testing.T, obj Object) {
	t.Helper()
	w, err := want(obj)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep(w.path(), w.fields)
	a.writes--
}

func (a *api) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func (a *api) written() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes
}

func decode(data []byte) map[string]any {
	var obj map[string]any
	if err := json.Unmarshal(data, &obj); err != nil {
		panic(err)
	}
	return obj
}

func send(w http.ResponseWriter, code int, obj any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(obj); err != nil {
		panic(err)
	}
}

func sendError(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	send(w, int(status.Code), status)
}

func forbid(w http.ResponseWriter) {
	sendError(w, apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", fmt.Errorf("no rule allows it")))
}

// kubeconfig writes one for a user of the server.
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

// client connects to the server as both users, with limits that suit a test.
func (a *api) client(t *testing.T) *Real {
	t.Helper()
	r := New(Options{
		Kubeconfig: a.kubeconfig(t, "admin"),
		SuperAdmin: a.kubeconfig(t, "super"),
		ReadFile:   os.ReadFile,
		Timeout:    20 * time.Second,
	})
	c, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	c.answerTime = 400 * time.Millisecond
	t.Cleanup(c.client.CloseIdleConnections)
	return r
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Data:       data,
	}
}
