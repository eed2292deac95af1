// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// toWrite returns those of files that this run may write. On a node that was one
// before, what is there stays: Slipway says what differs, once for each file.
// writer is the command that writes them all the same.
func toWrite(env *Env, writer string, files ...file) ([]file, error) {
	if !env.Again {
		return files, nil
	}
	var out []file
	for _, f := range files {
		kept, err := keepFile(env, writer, f)
		if err != nil {
			return nil, err
		}
		if !kept {
			out = append(out, f)
		}
	}
	return out, nil
}

// isNode reports whether this host was a node before, as far as its files say: what is there is what the node runs with,
// no matter who wrote it. A join that came no further than its own files may write these again, with other settings.
func isNode(env *Env) bool { return env.Config.Join == nil || thisnode.WasMember(env.Host, env.Config) }

func keepFile(env *Env, writer string, f file) (kept bool, err error) {
	have, err := host.ReadIfExists(env.Host, f.path)
	if err != nil || have == nil {
		return false, err
	}
	if !isNode(env) && env.Host.Unchanged(f.path) { // an earlier join wrote it, and came no further
		return false, nil
	}
	info, err := env.Host.Stat(f.path)
	if err != nil {
		return false, err
	}
	var differs []string
	if !bytes.Equal(have, f.data) {
		differs = append(differs, lineDifference(have, f.data))
	}
	if mode := info.Mode().Perm(); mode != f.mode {
		differs = append(differs, fmt.Sprintf("mode %04o there, %04o asked for", mode, f.mode))
	}
	if len(differs) > 0 && !assumed(env) {
		ui.SayKept(env.UI, ui.Kept{
			Path: f.path, Summary: strings.Join(differs, "; "), Advice: advice(env, fmt.Sprintf("`slipway %s` writes it", writer)),
			Now: shownFile(have), Ours: shownFile(f.data),
		})
	}
	return true, nil
}

// assumed reports whether a plan goes by a cluster that it has not asked: then
// nothing is known of what this run would write.
func assumed(env *Env) bool { return env.Config.Join != nil && env.Config.Join.Assumed }

// shownFile is a file that an operator may have edited, without secrets.
func shownFile(data []byte) string { return redact.Text(redact.Document(string(data))) }

func advice(env *Env, writes string) string {
	command := "init"
	if env.Config.Join != nil {
		command = "join"
	}
	return fmt.Sprintf("The same `slipway %s` with --diff shows it all; %s", command, writes)
}

// ensureMissing is ensure on a node that was one before: it makes the objects
// that the API lacks, and keeps those that are there. writer is the command that
// writes them all.
func ensureMissing(ctx context.Context, env *Env, writer string, objs ...manifests.Object) error {
	if !env.Again {
		return ensure(ctx, env, objs...)
	}
	found, err := compare(ctx, env, objs)
	if err != nil {
		return err
	}
	var missing []manifests.Object
	for i, obj := range objs {
		switch found[i].Change {
		case cluster.Create:
			missing = append(missing, obj)
		case cluster.Update:
			sayKept(env, obj, found[i], fmt.Sprintf("`slipway %s` writes it", writer))
		}
	}
	return ensure(ctx, env, missing...)
}

// compare asks for each object what ensure would change. It is the
// administrators who ask, so they are given their role first.
func compare(ctx context.Context, env *Env, objs []manifests.Object) ([]cluster.Difference, error) {
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return nil, err
	}
	found := make([]cluster.Difference, len(objs))
	group, ctx := errgroup.WithContext(ctx)
	for i, obj := range objs {
		group.Go(func() (err error) {
			found[i], err = env.Cluster.Compare(ctx, obj)
			return err
		})
	}
	return found, group.Wait()
}

// sayKept says that an object stays as it is. writes says what writes it.
func sayKept(env *Env, obj manifests.Object, d cluster.Difference, writes string) {
	ui.SayKept(env.UI, ui.Kept{
		Kind: obj.GetObjectKind().GroupVersionKind().Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Summary: fieldDifference(obj, d), Advice: advice(env, writes),
		Now: shownFields(d.Before), Ours: shownFields(d.After),
	})
}

// fieldDifference names the fields of an object that differ.
func fieldDifference(obj manifests.Object, d cluster.Difference) string {
	if _, secret := obj.(*corev1.Secret); secret {
		return "values that are not shown"
	}
	const most = 6
	fields := d.Fields()
	if len(fields) > most {
		fields = append(fields[:most:most], fmt.Sprintf("and %d more", len(fields)-most))
	}
	return strings.Join(fields, ", ")
}

func shownFields(fields map[string]any) string {
	if fields == nil {
		return ""
	}
	data, err := yaml.Marshal(fields)
	if err != nil {
		return err.Error()
	}
	return shownFile(data)
}
