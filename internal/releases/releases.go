// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package releases knows which flags, feature gates, API versions, admission plugins and configuration fields each minor release
// has. Of("1.36") returns a Release with methods such as HasFlag and ServesVersion; OfEtcd does the same for etcd. test/releases
// generates the tables. The first lookup takes a few milliseconds.
package releases

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// Programs with flags in the tables. Etcd has releases of its own: see EtcdRelease.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	Etcd              = "etcd"
)

//go:embed tables.tsv
var tables string

type fact struct{ kind, name string }

// row has the state of a fact in each release of some programs.
type row struct {
	programs string // comma-separated, or * for all but etcd
	states   []string
}

// parsed holds the tables ready for lookups.
type parsed struct {
	minors, etcdMinors []string
	rows               map[fact][]row
}

// parse parses the tables once; a test checks their form.
var parse = sync.OnceValue(func() parsed {
	p := parsed{rows: map[fact][]row{}}
	for line := range strings.Lines(tables) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case strings.HasPrefix(line, "#"):
		case fields[0] == "release":
			p.minors = append(p.minors, fields[1])
		case fields[0] == Etcd:
			p.etcdMinors = append(p.etcdMinors, fields[1])
		default:
			key, states := fact{fields[0], fields[1]}, fields[3:]
			for i := range states {
				switch states[i] {
				case "-":
					states[i] = ""
				case "=":
					states[i] = states[i-1]
				}
			}
			p.rows[key] = append(p.rows[key], row{fields[2], states})
		}
	}
	return p
})

// Release is a minor release of Kubernetes.
type Release struct {
	// Minor is its name, such as 1.37.
	Minor  string
	column int
}

// Of returns the release of that name, such as 1.37. Without a table, it returns false and a release before the first.
func Of(minor string) (Release, bool) {
	i := slices.Index(parse().minors, minor)
	return Release{minor, i}, i >= 0
}

// Newest returns the last release with a table.
func Newest() Release {
	minors := parse().minors
	return Release{minors[len(minors)-1], len(minors) - 1}
}

// Next returns the release after r; false if there's no table of it.
func (r Release) Next() (Release, bool) {
	minors := parse().minors
	if r.column+1 == len(minors) {
		return Release{}, false
	}
	return Release{minors[r.column+1], r.column + 1}, true
}

// Known reports whether the release has a table.
func (r Release) Known() bool { return r.column >= 0 && r.Minor != "" }

// After reports whether r is a later release than other.
func (r Release) After(other Release) bool { return r.column > other.column }

// state returns a fact's state for a program; empty if this release doesn't have it.
func (r Release) state(kind, program, name string) string {
	for _, row := range parse().rows[fact{kind, name}] {
		if r.Known() && row.of(program) && row.states[r.column] != "" {
			return row.states[r.column]
		}
	}
	return ""
}

func (r row) of(program string) bool {
	return r.programs == "*" && program != Etcd || slices.Contains(strings.Split(r.programs, ","), program)
}

// HasFlag reports whether a program knows a flag, even if hidden or deprecated. name has no leading dashes; _ is the same as -.
func (r Release) HasFlag(program, name string) bool {
	return r.state("flag", program, strings.ReplaceAll(name, "_", "-")) != ""
}

// EverHadFlag reports whether any release of a program knows a flag; name is as for HasFlag.
func EverHadFlag(program, name string) bool {
	rows := parse().rows[fact{"flag", strings.ReplaceAll(name, "_", "-")}]
	return slices.ContainsFunc(rows, func(row row) bool { return row.of(program) })
}

// EtcdRelease is a minor release of etcd, such as 3.7.
type EtcdRelease Release

// OfEtcd returns the release of etcd of that name, such as 3.7; false if there's no table of it.
func OfEtcd(minor string) (EtcdRelease, bool) {
	i := slices.Index(parse().etcdMinors, minor)
	return EtcdRelease{minor, i}, i >= 0
}

// HasFlag reports whether etcd knows a command line flag, even if it's deprecated. The name has no leading dashes.
func (r EtcdRelease) HasFlag(name string) bool { return Release(r).HasFlag(Etcd, name) }

