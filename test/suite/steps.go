// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
)

// step is a part of a tier: other commands, or tests.
type step struct {
	name     string
	onlyFull bool
	// commands run one after another, in the project's directory.
	commands [][]string
	tests    *tests
	// parts marks a step that makes reusable parts, and so doesn't count against the budget.
	parts bool
}

// tests is a run of `go test`.
type tests struct {
	dir  string   // of the module, if it isn't the project's
	args []string // of `go test`, without the packages
	// packages are patterns; concurrent selects packages that start goroutines or run phases, sequential the others.
	packages               []string
	concurrent, sequential bool
	race                   bool
	// each gives every test its own row instead of its package, and a second try if few fail.
	each bool
}

// longTests run the program in thousands of processes or for minutes, or measure its memory: the race detector would make them
// many times longer, double their memory, and see no other code there.
var longTests = []string{"Canary", "Contention", "PlansSendNothing", "Crash", "ResetFaults", "APIFaults", "HostFaults", "Memory", "Minisign", "PlaybookSteps"}

// wideTests have tables or samples of many configurations, or read the whole project. They start no other goroutines than the
// tests that the race detector checks in both tiers, but under it they cost up to ten times more, so it checks them in the full
// tier.
var wideTests = []string{
	"BrokenCertificates", "ChangedConfiguration", "ChangedPatches", "EditPatches", "EditsOfOlderReleases", "EnvironmentIsNoEdit",
	"EtcdIsSpared", "EtcdJoinHoldsAgainstData", "GoldenFiles", "PlanIsTrue", "Protection", "ProtectionInRollback", "ResetPlanIsTrue",
	"RetiredWords", "Scripts", "UntruePlansAreFound", "UpgradePlanWritesNothing",
}

// longPackages contain these tests.
var longPackages = []string{
	"./phases/upgrade", "./phases/edits", "./phases/bootstrap", "./phases/rollback", "./phases/reset", "./phases/renew", "./phases/reconfigure",
	"./phases/recovery", "./phases/snapshot", "./phases/address", "./phases/encryption", "./phases", "./cmd/slipway", "./internal/bundle",
}

// named returns a pattern that matches tests.
func named(tests ...[]string) string {
	return "^Test(" + strings.Join(slices.Concat(tests...), "|") + ")$"
}

var (
	everywhere = []string{"./..."}
	ofModule   = func(dir string) *tests { return &tests{dir: dir, args: []string{"-count=1"}, packages: everywhere} }
)

// steps run in this order: the quickest to fail come first.
var steps = []step{
	{name: "vet", commands: [][]string{{"go", "vet", "./..."}}},
	{name: "unit", tests: &tests{args: []string{"-timeout=20m"}, packages: everywhere, sequential: true}},
	// The slowest packages come first, and run side by side: their tests wait more than they compute.
	{name: "race", tests: &tests{
		args: []string{"-timeout=30m", "-skip=" + named(longTests, wideTests)}, packages: append([]string{"./cmd/slipway", "./phases/bootstrap", "./phases/upgrade"}, everywhere...), concurrent: true, race: true,
	}},
	{name: "race-rest", onlyFull: true, tests: &tests{args: []string{"-timeout=30m"}, packages: everywhere, sequential: true, race: true}},
	{name: "race-wide", onlyFull: true, tests: &tests{args: []string{"-timeout=40m", "-run=" + named(wideTests)}, packages: longPackages, race: true}},
	{name: "long", tests: &tests{
		args: []string{"-count=1", "-timeout=120m", "-run=" + named(longTests, wideTests)}, packages: longPackages,
	}},
	{name: "zlint", onlyFull: true, tests: ofModule("test/zlint")},
	{name: "etcdutl", onlyFull: true, tests: ofModule("test/etcdutl")},
	{name: "drain", onlyFull: true, tests: ofModule("test/drain")},
	{name: "gitleaks", onlyFull: true, tests: ofModule("test/gitleaks")},
	{name: "capi-controllers", onlyFull: true, tests: ofModule("test/capi/controllers")},
	{name: "fuzz", onlyFull: true, commands: [][]string{{"make", "fuzz"}}},
	{name: "parts", parts: true, commands: [][]string{
		{"go", "run", "./test/lab", "build", "--with", "kubeadm"}, {"make", "bundle"}, {"go", "run", "./test/lab", "build", "--bare"},
		{"go", "run", "./test/lab", "build", "--kubernetes", "1.36", "--with", "kubeadm"},
	}},
	{name: "packages", commands: [][]string{{"make", "test-packages"}}},
	{name: "packaging", onlyFull: true, tests: &tests{dir: "packaging", args: []string{"-count=1", "-timeout=20m"}, packages: everywhere}},
	{name: "tables", onlyFull: true, commands: [][]string{{"make", "tables"}}},
	{name: "capi", onlyFull: true, tests: &tests{
		dir: "test/capi", args: []string{"-tags=e2e,grpcnotrace", "-count=1", "-timeout=40m", "-skip=^Test(ClusterAPI$|Probe)"}, packages: everywhere,
	}},
	{name: "e2e", tests: &tests{
		args:     []string{"-tags=e2e,grpcnotrace", "-count=1", "-timeout=5h", "-parallel=64", "-skip=^Test(Ansible|CloudInit)$"},
		packages: []string{"./test/e2e/..."}, each: true,
	}},
}
