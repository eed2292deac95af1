// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/json"
)

const (
	contentJSON       = "application/json"
	contentMergePatch = "application/merge-patch+json" // RFC 7396
)

// ensure makes the API hold w. A cluster that is being made lacks most
// objects, so it tries to create first. When an answer is lost, the next try
// finds the object and compares it.
func (c *conn) ensure(ctx context.Context, p policy, w wanted) error {
	exists := false
	err := retry(ctx, p, func(ctx context.Context) error {
		var refused error
		if !exists {
			refused = c.create(ctx, w)
			if !mayExist(refused) {
				return refused
			}
		}
		live, found, err := c.get(ctx, w.ref)
		switch {
		case err != nil:
			return err
		case !found && apierrors.IsInvalid(refused):
			return refused
		case !found:
			exists = false
			return notYetError{errors.Errorf("update %s: somebody deletes it at the same time", w.ref)}
		}
		exists = true
		update, err := change(w, live)
		if err != nil || update == nil {
			return err
		}
		return c.replace(ctx, w.ref, update)
	})
	return c.advise(err)
}

// mayExist tells whether a refused creation can be due to the object's being
// there. A Service with a fixed address, for one, is then refused as invalid:
// its address is taken, by itself.
func mayExist(refused error) bool {
	return apierrors.IsAlreadyExists(refused) || apierrors.IsInvalid(refused)
}

func (c *conn) create(ctx context.Context, w wanted) error {
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: w.kind.collection(w.namespace), contentType: contentJSON, body: w.fields,
	})
	return errors.Wrapf(err, "create %s", w.ref)
}

// replace writes an object that was read before. It carries the resource
// version that it was read with, so that nobody's write is lost.
func (c *conn) replace(ctx context.Context, r ref, object any) error {
	_, err := c.do(ctx, request{method: http.MethodPut, path: r.path(), contentType: contentJSON, body: object})
	if isNotFound(err) {
		err = notYetError{err}
	}
	return errors.Wrapf(err, "update %s", r)
}

// get reads an object once.
func (c *conn) get(ctx context.Context, r ref) (fields map[string]any, found bool, err error) {
	data, found, err := c.read(ctx, r)
	if err != nil || !found {
		return nil, false, err
	}
	err = json.Unmarshal(data, &fields)
	return fields, true, errors.Wrapf(err, "get %s: decode the answer", r)
}

func (c *conn) read(ctx context.Context, r ref) (data []byte, found bool, err error) {
	data, err = c.do(ctx, request{method: http.MethodGet, path: r.path()})
	if isNotFound(err) {
		return nil, false, nil
	}
	return data, err == nil, errors.Wrapf(err, "get %s", r)
}

// remove deletes an object once; a missing one is no error.
func (c *conn) remove(ctx context.Context, r ref) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, path: r.path()})
	if isNotFound(err) {
		return nil
	}
	return errors.Wrapf(err, "delete %s", r)
}
