// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"strings"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Verdict is the API's opinion of an object in advance.
type Verdict struct {
	Refusals      []Refusal // the object's faults; none if the API accepts it, or can't tell
	UnknownReason string    // why the API can't tell: for example, another object defines the kind
}

type Refusal struct {
	Field   string // the fault's path, as far as the API names it
	Message string
}

// ErrNotInPlan is the error of a plan, which sends nothing.
var ErrNotInPlan = errors.New("a plan does not ask the API")

func (p *Plan) Validate(context.Context, ...Object) ([]Verdict, error) { return nil, ErrNotInPlan }

// Validate uses the server's dry runs.
func (r *Real) Validate(ctx context.Context, objs ...Object) ([]Verdict, error) {
	verdicts, defined := make([]Verdict, len(objs)), definedKinds(objs)
	return verdicts, r.each(ctx, r.connect, objs, func(ctx context.Context, c *conn, i int, w wanted) error {
		try := *c
		try.validating = true
		err := defaultPolicy().Do(ctx, func(ctx context.Context) (err error) {
			verdicts[i], err = try.validate(ctx, w, defined)
			return err
		})
		return c.advise(errors.WithMessagef(err, "check %s", w.ref))
	})
}

// definedKinds are the kinds defined by the objects themselves, as GROUP/KIND.
func definedKinds(objs []Object) map[string]bool {
	defined := map[string]bool{}
	for _, obj := range objs {
		if u, ok := obj.(*unstructured.Unstructured); ok && u.GetKind() == "CustomResourceDefinition" {
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			name, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			defined[group+"/"+name] = true
		}
	}
	return defined
}

// validate asks c, which makes dry runs, about an object once. If its namespace doesn't exist, it tries the default one: the
// verdict is about the object's own fields.
func (c *conn) validate(ctx context.Context, w wanted, defined map[string]bool) (Verdict, error) {
	group, _, grouped := strings.Cut(w.kind.apiVersion, "/")
	there, found, err := c.located(ctx, w)
	switch {
	case err != nil:
		return verdict(err)
	case !found && defined[group+"/"+w.kind.name]:
		return Verdict{UnknownReason: "its kind is defined at the same time"}, nil
	case !found && (!grouped || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")):
		return refused("apiVersion", noKind(w.kind.name, w.kind.apiVersion)), nil
	case !found:
		return Verdict{UnknownReason: noKind(w.kind.name, w.kind.apiVersion) + " yet"}, nil
	}
	// An existing Service with a fixed address or port can't be created again: the Service itself has taken them.
	exists, err := c.update(ctx, there)
	if err == nil && !exists {
		err = c.create(ctx, there)
	}
	if status, ok := statusOf(err); ok && namespaceMissing(status) && there.namespace != metav1.NamespaceDefault {
		err = c.create(ctx, there.in(metav1.NamespaceDefault))
	}
	return verdict(err)
}

// verdict interprets the API's answer. It returns the error if there was no answer.
func verdict(err error) (Verdict, error) {
	status, answered := statusOf(err)
	var lost noAnswerError
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // the server finds that out after it has checked the fields
		return Verdict{}, nil
	case isRetryable(err), errors.As(err, &lost), apierrors.IsUnauthorized(err):
		return Verdict{}, err
	case !answered: // the server has the kind elsewhere
		return refused("", err.Error()), nil
	case strings.Contains(status.Message, "does not support dry run"): // a webhook
		return Verdict{UnknownReason: status.Message}, nil
	case status.Code != http.StatusBadRequest && status.Code != http.StatusUnprocessableEntity:
		return Verdict{UnknownReason: status.Message}, nil
	case status.Details == nil || len(status.Details.Causes) == 0:
		return refused("", status.Message), nil
	}
	var v Verdict
	for _, cause := range status.Details.Causes {
		v.Refusals = append(v.Refusals, Refusal{cause.Field, cause.Message})
	}
	return v, nil
}

func refused(field, message string) Verdict { return Verdict{Refusals: []Refusal{{field, message}}} }

func noKind(name, apiVersion string) string {
	return "the cluster has no kind " + name + " of " + apiVersion
}
