// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/manifests"
)

// flags are the command line of a component, each flag with its values in their order.
type flags map[string][]string

// flagsOf returns the component's flags. ok is false if they can't be known: the static Pod is missing or broken, or runs another
// program, such as a shell.
func (o *observation) flagsOf(component string) (f flags, ok bool) {
	pod := o.pods[component]
	if pod == nil {
		return nil, false
	}
	words := slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args)
	if len(words) == 0 || path.Base(words[0]) != component {
		return nil, false
	}
	given := manifests.PodFlags
	if component == manifests.EtcdName {
		given = manifests.EtcdFlags
	}
	f = flags{}
	for _, flag := range given(pod) {
		f[flag.Name] = append(f[flag.Name], flag.Value)
	}
	return f, true
}

// last is the value of a flag with a single value; empty if it isn't set.
func (f flags) last(name string) string {
	if len(f[name]) == 0 {
		return ""
	}
	return f[name][len(f[name])-1]
}

// list is the value of a flag with several values, which add up.
func (f flags) list(name string) []string {
	return slices.DeleteFunc(strings.Split(strings.Join(f[name], ","), ","), func(s string) bool { return s == "" })
}

// shown is a flag's value, or says it has none.
func (f flags) shown(name string) string {
	if f[name] == nil {
		return "not set"
	}
	return strings.Join(f[name], ",")
}

func isBool(text string, want bool) bool {
	got, err := strconv.ParseBool(text)
	return err == nil && got == want
}

func atLeast(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= least
}

// check looks at the flags of a component. hidden are flags that name a file with the settings instead: nobody has looked there.
func check(id, component, want string, names []string, ok func(flags) bool, hidden ...string) row {
	return row{id, component + " --" + strings.Join(names, " --"), want, func(o *observation) answer {
		f, known := o.flagsOf(component)
		if !known {
			return unknown("cannot read the command line in " + o.manifest(component))
		}
		for _, name := range hidden {
			if f[name] != nil {
				return unknown("--" + name + " names a file with such settings: " + f.last(name))
			}
		}
		var found []string
		for _, name := range names {
			found = append(found, f.shown(name))
		}
		return verdict(ok(f), strings.Join(found, "; "))
	}}
}

// set wants flags with any value.
func set(id, component string, names ...string) row {
	return check(id, component, "set", names, func(f flags) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return f.last(name) == "" })
	})
}

// is wants a truth value; unset counts as the component's default.
func is(id, component, name string, want, unset bool, hidden ...string) row {
	return check(id, component, strconv.FormatBool(want), []string{name}, func(f flags) bool {
		if f[name] == nil {
			return want == unset
		}
		return isBool(f.last(name), want)
	}, hidden...)
}
