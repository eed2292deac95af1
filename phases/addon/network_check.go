// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"path"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// CheckNetwork asks the API whether it accepts the objects of --network FILE, before anything is created.
func CheckNetwork(ctx context.Context, env *step.Env) error {
	addOn := env.Config.NetworkAddOn
	if !addOn.FromFile() {
		return nil
	}
	objs, err := NetworkObjects(env)
	if err != nil {
		return err
	}
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	verdicts, err := env.Cluster.Validate(ctx, objs...)
	if errors.Is(err, cluster.ErrNotInPlan) {
		env.UI.Warnf("not checked in a dry run: whether the API takes the objects of %s", addOn.File())
		return nil
	}
	if err != nil {
		return err
	}
	var refused config.Faults
	for i, v := range verdicts {
		if v.Untold != "" {
			env.UI.Printf("The API cannot tell yet whether it takes %s: %s", objectName(objs[i]), v.Untold)
		}
		refusals, err := refusalsOf(ctx, env, objs[i], v)
		if err != nil {
			return err
		}
		for _, r := range refusals {
			refused = append(refused, faultIn(addOn, i, objs[i], r))
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return fault.WithRemedy(refused, "correct "+addOn.File()+" and run the same command again")
}

// refusalsOf returns no refusals for an existing object, which this run leaves alone.
func refusalsOf(ctx context.Context, env *step.Env, obj manifests.Object, v cluster.Verdict) ([]cluster.Refusal, error) {
	if !env.Again || len(v.Refusals) == 0 {
		return v.Refusals, nil
	}
	d, err := env.Cluster.Compare(ctx, obj)
	if err != nil || d.Change != cluster.Create {
		return nil, err
	}
	return v.Refusals, nil
}

func objectName(obj manifests.Object) string {
	return obj.GetObjectKind().GroupVersionKind().Kind + " " + path.Join(obj.GetNamespace(), obj.GetName())
}

// faultIn locates a refusal of the manifest's object number i.
func faultIn(addOn config.NetworkAddOn, i int, obj manifests.Object, r cluster.Refusal) config.Fault {
	f := config.Fault{File: addOn.File(), Field: objectName(obj), Message: r.Message}
	if r.Field != "" {
		f.Message = r.Field + ": " + r.Message
	}
	if i < len(addOn.Objects) {
		f.Line = addOn.Objects[i].LineOf(r.Field)
	}
	return f
}
