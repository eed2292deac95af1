// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/slipway-k8s/slipway/internal/retry"
)

// ensure makes sure the API has w. It tries to create it first, because a new cluster lacks most objects. If an answer is lost,
// the next try finds the object and compares it.
func (c *conn) ensure(ctx context.Context, p retry.Policy, w wanted) error {
	exists := false
	err := p.Do(ctx, func(ctx context.Context) error {
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
			return notYetError{errors.Errorf("update %s: something else deletes it at the same time", w.ref)}
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

// mayExist reports whether a creation may have failed because the object exists. A Service with a fixed address, for example, is
// invalid then: the address is taken, by the Service itself.
func mayExist(refused error) bool {
	return apierrors.IsAlreadyExists(refused) || apierrors.IsInvalid(refused)
}

func (c *conn) create(ctx context.Context, w wanted) error {
	err := c.send(ctx, c.at(http.MethodPost, w.kind, w.namespace), runtime.ContentTypeJSON, w.fields)
	return errors.Wrapf(err, "create %s", w.ref)
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

func (c *conn) read(ctx context.Context, r ref) (data []byte, found bool, err error) {
	data, err = c.do(ctx, c.object(http.MethodGet, r))
	if isNotFound(err) {
		return nil, false, nil
	}
	return data, err == nil, errors.Wrapf(err, "get %s", r)
}

// remove deletes an object once. A missing object isn't an error.
func (c *conn) remove(ctx context.Context, r ref) error {
	_, err := c.do(ctx, c.object(http.MethodDelete, r))
	if isNotFound(err) {
		return nil
	}
	return errors.Wrapf(err, "delete %s", r)
}
