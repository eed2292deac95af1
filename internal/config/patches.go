// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Patch targets besides static Pods, which are named like their Pods.
const (
	PatchKubelet   = "kubeletconfiguration"
	PatchCoreDNS   = "corednsdeployment"
	PatchKubeProxy = "kubeproxydaemonset"
)

// The types of patches, as in their file names.
const (
	patchStrategic = "strategic"
	patchMerge     = "merge"
	patchJSON      = "json"
)

func patchTargets() []string {
	return []string{EtcdComponent, APIServerComponent, ControllerManagerComponent, SchedulerComponent, PatchKubelet, PatchCoreDNS, PatchKubeProxy}
}

func patchKinds() []string { return []string{patchStrategic, patchMerge, patchJSON} }

type PatchFile struct {
	Name string // without its directory
	Data []byte
}

type patch struct {
	file   string
	line   int
	target string
	kind   string
	body   []byte // JSON
}

// PatchSet holds a directory's patches in the order they apply. The zero value is empty.
type PatchSet struct {
	// Ignored are files that look like patches, but aren't named like one, with the reason. kubeadm ignores them, too.
	Ignored []Fault

	patches []patch
	dir     string
}

// ParsePatches parses the files of a patches directory, named TARGET[SUFFIX][+TYPE].{yaml,json}. They apply in the order of their
// names. Other files, such as a README, are ignored. Invalid input is returned as Faults, all at once:
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/control-plane-flags/#patches
func ParsePatches(files []PatchFile) (PatchSet, error) {
	var out findings
	var set PatchSet
	files = slices.SortedStableFunc(slices.Values(files), func(a, b PatchFile) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range files {
		target, kind, ignored := patchName(f.Name)
		switch {
		case ignored != "":
			set.Ignored = append(set.Ignored, Fault{File: f.Name, Message: ignored})
		case target == "":
		case !slices.Contains(patchKinds(), kind):
			out.fault(Fault{File: f.Name, Message: fmt.Sprintf("the type of a patch, after the plus sign in its name, must be one of %s%s",
				strings.Join(patchKinds(), ", "), didYouMean(kind, patchKinds()))})
		default:
			set.patches = append(set.patches, parsePatch(f, target, kind, &out)...)
		}
	}
	if err := out.err(); err != nil {
		return PatchSet{}, err
	}
	return set, nil
}

// patchName parses a file name. It says why it ignores a file that looks like a patch. All results are empty for other files.
func patchName(name string) (target, kind, ignored string) {
	ext := path.Ext(name)
	base := strings.TrimSuffix(name, ext)
	base, kind, typed := strings.Cut(base, "+")
	target = patchTarget(base)
	if ext != ".yaml" && ext != ".json" {
		if target != "" || ext == ".yml" {
			return "", "", `the name of a patch must end in ".yaml" or ".json"`
		}
		return "", "", ""
	}
	if target == "" {
		return "", "", fmt.Sprintf("the name of a patch must begin with its target: %s%s",
			strings.Join(patchTargets(), ", "), didYouMean(base, patchTargets()))
	}
	if !typed {
		kind = patchStrategic
	}
	return target, kind, ""
}

func patchTarget(base string) string {
	for _, t := range patchTargets() {
		if strings.HasPrefix(base, t) {
			return t
		}
	}
	return ""
}

// parsePatch parses a file's documents, each of them a patch.
func parsePatch(f PatchFile, target, kind string, out *findings) []patch {
	before := len(out.faults)
	docs := parse(&Source{Name: f.Name, Data: f.Data}, maxDocuments, out)
	if len(docs) == 0 && len(out.faults) == before {
		out.fault(Fault{File: f.Name, Message: "contains no patch; remove the file, or add the fields to change"})
	}
	var patches []patch
	for _, doc := range docs {
		if body := patchBody(f.Name, kind, doc, out); body != nil {
			patches = append(patches, patch{f.Name, doc.line, target, kind, body})
		}
	}
	return patches
}

// patchBody returns a document as JSON, or nil after a fault.
func patchBody(file, kind string, doc document, out *findings) []byte {
	fault := func(format string, args ...any) []byte {
		out.fault(Fault{File: file, Line: doc.line, Message: fmt.Sprintf(format, args...)})
		return nil
	}
	if kind == patchJSON && doc.root.Kind != yaml.SequenceNode {
		return fault(`a json patch must be a list of operations, such as "- {op: add, path: /metadata/labels/a, value: b}" (RFC 6902)`)
	}
	if kind != patchJSON && doc.root.Kind != yaml.MappingNode {
		return fault("a %s patch must be a mapping of the fields to change", kind)
	}
	d := &decoder{file: file, out: out, lines: map[string]int{}, bad: map[string]bool{}}
	tree, ok := d.value(doc.root, reflect.TypeFor[any](), "")
	if !ok || len(d.bad) > 0 {
		return nil
	}
	if path, found := hidden(doc.root, ""); found {
		out.fault(Fault{File: file, Line: doc.line, Field: path, Message: "the value contains " + hiddenMark + ", with which Slipway hides a secret; replace that by the secret"})
		return nil
	}
	body, err := json.Marshal(tree)
	if err != nil {
		return fault("cannot be written as JSON")
	}
	if kind == patchJSON {
		if problem := operationsProblem(body); problem != "" {
			return fault("%s", problem)
		}
	}
	return body
}

// operationsProblem describes the first invalid operation of a JSON patch.
func operationsProblem(body []byte) string {
	var operations []struct {
		Op   string  `json:"op"`
		Path *string `json:"path"`
		From *string `json:"from"`
	}
	if err := json.Unmarshal(body, &operations); err != nil {
		return "each operation must be a mapping with op, path, and value or from (RFC 6902)"
	}
	for i, o := range operations {
		known := []string{"add", "remove", "replace", "move", "copy", "test"}
		switch {
		case !slices.Contains(known, o.Op):
			return fmt.Sprintf("operation %d: op must be one of %s%s", i+1, strings.Join(known, ", "), didYouMean(o.Op, known))
		case o.Path == nil:
			return fmt.Sprintf("operation %d: path is missing", i+1)
		case o.From == nil && (o.Op == "move" || o.Op == "copy"):
			return fmt.Sprintf("operation %d: from is missing", i+1)
		case *o.Path != "" && !strings.HasPrefix(*o.Path, "/"):
			return fmt.Sprintf("operation %d: path must begin with a slash, such as /spec/containers/0/image", i+1)
		}
	}
	return ""
}

type files interface {
	ReadDir(dir string) ([]fs.DirEntry, error)
	ReadFile(file string) ([]byte, error)
}

// ReadPatches reads a directory's patches; there are none if dir is empty.
func ReadPatches(host files, dir string) (PatchSet, error) {
	if dir == "" {
		return PatchSet{}, nil
	}
	entries, err := host.ReadDir(dir)
	if err != nil {
		return PatchSet{}, errors.Wrap(err, "patches directory")
	}
	var list []PatchFile
	for _, entry := range entries {
		if !entry.IsDir() {
			data, err := host.ReadFile(path.Join(dir, entry.Name()))
			if err != nil {
				return PatchSet{}, err
			}
			list = append(list, PatchFile{Name: entry.Name(), Data: data})
		}
	}
	set, err := ParsePatches(list)
	set.dir = dir
	return set, err
}

// FilesWith names the files of a target's patches that contain a value.
func (s PatchSet) FilesWith(target, value string) (names []string) {
	for _, p := range s.patches {
		if p.target == target && strings.Contains(string(p.body), value) && !slices.Contains(names, p.file) {
			names = append(names, p.file)
		}
	}
	return names
}

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
			return nil, errors.Wrapf(err, "patch %s, line %d: cannot patch %s", path.Join(s.dir, p.file), p.line, target)
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
