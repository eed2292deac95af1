// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"

	"github.com/pkg/errors"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Apply applies all of a target's patches to doc, YAML or JSON of typed's type, and returns YAML. After each patch, the document
// must decode strictly as that type and keep its identity; the error names the first file that breaks this. Without a patch for
// the target, doc is returned unchanged.
func (s PatchSet) Apply(target string, doc []byte, typed any) ([]byte, error) {
	current, applied := doc, false
	for _, p := range s.patches {
		if p.target != target {
			continue
		}
		next, err := p.apply(current, typed)
		if err != nil {
			return nil, errors.Wrapf(err, "patch %s, line %d: cannot patch %s", p.file, p.line, target)
		}
		current, applied = next, true
	}
	if !applied {
		return doc, nil
	}
	return current, nil
}

func (p patch) apply(doc []byte, typed any) ([]byte, error) {
	before := reflect.New(reflect.TypeOf(typed).Elem()).Interface()
	after := reflect.New(reflect.TypeOf(typed).Elem()).Interface()
	original, err := sigsyaml.YAMLToJSON(doc)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(original, before); err != nil {
		return nil, err
	}
	patched, err := p.change(original, typed)
	if err != nil {
		return nil, err
	}
	strict, err := sigsjson.UnmarshalStrict(patched, after)
	if err != nil {
		return nil, errors.Wrap(err, "the result is not valid")
	}
	if len(strict) > 0 {
		return nil, errors.Errorf("the result is not valid: %v", strict[0])
	}
	if err := sameObject(original, patched); err != nil {
		return nil, err
	}
	if err := runnable(after); err != nil {
		return nil, err
	}
	return sigsyaml.Marshal(after)
}

func (p patch) change(doc []byte, typed any) ([]byte, error) {
	switch p.kind {
	case patchJSON:
		operations, err := jsonpatch.DecodePatch(p.body)
		if err != nil {
			return nil, err
		}
		return operations.Apply(doc)
	case patchMerge:
		return jsonpatch.MergePatch(doc, p.body)
	}
	return strategicpatch.StrategicMergePatch(doc, p.body, typed)
}

func sameObject(before, after []byte) error {
	type identity struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	var was, is identity
	if err := json.Unmarshal(before, &was); err != nil {
		return err
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return err
	}
	if was != is {
		return errors.New("a patch must not change apiVersion, kind, metadata.name or metadata.namespace")
	}
	return nil
}

// runnable checks that a patched workload still has containers to run.
func runnable(obj any) error {
	var spec corev1.PodSpec
	switch o := obj.(type) {
	case *corev1.Pod:
		spec = o.Spec
	case *appsv1.Deployment:
		spec = o.Spec.Template.Spec
	default:
		return nil
	}
	if len(spec.Containers) == 0 {
		return errors.New("the result has no container")
	}
	for i, c := range spec.Containers {
		if c.Name == "" || c.Image == "" {
			return errors.Errorf("container %d of the result has no name or no image", i+1)
		}
	}
	return nil
}
