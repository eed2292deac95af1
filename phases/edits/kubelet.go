// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
)

// kubeletEdits are the fields set or removed in this host's config.yaml that the upgrade would overwrite: they come neither from
// the cluster's settings nor from the node's own (instance-config.yaml).
type kubeletEdits struct {
	fields []string
	patch  config.PatchFile // keeps the fields
	// changed is when an operator changed ConfigMap kubelet-config, if that was after the file was written; otherwise zero.
	changed time.Time
	// sure means somebody has edited the file, even if some of the fields come from before that change.
	sure bool
}

// doubtful reports whether some fields may not be edits, in which case the patch would undo the change.
func (e *kubeletEdits) doubtful() bool { return !e.changed.IsZero() }

func editsOfKubelet(ctx context.Context, env *step.Env) (*kubeletEdits, error) {
	path := env.Config.Paths.KubeletConfig()
	of, err := backup.DetectEdit(env, path)
	if err != nil {
		return nil, err
	}
	have, wanted, lost, err := lostKubeletFields(ctx, env, of)
	if err != nil || len(lost) == 0 {
		return nil, errors.WithMessage(err, "the kubelet's configuration")
	}
	e, suffix := &kubeletEdits{fields: lost}, patchSuffix(env)
	written, err := writtenAt(env, path, func(b *upgrading.Backup) string { return b.Kubelet[filepath.Base(path)] })
	if err != nil {
		return nil, err
	}
	changed, err := ConfigurationChanged(ctx, env, manifests.KubeletConfigMap, "kubelet")
	if err != nil {
		return nil, err
	}
	if changed.After(written) {
		e.changed, e.sure = changed, of == backup.Edited
	}
	if e.doubtful() {
		suffix += doubtfulSuffix
	}
	e.patch.Name = config.PatchKubelet + suffix + "+merge.yaml"
	e.patch.Data, err = kubeletPatch(have, wanted, lost)
	return e, err
}

func lostKubeletFields(ctx context.Context, env *step.Env, of backup.EditState) (have, wanted map[string]any, lost []string, err error) {
	docs := make([]map[string]any, 4)
	for i, read := range []func() ([]byte, error){
		func() ([]byte, error) { return host.ReadIfExists(env.Host, env.Config.Paths.KubeletConfig()) },
		func() ([]byte, error) { return kubelet.NextConfig(env) },
		func() ([]byte, error) { return host.ReadIfExists(env.Host, env.Config.Paths.InstanceConfig()) },
		func() ([]byte, error) {
			text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, manifests.KubeletConfigMap, "kubelet")
			return []byte(text), err
		},
	} {
		data, err := read()
		if err == nil {
			docs[i], err = kubeletFields(data)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	ours := func(name string, value any) bool { return name == "resolvConf" && value == config.ResolvedConf } // systemd-resolved ran here
	for name, value := range docs[0] {
		if !ours(name, value) && !slices.ContainsFunc(docs[1:], func(other map[string]any) bool { return reflect.DeepEqual(other[name], value) }) {
			lost = append(lost, name)
		}
	}
	for name, value := range docs[3] { // a field missing here, but in the cluster's settings, would come back
		if _, there := docs[0][name]; !there && of != backup.Unedited && !ours(name, value) && reflect.DeepEqual(docs[1][name], value) {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	return docs[0], docs[1], lost, nil
}

// kubeletFields returns the fields of a KubeletConfiguration in a normal form: kubeadm writes some zero values, and order and
// notation vary. Fields unknown to this version stay as they are.
func kubeletFields(data []byte) (map[string]any, error) {
	given, known, fields := map[string]any{}, kubeletconfig.New(), map[string]any{}
	if err := yaml.Unmarshal(data, &given); err != nil {
		return nil, errors.WithStack(err)
	}
	if err := yaml.Unmarshal(data, known); err != nil {
		return nil, errors.WithStack(err)
	}
	text, err := json.Marshal(known)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	for name, value := range given {
		if v := reflect.ValueOf(value); fields[name] == nil && v.IsValid() && !v.IsZero() {
			fields[name] = value
		}
	}
	return fields, errors.WithStack(err)
}

// kubeletPatch returns a patch that gives these fields of wanted the values of have.
func kubeletPatch(have, wanted map[string]any, fields []string) ([]byte, error) {
	other := func(name string, _ any) bool { return !slices.Contains(fields, name) }
	var docs [2][]byte
	for i, doc := range []map[string]any{wanted, have} {
		doc = maps.Clone(doc)
		maps.DeleteFunc(doc, other)
		var err error
		if docs[i], err = json.Marshal(doc); err != nil {
			return nil, errors.WithStack(err)
		}
	}
	patch, err := jsonpatch.CreateMergePatch(docs[0], docs[1])
	if err == nil {
		patch, err = yaml.JSONToYAML(patch)
	}
	return patch, errors.WithStack(err)
}

// KubeletFindings finds fields of this host's kubelet configuration that the upgrade would overwrite. A failed comparison may hide
// some.
func KubeletFindings(ctx context.Context, env *step.Env) []fault.Finding {
	e, err := editsOfKubelet(ctx, env)
	if err != nil {
		return []fault.Finding{fault.NewFinding(KubeletCheck, fault.Error,
			cmp.Or(fault.Remedy(err), "make sure that the API answers and that the file is valid, and run the same command again")+"; to drop any edits, use "+fault.Ignoring(KubeletCheck),
			"edits of the kubelet's configuration were not checked: %v", err)}
	}
	if e == nil {
		return nil
	}
	run := env.Config.Upgrade.Run()
	path, names := env.Config.Paths.KubeletConfig(), strings.Join(e.fields, ", ")
	changed, keep := ui.Time(e.changed), "to keep them on this node, "+shownPatches(e.patch)
	if e.doubtful() && !e.sure {
		return []fault.Finding{fault.NewFinding(KubeletCheck, fault.Warning,
			"nothing to do if these fields come from before that change; if they are edits, keep them in a patch: "+shownPatches(e.patch),
			"%s writes %s as ConfigMap kube-system/%s says, which was changed on %s, after the file was written: %s",
			run, path, manifests.KubeletConfigMap, changed, names)}
	}
	if e.sure {
		keep = "leave fields that come from before the change of that ConfigMap on " + changed + " to the upgrade; " + keep
	}
	return []fault.Finding{fault.NewFinding(KubeletCheck, fault.Error,
		"for all nodes, set them in ConfigMap kube-system/"+manifests.KubeletConfigMap+"; to drop them, use "+fault.Ignoring(KubeletCheck)+"; "+keep,
		"%s would lose edits of %s: %s", run, path, names)}
}

// shownPatches explains how to use patches. On a worker, nothing else prints them.
func shownPatches(files ...config.PatchFile) string {
	text := "use --patches with a directory that has"
	for _, f := range files {
		shown := strings.TrimRight(ownership.Shown(f.Data), "\n")
		hidden := ""
		if strings.Contains(shown, "[redacted]") {
			hidden = ", in which you replace each [redacted] by the secret in this host's own file"
		}
		text += " this file, " + f.Name + hidden + ":\n    " + strings.ReplaceAll(shown, "\n", "\n    ") + "\n"
	}
	return strings.TrimRight(text, "\n")
}
