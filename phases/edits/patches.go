// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Patches are patches for the directory of --patches. Kept has operators' edits of this control plane's static Pods and
// kubelet configuration. Doubtful has differences that may also come from an earlier ClusterConfiguration or ConfigMap
// kubelet-config.
type Patches struct{ Kept, Doubtful []config.PatchFile }

// PatchesOf makes patches of the edits on this host.
func PatchesOf(ctx context.Context, env *step.Env) (p Patches, err error) {
	list, err := editsHere(ctx, env)
	if err != nil {
		return p, err
	}
	for _, edits := range list {
		kept, err := edits.edited.patches(patchSuffix(env))
		doubtful, doubtfulErr := edits.doubtful.patches(patchSuffix(env) + doubtfulSuffix)
		if err := cmp.Or(edits.err, err, doubtfulErr); err != nil {
			return p, errors.WithMessagef(err, "the edits of %s", edits.component)
		}
		p.Kept, p.Doubtful = append(p.Kept, kept...), append(p.Doubtful, doubtful...)
	}
	kubelet, err := editsOfKubelet(ctx, env)
	switch {
	case err != nil || kubelet == nil:
		return p, nil //nolint:nilerr // the check of these edits reports it
	case !kubelet.doubtful():
		p.Kept = append(p.Kept, kubelet.patch)
	default:
		p.Doubtful = append(p.Doubtful, kubelet.patch)
	}
	return p, nil
}

// doubtfulSuffix marks a patch of doubtful edits. sidecarsSuffix marks a patch that adds or removes sidecars: it sorts after all JSON
// patches, whose indices of containers it may change.
const (
	doubtfulSuffix = "-doubtful"
	sidecarsSuffix = "-sidecars"
)

// patchSuffix follows the target in a patch's name. With patches already, it sorts after theirs, and no patch of earlier edits has it: an
// operator may save both in the same directory.
func patchSuffix(env *step.Env) string {
	if env.Config.PatchesDir == "" {
		return "0"
	}
	files, _ := env.Host.ReadDir(env.Config.PatchesDir) // the patches report an error themselves
	suffix := "zz-edits"
	for slices.ContainsFunc(files, func(f fs.DirEntry) bool { return strings.Contains(f.Name(), suffix) }) {
		suffix = "z" + suffix
	}
	return suffix
}

// patches returns a JSON patch of the command line, as lists without keys can't be merged, and a merge patch of everything else.
func (e *editedPod) patches(suffix string) (files []config.PatchFile, err error) {
	if e == nil {
		return nil, nil
	}
	have, before, wanted := e.pods()
	add := func(kind string, patch any) error {
		data, err := yaml.Marshal(patch)
		files = append(files, config.PatchFile{Name: e.component + suffix + "+" + kind + ".yaml", Data: data})
		return errors.WithStack(err)
	}
	mine, ours, next := &have.Spec.Containers[0], &before.Spec.Containers[0], &wanted.Spec.Containers[0]
	if operations := commandPatch(manifests.ContainerIndex(e.wanted), mine.Command, ours.Command, next.Command); len(operations) > 0 {
		err = add("json", operations)
	}
	if !slices.EqualFunc(have.Spec.Containers, before.Spec.Containers, func(a, b corev1.Container) bool { return a.Name == b.Name }) {
		suffix += sidecarsSuffix
	}
	mine.Command = ours.Command
	if mine.Image != ours.Image { // the operator's repository, with the upgrade's version
		name, _ := manifests.SplitImage(mine.Image)
		mine.Image = name + ":" + manifests.TagOf(next.Image)
	}
	rest, restErr := mergePatch(before, have)
	if len(rest) > 0 {
		restErr = add("strategic", rest)
	}
	return files, cmp.Or(err, restErr)
}

// operation is an element of a JSON patch: https://www.rfc-editor.org/rfc/rfc6902
type operation struct {
	Op    string  `json:"op"`
	Path  string  `json:"path"`
	Value *string `json:"value,omitempty"`
}

