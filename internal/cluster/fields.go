// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"slices"
)

// Fields names the fields an update changes, sorted, such as spec.template.spec.containers[coredns].image. For a Secret, it's
// empty.
func (d Difference) Fields() []string {
	found := unlike(d.Before, d.After, "", "")
	if len(found) == 0 { // the live object has more than it should, such as an extra rule in a role
		found = unlike(d.After, d.Before, "", "")
	}
	return found
}

// unlike returns the paths, below path, of the fields where live doesn't match ours.
func unlike(live, ours any, path, member string) []string {
	if holds(live, ours, member) {
		return nil
	}
	switch ours := ours.(type) {
	case map[string]any:
		if live, ok := live.(map[string]any); ok {
			return unlikeMembers(live, ours, path, member)
		}
	case []any:
		if live, ok := live.([]any); ok && len(live) == len(ours) {
			var found []string
			for i, value := range ours {
				found = append(found, unlike(live[i], value, fmt.Sprintf("%s[%v]", path, nameOf(value, i)), member)...)
			}
			return found
		}
	}
	return []string{path}
}

func unlikeMembers(live, ours map[string]any, path, member string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if isQuantities(member) && sameQuantity(live[name], ours[name]) {
			continue
		}
		below := name
		if path != "" {
			below = path + "." + name
		}
		found = append(found, unlike(live[name], ours[name], below, name)...)
	}
	return found
}

// nameOf returns an element's name, or its index in the list.
func nameOf(element any, index int) any {
	if fields, ok := element.(map[string]any); ok {
		if name, ok := fields["name"].(string); ok {
			return name
		}
	}
	return index
}
