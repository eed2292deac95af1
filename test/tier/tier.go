// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package tier tells a test how much of itself to run. The core tier, `make test`, runs samples of the long tests; the full tier,
// `make test-full`, runs everything. docs/testing.md says which test belongs where.
package tier

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

const (
	// Variable is the environment variable that chooses the tier: "full", or else core. Tests' programs inherit it.
	Variable = "SLIPWAY_TEST_TIER"
	// Seed is the environment variable with the seed of all samples, any text. `make test` uses the commit.
	Seed = "SLIPWAY_TEST_SEED"
)

// Full reports whether the full tier runs.
func Full() bool { return os.Getenv(Variable) == "full" }

// OnlyFull skips a test in the core tier. instead names a core test that keeps the same promise, as a literal: TestName or
// TestName/row, after the package and a dot if it's in another one.
func OnlyFull(t testing.TB, instead string) {
	t.Helper()
	if !Full() {
		t.Skipf("only in `make test-full`; in `make test`, %s stands for it", instead)
	}
}

// Sample chooses n of the numbers from 0 to total-1, in order; in the full tier, all of them. The choice depends on the seed and
// on the test's name, so successive commits cover everything.
func Sample(t testing.TB, n, total int) []int {
	t.Helper()
	if Full() || n >= total {
		n = total
	} else {
		t.Logf("a sample of %d of %d, by %s=%q", n, total, Seed, os.Getenv(Seed))
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	named := h.Sum64()
	_, _ = h.Write([]byte(os.Getenv(Seed)))
	chosen := rand.New(rand.NewPCG(h.Sum64(), named)).Perm(total)[:n] //nolint:gosec // not a secret
	slices.Sort(chosen)
	return chosen
}
