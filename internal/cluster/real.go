// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"sort"
	"sync"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/retry"
)

// Options say how to reach the API, and as whom.
type Options struct {
	Kubeconfig string // the path of admin.conf, or of the user's replacement
	// SuperAdmin is the path of super-admin.conf. The file may be missing.
	SuperAdmin string
	// ReadFile reads both on first use: earlier phases write them. A missing file is fs.ErrNotExist.
	ReadFile func(path string) ([]byte, error)
	// Endpoint, host:port, replaces the kubeconfig's server; empty means no replacement. It's for this node's own API server,
	// which answers before a load balancer sends it anything. Its certificate must be valid for host.
	Endpoint string
	// ServerName is another name that its certificate must be valid for, instead: that of a host whose address has changed.
	ServerName string
	// Timeout bounds one call, including all of its tries (the configuration's timeouts.kubernetesAPICall). Ready, MarkNode and
	// AwaitReport wait until their context's deadline; Timeout is their limit only if there's none.
	Timeout time.Duration
}

// Real is a real cluster's API. It connects on first use. Its methods may be called in parallel.
type Real struct {
	options Options

	mu    sync.Mutex
	admin *conn

	adminMu   sync.Mutex // held while EnsureAdmin works
	adminDone bool
}

var _ Cluster = (*Real)(nil)

// New reads and sends nothing yet.
func New(o Options) *Real { return &Real{options: o} }

// sideBySide is how many objects are written at a time. The API server's flow control gives a client about as many seats.
const sideBySide = 8

// settleTimeout is how long a seemingly final error may last while a cluster starts: its authorizer loads its first rules, and an
// earlier API server still holds the port.
const settleTimeout = 10 * time.Second

func (r *Real) connect() (*conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admin == nil {
		c, err := r.dial(r.options.Kubeconfig)
		if err != nil {
			return nil, err
		}
		r.admin = c
	}
	return r.admin, nil
}

func (r *Real) dial(path string) (*conn, error) {
	data, err := r.options.ReadFile(path)
	if err != nil {
		return nil, errors.Wrapf(err, "read kubeconfig %s", path)
	}
	return dial(path, data, r.options.Endpoint, r.options.ServerName)
}

// dialAt leads to a certain API server, as the administrator.
func (r *Real) dialAt(endpoint string) (*conn, error) {
	other := Real{options: r.options}
	other.options.Endpoint = endpoint
	return other.dial(other.options.Kubeconfig)
}

// Ready retries every error a starting API server may return. A seemingly final error ends the wait only if it lasts.
func (r *Real) Ready(ctx context.Context) error {
	c, err := r.connect()
	if err != nil {
		return err
	}
	ctx, cancel := r.orTimeout(ctx)
	defer cancel()
	err = untilSettled(policy(pollDelay), settleTimeout).Do(ctx, func(ctx context.Context) error {
		_, err := c.do(ctx, c.client.Get().AbsPath("/readyz").Param("verbose", ""))
		return errors.Wrapf(err, "the API server at %s is not ready", c.host)
	})
	return c.advise(err)
}

// orTimeout keeps a context's own deadline.
func (r *Real) orTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.options.Timeout)
}

// Ensure stops the other writes at the first final error.
func (r *Real) Ensure(ctx context.Context, objs ...Object) error {
	return r.each(ctx, r.connect, objs, func(ctx context.Context, c *conn, _ int, w wanted) error { return c.ensure(ctx, defaultPolicy(), w) })
}

func (r *Real) Precreate(ctx context.Context, objs ...Object) error {
	super, err := r.dial(r.options.SuperAdmin)
	if err != nil {
		return err
	}
	defer super.client.Client.CloseIdleConnections() // not needed again
	connect := func() (*conn, error) { return super, nil }
	return r.each(ctx, connect, objs, func(ctx context.Context, c *conn, _ int, w wanted) error {
		return c.createMissing(ctx, defaultPolicy(), w)
	})
}

// each calls op for the objects, in parallel, within one budget. If one of them is invalid, it doesn't even connect.
func (r *Real) each(ctx context.Context, connect func() (*conn, error), objs []Object, op func(ctx context.Context, c *conn, i int, w wanted) error) error {
	wants := make([]wanted, len(objs))
	for i, obj := range objs {
		var err error
		if wants[i], err = want(obj); err != nil {
			return err
		}
	}
	c, err := connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sideBySide)
	for i, w := range wants {
		group.Go(func() error { return op(ctx, c, i, w) })
	}
	return group.Wait()
}

