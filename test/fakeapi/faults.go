// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Fault answers in place of the server, or spoils the answer that serve would give.
type Fault func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc)

var errModified = errors.New("the object has been modified")

// Forbidden answers 403.
func Forbidden(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
	refuse(w, apierrors.NewForbidden(resource(r.URL.Path), "", errors.New("no rule allows it")))
}

// Conflict answers 409.
func Conflict(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
	refuse(w, apierrors.NewConflict(resource(r.URL.Path), "", errModified))
}

// TooMany answers 429, and asks for a retry after a second.
func TooMany(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	w.Header().Set("Retry-After", "1")
	refuse(w, apierrors.NewTooManyRequestsError("too many requests"))
}

// Trouble answers 500.
func Trouble(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	refuse(w, apierrors.NewInternalError(errors.New("etcdserver: leader changed")))
}

// Hang doesn't answer until the client gives up.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) { <-r.Context().Done() }

// Reset breaks the connection.
func Reset(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) }

// LoseAnswer handles the request, and then breaks the connection.
func LoseAnswer(_ http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	serve(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// Refuse answers with an API error.
func Refuse(err *apierrors.StatusError) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) { refuse(w, err) }
}

func send(w http.ResponseWriter, code int, obj any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(obj) // the client may be gone
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	send(w, int(status.Code), status)
}
