// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/internal/upgrading"
)

// Limits for a plan, which must be fast and not burden a large cluster. If they cut a list short, a finding says so.
const (
	pageSize    = 500  // objects in an answer
	mostObjects = 2000 // of one kind
	mostNodes   = 50   // nodes whose kubelets are asked, control planes' first
	asksAtOnce  = 8    // requests to kubelets, side by side
	// answerTime bounds requests through the API server to kubelets and other API servers, which may be down.
	answerTime = 3 * time.Second
	// largestAnswer is the limit for a kubelet's answer, in bytes.
	largestAnswer = 8 << 20
	// LargestFile is the limit for a configuration file named in a flag, in bytes.
	LargestFile = 1 << 20
)

type page[T any] struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []T             `json:"items"`
}

// list reads objects in pages; left is how many there are beyond mostObjects. A path unknown to the API gives an empty list.
func list[T any](ctx context.Context, api cluster.Cluster, path, accept string) (items []T, left int64, err error) {
	params := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var p page[T]
		err := api.Read(ctx, cluster.Query{Path: path, Params: params, Accept: accept}, decodeInto(&p))
		if apierrors.IsNotFound(err) {
			return items, 0, nil
		}
		if err != nil {
			return items, 0, err
		}
		items = append(items, p.Items...)
		if p.Metadata.Continue == "" {
			return items, 0, nil
		}
		if len(items) >= mostObjects {
			if n := p.Metadata.RemainingItemCount; n != nil {
				return items, *n, nil
			}
			return items, 1, nil
		}
		params.Set("continue", p.Metadata.Continue)
	}
}

// listed is list, with findings for missing objects. what names the objects in messages: "Pods".
func listed[T any](ctx context.Context, c *collector, path, what string) []T {
	items, left, err := list[T](ctx, c.API, path, "")
	c.incomplete(what, path, left, err)
	return items
}

// incomplete reports a list that wasn't read to its end.
func (c *collector) incomplete(what, path string, left int64, err error) {
	switch {
	case err != nil:
		c.gap(what, path, "check the API server and your rights (kubectl auth can-i list), and plan again", "%s were not checked: %v", what, err)
	case left > 0:
		c.gap(what, path, "look at the others yourself", "%s: only the first %d were checked, at least %d were not", what, mostObjects, left)
	}
}

// within limits how much a node can make this program read.
func within(take func(io.Reader) error) func(io.Reader) error {
	return func(r io.Reader) error { return take(io.LimitReader(r, largestAnswer)) }
}

func decodeInto(to any) func(io.Reader) error {
	return func(r io.Reader) error { return errors.Wrap(json.NewDecoder(r).Decode(to), "decode the answer") }
}

// oldestOf returns the minor release of the oldest API server, kubelet or kube-proxy, such as 1.36.
func oldestOf(s *upgrading.State) string {
	texts := []string{s.Oldest(), s.KubeProxy}
	for _, n := range s.Nodes {
		texts = append(texts, n.Kubelet)
	}
	return releases.MinorOf(oldestText(texts))
}

// oldestText returns the oldest version; empty if none is known.
func oldestText(texts []string) string {
	var oldest *version.Version
	text := ""
	for _, t := range texts {
		if v, err := version.ParseSemantic(t); err == nil && (oldest == nil || v.LessThan(oldest)) {
			oldest, text = v, t
		}
	}
	return text
}
