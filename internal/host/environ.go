// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import "os"

// Environ implements Facts.
func (r *Real) Environ() []string { return os.Environ() }
