// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"testing"

	"github.com/slipway-k8s/slipway/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
