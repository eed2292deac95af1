// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// What one program of one minor release of Kubernetes knows, as JSON. Each file of this directory but this one is for
// one program; it needs that release's packages, so it runs inside of the module that pins them:
//
//	cd test/lab/components/kubernetes && go run ../../../releases/facts/{facts,kubelet}.go
//
// One process for each program, because feature gates are registered by the packages that are linked in.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	baseversion "k8s.io/component-base/version"
)

// facts maps a kind of fact and a name to the state of what is named. internal/releases describes both.
type facts map[string]map[string]string

func main() {
	f := facts{}
	collect(f)
	f.gates()
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	if err := out.Encode(f); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (f facts) set(kind, name, state string) {
	if f[kind] == nil {
		f[kind] = map[string]string{}
	}
	f[kind][name] = state
}

// flags adds all flags, the hidden ones too.
func (f facts) flags(fs *pflag.FlagSet) {
	fs.VisitAll(func(flag *pflag.Flag) {
		state := "ok"
		if flag.Deprecated != "" {
			state = "deprecated"
		}
		f.set("flag", strings.ReplaceAll(flag.Name, "_", "-"), state)
	})
}

// gates adds the feature gates at the version that the program has by itself.
func (f facts) gates() {
	gates := utilfeature.DefaultMutableFeatureGate
	needs := map[featuregate.Feature][]featuregate.Feature{}
	if known, ok := any(gates).(interface {
		Dependencies() map[featuregate.Feature][]featuregate.Feature
	}); ok { // since 1.35
		needs = known.Dependencies()
	}
	for name, spec := range gates.GetAll() {
		state := []string{strings.ToLower(string(spec.PreRelease)), "off"}
		if spec.PreRelease == featuregate.GA {
			state[0] = "ga"
		}
		if spec.Default {
			state[1] = "on"
		}
		if spec.LockToDefault {
			state = append(state, "locked")
		}
		if len(needs[name]) > 0 {
			state = append(state, "needs="+joined(needs[name]))
		}
		f.set("gate", string(name), strings.Join(state, ","))
	}
}

func joined(names []featuregate.Feature) string {
	var list []string
	for _, name := range names {
		list = append(list, string(name))
	}
	slices.Sort(list)
	return strings.Join(list, "+")
}

// fields adds the fields of a configuration document, by their paths in JSON. Below a map or a list there are
// values of the user's, so a path goes through lists ("[]") only.
func (f facts) fields(prefix string, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || strings.HasSuffix(t.PkgPath(), "apis/meta/v1") {
		return
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || field.Name == "TypeMeta":
		case name == "" && (field.Anonymous || strings.Contains(options, "inline")):
			f.fields(prefix, field.Type)
		case name != "":
			f.set("field", prefix+name, "ok")
			f.fields(prefix+name+".", field.Type)
		}
	}
}

// kinds adds the kinds of a scheme's external versions in the groups that are wanted (all if nil), and returns the versions
// that have a kind which this release serves. The state is "served", or "gone" if the API server only decodes what is
// stored, because the version is not offered or the kind's time is over; and the kind's life as its Go types tell it:
// "deprecated", "removed", and "use", its replacement.
func (f facts) kinds(fact string, scheme *runtime.Scheme, wanted func(group string) bool, offered func(schema.GroupVersion) bool) map[schema.GroupVersion]bool {
	all, served := scheme.AllKnownTypes(), map[schema.GroupVersion]bool{}
	for gvk, t := range all {
		if gvk.Version == runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") || strings.HasSuffix(gvk.Kind, "Options") ||
			strings.HasSuffix(t.PkgPath(), "apis/meta/v1") || wanted != nil && !wanted(gvk.Group) {
			continue
		}
		object := reflect.New(t).Interface()
		_, listed := all[gvk.GroupVersion().WithKind(gvk.Kind+"List")]
		if _, introduced := object.(interface{ APILifecycleIntroduced() (int, int) }); wanted != nil && !listed && !introduced {
			continue // a part of a request
		}
		life := lifecycle(object)
		state := "served"
		if !offered(gvk.GroupVersion()) {
			state = "gone"
		} else if i := slices.IndexFunc(life, func(s string) bool { return strings.HasPrefix(s, "removed=") }); i >= 0 && !newer(life[i]) {
			state = "gone"
		}
		served[gvk.GroupVersion()] = served[gvk.GroupVersion()] || state == "served"
		f.set(fact, gvk.GroupVersion().String()+" "+gvk.Kind, strings.Join(append([]string{state}, life...), ","))
	}
	return served
}

// every is for files, all of whose versions are read.
func every(schema.GroupVersion) bool { return true }

// newer reports whether a removal comes after the release whose packages these are.
func newer(removed string) bool {
	release := version.MustParse(baseversion.DefaultKubeBinaryVersion)
	return version.MustParse(strings.TrimPrefix(removed, "removed=")).GreaterThan(release)
}

func lifecycle(object any) []string {
	var state []string
	if o, ok := object.(interface{ APILifecycleDeprecated() (int, int) }); ok {
		major, minor := o.APILifecycleDeprecated()
		state = append(state, fmt.Sprintf("deprecated=%d.%d", major, minor))
	}
	if o, ok := object.(interface{ APILifecycleRemoved() (int, int) }); ok {
		major, minor := o.APILifecycleRemoved()
		state = append(state, fmt.Sprintf("removed=%d.%d", major, minor))
	}
	if o, ok := object.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		gvk := o.APILifecycleReplacement()
		state = append(state, "use="+gvk.GroupVersion().String()+" "+gvk.Kind)
	}
	return state
}
