// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/slipway-k8s/slipway/internal/retry"
)

// ensure makes sure the API has w. It tries to create it first, because a new cluster lacks most objects. If an answer is lost,
// the next try finds the object and compares it. The definition of w's kind may not be established yet, so ensure waits for it,
// up to settleTimeout.
func (c *conn) ensure(ctx context.Context, p retry.Policy, w wanted) error {
	exists, defined := false, time.Now().Add(settleTimeout)
	err := p.Do(ctx, func(ctx context.Context) error {
		w, known, err := c.located(ctx, w)
		if err != nil {
			return err
		}
		if !known {
			err = errors.Errorf("create %s: %s", w.ref, noKind(w.kind.name, w.kind.apiVersion))
			if time.Now().Before(defined) {
				err = notYetError{err}
			}
			return err
		}
		var refused error
		if !exists {
			// A Service with a fixed address is invalid if it exists: the address is taken, by the Service itself.
			refused = c.create(ctx, w)
			if !apierrors.IsAlreadyExists(refused) && !apierrors.IsInvalid(refused) {
				return refused
			}
		}
		exists, err = c.update(ctx, w)
		switch {
		case err != nil || exists:
			return err
		case apierrors.IsInvalid(refused):
			return refused
		}
		return notYetError{errors.Errorf("update %s: something else deletes it at the same time", w.ref)}
	})
	return c.advise(err)
}

func (c *conn) createMissing(ctx context.Context, p retry.Policy, w wanted) error {
	err := p.Do(ctx, func(ctx context.Context) error {
		err := c.create(ctx, w)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	return c.advise(err)
}

func (c *conn) create(ctx context.Context, w wanted) error {
	err := c.send(ctx, c.at(http.MethodPost, w.kind, w.namespace), runtime.ContentTypeJSON, w.fields)
	return errors.Wrapf(err, "create %s", w.ref)
}

// update changes an existing object once, if it differs from w.
func (c *conn) update(ctx context.Context, w wanted) (exists bool, err error) {
	live, exists, err := c.get(ctx, w.ref)
	if err != nil || !exists {
		return exists, err
	}
	update, err := change(w, live)
	if err != nil || update == nil {
		return true, err
	}
	return true, c.replace(ctx, w.ref, update)
}

// replace writes an object with the resource version it had when it was read, so that no other write is lost.
func (c *conn) replace(ctx context.Context, r ref, object any) error {
	err := c.send(ctx, c.object(http.MethodPut, r), runtime.ContentTypeJSON, object)
	if isNotFound(err) {
		err = notYetError{err}
	}
	return errors.Wrapf(err, "update %s", r)
}

func (c *conn) get(ctx context.Context, r ref) (fields map[string]any, found bool, err error) {
	data, found, err := c.read(ctx, r)
	if err != nil || !found {
		return nil, false, err
	}
	err = json.Unmarshal(data, &fields)
	return fields, true, errors.Wrapf(err, "get %s: decode the answer", r)
}

// fill replaces the whole content of obj.
func (c *conn) fill(ctx context.Context, obj Object) (found bool, err error) {
	what, err := refOf(obj)
	if err != nil {
		return false, err
	}
	data, found, err := c.read(ctx, what)
	if err != nil || !found {
		return false, err
	}
	reflect.ValueOf(obj).Elem().SetZero()
	return true, errors.Wrapf(json.Unmarshal(data, obj), "get %s: decode the answer", what)
}

func (c *conn) read(ctx context.Context, r ref) (data []byte, found bool, err error) {
	data, err = c.do(ctx, c.object(http.MethodGet, r))
	if isNotFound(err) {
		return nil, false, nil
	}
	return data, err == nil, errors.Wrapf(err, "get %s", r)
}

// selection is the v1 objects of a kind whose fields or labels have a value. With an empty value, it's all of them.
type selection struct{ kind, namespace, by, value string }

const (
	byFields = "fieldSelector"
	byLabels = "labelSelector"
)

// list fills answer with a selection of objects.
func (c *conn) list(ctx context.Context, of selection, answer any) error {
	k, err := kindOf("v1", of.kind)
	if err != nil {
		return err
	}
	data, err := c.do(ctx, c.at(http.MethodGet, k, of.namespace).Param(of.by, of.value))
	if err == nil {
		err = errors.Wrap(json.Unmarshal(data, answer), "decode the answer")
	}
	where := ""
	if of.value != "" {
		where = " where " + of.value
	}
	return errors.Wrapf(err, "list %ss%s", path.Join(of.namespace, of.kind), where)
}

// remove deletes an object once. A missing object isn't an error.
func (c *conn) remove(ctx context.Context, r ref) error {
	_, err := c.do(ctx, c.object(http.MethodDelete, r))
	if isNotFound(err) {
		return nil
	}
	return errors.Wrapf(err, "delete %s", r)
}

// located returns w with its kind's place in the API. found is false if the API doesn't have the kind (yet): its definition may
// not be established yet. Only users' manifests have kinds missing from the table.
func (c *conn) located(ctx context.Context, w wanted) (_ wanted, found bool, err error) {
	if w.kind.plural != "" {
		return w, true, nil
	}
	data, err := c.do(ctx, c.client.Get().AbsPath(w.kind.root()))
	if apierrors.IsNotFound(err) { // in plain text: the server doesn't know the group
		return w, false, nil
	}
	var list metav1.APIResourceList
	if err == nil {
		err = errors.Wrap(json.Unmarshal(data, &list), "decode the answer")
	}
	if err != nil {
		return w, false, errors.Wrapf(err, "list the kinds of %s", w.kind.apiVersion)
	}
	for _, r := range list.APIResources {
		if r.Kind == w.kind.name && !strings.Contains(r.Name, "/") {
			w.kind.plural, w.kind.namespaced = r.Name, r.Namespaced
			w.ref = w.settled()
			return w.in(w.namespace), true, nil
		}
	}
	return w, false, nil
}

// Query is a GET request.
type Query struct {
	// Path is an API path, such as /metrics or /api/v1/pods; Params are its parameters.
	Path   string
	Params url.Values
	Accept string // the answer's media type; empty means JSON
	// Server, host:port, is the API server to ask; empty for the usual one. Its certificate must be valid for host.
	Server string
}

// MetadataList is the media type of a list with nothing but the objects' metadata.
const MetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

func (r *Real) Read(ctx context.Context, q Query, take func(io.Reader) error) error {
	c, err := r.connect()
	if err == nil && q.Server != "" {
		if c, err = r.dialAt(q.Server); err == nil {
			defer c.client.Client.CloseIdleConnections() // asked once
		}
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	err = defaultPolicy().Do(ctx, func(ctx context.Context) error { return c.stream(ctx, q, take) })
	return errors.WithMessagef(c.advise(err), "get %s", q.Path)
}

// stream makes the request once. If take can't read the answer, asking again wouldn't help.
func (c *conn) stream(ctx context.Context, q Query, take func(io.Reader) error) error {
	request := c.client.Get().AbsPath(q.Path)
	for name, values := range q.Params {
		for _, value := range values {
			request.Param(name, value)
		}
	}
	if q.Accept == "" {
		q.Accept = "application/json"
	}
	limited, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	body, err := request.SetHeader("Accept", q.Accept).MaxRetries(0).Stream(limited)
	if _, answered := statusOf(err); answered {
		return err
	}
	if err != nil {
		return noAnswerError{err}
	}
	defer body.Close()
	return take(body)
}