func (r *Real) EnsureAbsent(ctx context.Context, obj Object) error {
	what, err := refOf(obj)
	if err != nil {
		return err
	}
	return r.call(ctx, func(ctx context.Context, c *conn) error { return c.remove(ctx, what) })
}

// Get replaces the whole content of obj.
func (r *Real) Get(ctx context.Context, obj Object) (found bool, err error) {
	err = r.call(ctx, func(ctx context.Context, c *conn) error {
		found, err = c.fill(ctx, obj)
		return err
	})
	return found, err
}

// Update writes with the resource version it read: if another client writes in between, that's a conflict, and it reads again.
func (r *Real) Update(ctx context.Context, obj Object, change func() (changed bool, err error)) (found bool, err error) {
	what, err := refOf(obj)
	if err != nil {
		return false, err
	}
	err = r.call(ctx, func(ctx context.Context, c *conn) error {
		if found, err = c.fill(ctx, obj); err != nil || !found {
			return err
		}
		changed, err := change()
		if err != nil || !changed {
			return errors.Wrapf(err, "update %s", what)
		}
		return c.replace(ctx, what, obj)
	})
	return found, err
}

func (r *Real) Secrets(ctx context.Context, namespace, fieldSelector string) ([]corev1.Secret, error) {
	var list corev1.SecretList
	err := r.list(ctx, selection{"Secret", namespace, byFields, fieldSelector}, &list)
	return list.Items, err
}

// Rewrite sends an empty patch. The API server compares what it has read with the key it would write with, and writes if that differs.
func (r *Real) Rewrite(ctx context.Context, namespace, name string) error {
	k, err := kindOf("v1", "Secret")
	if err != nil {
		return err
	}
	what := ref{k, namespace, name}
	return r.call(ctx, func(ctx context.Context, c *conn) error {
		err := c.send(ctx, c.object(http.MethodPatch, what), string(types.MergePatchType), map[string]any{})
		if isNotFound(err) {
			return nil
		}
		return errors.Wrapf(err, "rewrite %s", what)
	})
}

func (r *Real) Pods(ctx context.Context, namespace, labelSelector string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.list(ctx, selection{"Pod", namespace, byLabels, labelSelector}, &list)
	return list.Items, err
}

func (r *Real) PodsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.list(ctx, podsOn(node), &list)
	return list.Items, err
}

func podsOn(node string) selection {
	return selection{"Pod", metav1.NamespaceAll, byFields, fields.OneTermEqualSelector("spec.nodeName", node).String()}
}

func (r *Real) Nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := r.list(ctx, selection{"Node", "", byLabels, ""}, &list)
	sort.SliceStable(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name }) // without copying Nodes
	return list.Items, err
}

func (r *Real) list(ctx context.Context, of selection, answer any) error {
	return r.call(ctx, func(ctx context.Context, c *conn) error { return c.list(ctx, of, answer) })
}

// call runs op with the administrator's connection, within one budget.
func (r *Real) call(ctx context.Context, op func(context.Context, *conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	return r.wait(ctx, defaultPolicy(), op)
}

// wait runs op with the administrator's connection until ctx's deadline.
func (r *Real) wait(ctx context.Context, p retry.Policy, op func(context.Context, *conn) error) error {
	c, err := r.connect()
	if err != nil {
		return err
	}
	ctx, cancel := r.orTimeout(ctx)
	defer cancel()
	confirm := c.confirmForbidden()
	return c.advise(p.Do(ctx, func(ctx context.Context) error { return confirm(ctx, op(ctx, c)) }))
}

// confirmForbidden returns a function that treats a 403 as passing until the server is ready and says it twice: a starting server
// forbids everything, even the question whether it's ready, until it has loaded its authorization rules. A user may permanently
// lack the right to ask, so startTimeout is the limit.
func (c *conn) confirmForbidden() func(context.Context, error) error {
	var since time.Time // of the first of several in a row: the server may restart while a call waits
	confirmed := false
	return func(ctx context.Context, err error) error {
		if !apierrors.IsForbidden(err) {
			since, confirmed = time.Time{}, false
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if confirmed || time.Since(since) > startTimeout {
			return err
		}
		_, notReady := c.do(ctx, c.client.Get().AbsPath("/readyz"))
		confirmed = !isRetryable(notReady) && !apierrors.IsForbidden(notReady)
		return notYetError{err}
	}
}
