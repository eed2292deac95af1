// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is an HTTPS server that speaks the part of the Kubernetes API needed by Slipway's runs. It keeps objects in
// memory, and can produce faults on demand.
package fakeapi

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Server is the API. New makes it; Close ends it.
type Server struct {
	*httptest.Server
	// Spoil is called for each request, one at a time and in order; if it returns a fault, that answers in place of the server. It
	// may use the server.
	Spoil func(r *http.Request) Fault

	asking  sync.Mutex
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	answers map[string]string         // by path, see Answer
	version int
	writes  []string
}

// New starts a server with the namespaces of a new cluster. With a nil config it uses its own certificate; see Certificate.
func New(config *tls.Config) *Server {
	s := &Server{objects: map[string]map[string]any{}, answers: map[string]string{}}
	for _, ns := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		s.objects["/api/v1/namespaces/"+ns] = map[string]any{"metadata": map[string]any{"name": ns}}
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.TLS = config
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // about connections broken on purpose
	s.StartTLS()
	return s
}

// SpoilFirst makes the server call spoil before the present Spoil.
func (s *Server) SpoilFirst(spoil func(r *http.Request) Fault) {
	s.asking.Lock()
	defer s.asking.Unlock()
	next := s.Spoil
	s.Spoil = func(r *http.Request) Fault {
		if fault := spoil(r); fault != nil || next == nil {
			return fault
		}
		return next(r)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var spoil Fault
	s.asking.Lock()
	if s.Spoil != nil {
		spoil = s.Spoil(r)
	}
	s.asking.Unlock()
	if spoil != nil {
		spoil(w, r, s.answer)
		return
	}
	s.answer(w, r)
}

// answer is the server without faults.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection is gone
	}
	if r.Method == http.MethodPatch {
		r.URL.Path = strings.TrimSuffix(r.URL.Path, "/approval")
	}
	live, known := s.objects[r.URL.Path]
	switch {
	case s.answers[r.URL.Path] != "":
		_, _ = io.WriteString(w, s.answers[r.URL.Path])
	case r.URL.Path == "/readyz":
		_, _ = io.WriteString(w, "ok")
	case r.Method == http.MethodPost && path.Base(r.URL.Path) == "eviction":
		s.evict(w, path.Dir(r.URL.Path), body)
	case r.Method == http.MethodPost:
		s.create(w, r.URL.Path, body, r.URL.Query().Has("dryRun"))
	case r.Method == http.MethodGet && isList(r.URL.Query()):
		s.list(w, r)
	case !known:
		refuse(w, apierrors.NewNotFound(resource(path.Dir(r.URL.Path)), path.Base(r.URL.Path)))
	case r.Method == http.MethodGet:
		send(w, http.StatusOK, live)
	case r.Method == http.MethodPut:
		s.replace(w, r, body)
	case r.Method == http.MethodPatch:
		before, _ := json.Marshal(live)
		merged, err := jsonpatch.MergePatch(before, body)
		if err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		s.replace(w, r, merged)
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
		s.writes = append(s.writes, "DELETE "+r.URL.Path)
		send(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
}

func (s *Server) create(w http.ResponseWriter, collection string, body []byte, dry bool) {
	obj, name, err := decode(body)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	namespace := path.Dir(collection)
	if path.Base(path.Dir(namespace)) == "namespaces" && s.objects["/api/v1/namespaces/"+path.Base(namespace)] == nil {
		refuse(w, apierrors.NewNotFound(resource("namespaces"), path.Base(namespace)))
		return
	}
	at := collection + "/" + name
	if s.objects[at] != nil {
		refuse(w, apierrors.NewAlreadyExists(resource(collection), name))
		return
	}
	if !dry {
		s.keep(at, obj)
		s.writes = append(s.writes, "POST "+at)
	}
	send(w, http.StatusCreated, obj)
}

func (s *Server) replace(w http.ResponseWriter, r *http.Request, body []byte) {
	at := r.URL.Path
	obj, name, err := decode(body)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	want, _ := obj["metadata"].(map[string]any)["resourceVersion"].(string)
	if have := s.objects[at]["metadata"].(map[string]any)["resourceVersion"]; want != "" && want != have {
		refuse(w, apierrors.NewConflict(resource(path.Dir(at)), name, errModified))
		return
	}
	if live := s.objects[at]; live["immutable"] == true && !reflect.DeepEqual(live["data"], obj["data"]) {
		forbidden := field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set")
		refuse(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, name, field.ErrorList{forbidden}))
		return
	}
	if !r.URL.Query().Has("dryRun") {
		s.keep(at, obj)
		s.writes = append(s.writes, r.Method+" "+at)
	}
	send(w, http.StatusOK, obj)
}

// evict removes a Pod, if it has the eviction's UID.
func (s *Server) evict(w http.ResponseWriter, at string, body []byte) {
	obj, name, err := decode(body)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	wanted, _, _ := unstructured.NestedString(obj, "deleteOptions", "preconditions", "uid")
	live := s.objects[at]
	if live == nil {
		refuse(w, apierrors.NewNotFound(resource("pods"), name))
		return
	}
	if uid := live["metadata"].(map[string]any)["uid"]; wanted != "" && wanted != uid {
		refuse(w, apierrors.NewConflict(resource("pods"), name, fmt.Errorf("the UID is %v, not %s", uid, wanted)))
		return
	}
	delete(s.objects, at)
	s.writes = append(s.writes, "POST "+at+"/eviction")
	send(w, http.StatusCreated, obj)
}

// Answer makes GET requests for a path return a text, for paths without objects, such as /metrics and discovery.
func (s *Server) Answer(at, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[at] = text
}

// keep stores an object with a server's own fields.
func (s *Server) keep(at string, obj map[string]any) {
	s.version++
	meta := obj["metadata"].(map[string]any)
	meta["resourceVersion"], meta["uid"] = strconv.Itoa(s.version), "uid-"+at
	meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	s.objects[at] = obj
}

// Put stores an object, as if somebody else had written it.
func (s *Server) Put(at string, obj any) {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(err)
	}
	fields, _, err := decode(data)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(at, fields)
}

// Remove removes an object, as if somebody else had deleted it.
func (s *Server) Remove(at string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, at)
}

// Has reports whether an object exists.
func (s *Server) Has(at string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[at] != nil
}

// Objects returns copies of all objects, by path, without the server's own fields.
func (s *Server) Objects() map[string]map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s.objects)
	if err != nil {
		panic(err)
	}
	var all map[string]map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		panic(err)
	}
	for _, obj := range all {
		for _, field := range []string{"resourceVersion", "uid", "creationTimestamp"} {
			delete(obj["metadata"].(map[string]any), field)
		}
	}
	return all
}

// Writes returns the requests so far that changed anything, as METHOD PATH; for a creation, PATH is the object's.
func (s *Server) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

func decode(body []byte) (obj map[string]any, name string, err error) {
	if err := json.Unmarshal(body, &obj); err != nil {
		return nil, "", err
	}
	meta, _ := obj["metadata"].(map[string]any)
	name, _ = meta["name"].(string)
	if name == "" {
		return nil, "", errors.New("an object without a name")
	}
	return obj, name, nil
}

func resource(collection string) schema.GroupResource {
	return schema.GroupResource{Resource: path.Base(collection)}
}