// commandPatch returns operations that repeat in next, the command line of a container, the operator's changes from before to have. They
// address flags by their index in next. A test before each makes the patch fail, rather than change another flag, if a later version
// moves it.
func commandPatch(container int, have, before, next []string) []operation {
	c := commandChange{path: fmt.Sprintf("/spec/containers/%d/command/", container), have: have, before: before, words: slices.Clone(next)}
	kept := c.replaceAndRemove()
	for i, word := range have {
		if slices.Contains(before, word) || slices.Contains(kept, word) || slices.Contains(next, word) {
			continue
		}
		c.add(i)
	}
	c.reorder()
	return c.operations
}

// commandChange turns words, a command line, into another.
type commandChange struct {
	path                string // of the words, with a slash at the end
	have, before, words []string
	operations          []operation
}

func (c *commandChange) at(i int) string { return c.path + strconv.Itoa(i) }

func (c *commandChange) test(i int) {
	c.operations = append(c.operations, operation{"test", c.at(i), new(c.words[i])})
}

func (c *commandChange) replace(i int, word string) {
	c.test(i)
	c.operations = append(c.operations, operation{"replace", c.at(i), &word})
	c.words[i] = word
}

// replaceAndRemove replaces words that have another value now, which it returns, and then removes others.
func (c *commandChange) replaceAndRemove() (kept []string) {
	var removed []int
	for i, word := range slices.Backward(c.words) {
		if !slices.Contains(c.before, word) || slices.Contains(c.have, word) {
			continue // added by the upgrade, or not edited
		}
		k := slices.IndexFunc(c.have, func(h string) bool {
			return flagName(h) == flagName(word) && !slices.Contains(c.before, h) && !slices.Contains(kept, h)
		})
		if k < 0 {
			removed = append(removed, i) // the last first, so the others keep their indices
			continue
		}
		kept = append(kept, c.have[k])
		c.replace(i, c.have[k])
	}
	for _, i := range removed {
		c.test(i)
		c.operations = append(c.operations, operation{"remove", c.at(i), nil})
		c.words = slices.Delete(c.words, i, i+1)
	}
	return kept
}

// add adds a word of have: before its flag's next value, as the order of a flag's values may matter, or else at the end.
func (c *commandChange) add(k int) {
	word := c.have[k]
	for _, later := range c.have[k+1:] {
		if i := slices.Index(c.words, later); i >= 0 && flagName(later) == flagName(word) {
			c.test(i)
			c.operations = append(c.operations, operation{"add", c.at(i), &word})
			c.words = slices.Insert(c.words, i, word)
			return
		}
	}
	c.operations = append(c.operations, operation{"add", c.path + "-", &word})
	c.words = append(c.words, word)
}

// reorder puts each flag's values in have's order, unless only the upgrade has changed it.
func (c *commandChange) reorder() {
	for i, word := range c.words {
		same := sameFlag(word)
		if slices.IndexFunc(c.words, same) != i {
			continue // done
		}
		values := func(words, others []string) []string {
			return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !same(w) || !slices.Contains(others, w) })
		}
		mine, now := values(c.have, c.words), values(c.words, c.have)
		if len(mine) != len(now) || slices.Equal(values(c.have, c.before), mine) && slices.Equal(values(c.before, c.have), mine) {
			continue
		}
		for j, w := range slices.Clone(c.words) {
			if !same(w) || !slices.Contains(c.have, w) {
				continue
			}
			if w != mine[0] {
				c.replace(j, mine[0])
			}
			mine = mine[1:]
		}
	}
}

func flagName(word string) string {
	name, _, _ := strings.Cut(word, "=")
	return name
}

// mergePatch returns the strategic merge patch between two Pods, without the order of lists: it means nothing to the kubelet.
func mergePatch(from, to *corev1.Pod) (map[string]any, error) {
	a, err := json.Marshal(from)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	b, err := json.Marshal(to)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	data, err := strategicpatch.CreateTwoWayMergePatch(a, b, corev1.Pod{})
	if err != nil {
		return nil, errors.WithStack(err)
	}
	var patch map[string]any
	err = json.Unmarshal(data, &patch)
	withoutOrder(patch)
	return patch, errors.WithStack(err)
}

func withoutOrder(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			if strings.HasPrefix(name, "$setElementOrder/") {
				delete(v, name)
				continue
			}
			withoutOrder(below)
		}
	case []any:
		for _, item := range v {
			withoutOrder(item)
		}
	}
}
