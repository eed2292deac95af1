// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
)

func (c *cleanup) removeAccounts(context.Context) {
	c.did(c.Accounts().RemoveUsers())
	c.did(c.Accounts().RemoveGroups())
}
