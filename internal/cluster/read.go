// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"net/url"

	"github.com/pkg/errors"
)

type Query struct {
	// Path is an API path, such as /metrics or /api/v1/pods; Params are its parameters.
	Path   string
	Params url.Values
	Accept string // the answer's media type; empty means JSON
}

// MetadataList is the media type of a list with nothing but the objects' metadata.
const MetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

func (r *Real) Read(ctx context.Context, q Query, take func(io.Reader) error) error {
	c, err := r.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	err = usual().Do(ctx, func(ctx context.Context) error { return c.stream(ctx, q, take) })
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
	limited, cancel := context.WithTimeout(ctx, c.answerTime)
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
