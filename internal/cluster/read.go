// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"io"
	"net/url"

	"github.com/pkg/errors"
)

// Limits for answers, in bytes. A kubelet's passes through the API server, so any worker can make it as large as it likes.
const (
	// LargestKubelet is more than a kubelet with thousands of Pods answers.
	LargestKubelet = 32 << 20
	// LargestList is more than a list of the API server, all in one page, has in a cluster with thousands of nodes.
	LargestList = 512 << 20
)

// KubeletPath is the path at which the API server passes a request on to a node's kubelet, such as stats/summary.
func KubeletPath(node, sub string) string {
	return "/api/v1/nodes/" + url.PathEscape(node) + "/proxy/" + sub
}

// ReadJSON decodes an answer, and refuses one with more than limit bytes.
func ReadJSON(ctx context.Context, c Cluster, q Query, limit int64, into any) error {
	return c.Read(ctx, q, Within(limit, func(r io.Reader) error {
		return errors.Wrap(json.NewDecoder(r).Decode(into), "decode the answer")
	}))
}

// Within limits how much of an answer take reads. Beyond limit bytes, it gets an error.
func Within(limit int64, take func(io.Reader) error) func(io.Reader) error {
	return func(r io.Reader) error { return take(&bounded{io.LimitedReader{R: r, N: limit + 1}, limit}) }
}

type bounded struct {
	io.LimitedReader
	limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if b.N <= 0 {
		return max(0, n-1), errors.Errorf("the answer has more than %d bytes", b.limit)
	}
	return n, err
}