// HasField reports whether the kubelet or kube-proxy knows a field of its configuration file, such as
// authentication.anonymous.enabled, without list indexes.
func (r Release) HasField(program, path string) bool { return r.state("field", program, path) != "" }

// HasAdmissionPlugin reports whether the API server has an admission plugin.
func (r Release) HasAdmissionPlugin(name string) bool {
	return r.state("admission", APIServer, name) != ""
}

// HasDocument reports whether a program reads a kind of configuration file in that apiVersion.
func (r Release) HasDocument(program, apiVersion, kind string) bool {
	return r.state("document", program, apiVersion+" "+kind) != ""
}

// KnowsVersion reports whether the API server knows an API version such as apps/v1, even if it serves nothing in it any more.
func (r Release) KnowsVersion(apiVersion string) bool {
	return r.state("version", APIServer, apiVersion) != ""
}

// ServesVersion reports whether the API server serves anything in an API version, by default or if told to.
func (r Release) ServesVersion(apiVersion string) bool {
	state := r.state("version", APIServer, apiVersion)
	return state == "on" || state == "off"
}

// Kind is a kind of the API in one version.
type Kind struct {
	// Served is false if the API server can only read objects stored in this version.
	Served bool
	// Deprecated and Removed are releases, Replacement is an apiVersion and a kind with a space between; each may be empty.
	Deprecated, Removed, Replacement string
}

// Kind looks up a kind in an API version such as apps/v1; false if the release doesn't even read it.
func (r Release) Kind(apiVersion, kind string) (Kind, bool) {
	state := r.state("kind", APIServer, apiVersion+" "+kind)
	if state == "" {
		return Kind{}, false
	}
	var k Kind
	for i, part := range strings.Split(state, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case i == 0:
			k.Served = name == "served"
		case name == "deprecated":
			k.Deprecated = value
		case name == "removed":
			k.Removed = value
		case name == "use":
			k.Replacement = value
		}
	}
	return k, true
}

// Leaving returns the kinds (apiVersion, space, kind) that r or a later release serves and the newest doesn't, sorted.
func (r Release) Leaving() []string {
	var list []string
	newest := Newest()
	for key := range parse().rows {
		apiVersion, kind, _ := strings.Cut(key.name, " ")
		if key.kind != "kind" || newest.serves(apiVersion, kind) {
			continue
		}
		for column := max(r.column, 0); column < newest.column; column++ {
			if (Release{Minor: parse().minors[column], column: column}).serves(apiVersion, kind) {
				list = append(list, key.name)
				break
			}
		}
	}
	slices.Sort(list)
	return list
}

func (r Release) serves(apiVersion, kind string) bool {
	k, known := r.Kind(apiVersion, kind)
	return known && k.Served
}

// EverHadKind reports whether any release had a kind in an API version.
func EverHadKind(apiVersion, kind string) bool {
	return len(parse().rows[fact{"kind", apiVersion + " " + kind}]) > 0
}

// HasFieldsBelow reports whether the field at that path is an object, or a list of objects, with known fields.
func (r Release) HasFieldsBelow(program, path string) bool {
	for key, rows := range parse().rows {
		if key.kind != "field" || !strings.HasPrefix(key.name, path+".") {
			continue
		}
		if slices.ContainsFunc(rows, func(row row) bool { return row.of(program) && row.states[r.column] != "" }) {
			return true
		}
	}
	return false
}

// EverHadDocument reports whether any release of a program read a kind of configuration file in that apiVersion.
func EverHadDocument(program, apiVersion, kind string) bool {
	return slices.ContainsFunc(parse().rows[fact{"document", apiVersion + " " + kind}], func(row row) bool { return row.of(program) })
}

// Documents returns the apiVersions in which a program reads a kind of configuration file, in order.
func (r Release) Documents(program, kind string) []string {
	var list []string
	for key := range parse().rows {
		if apiVersion, ok := strings.CutSuffix(key.name, " "+kind); ok && key.kind == "document" && r.HasDocument(program, apiVersion, kind) {
			list = append(list, apiVersion)
		}
	}
	slices.Sort(list)
	return list
}
