// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

func Disabled(is bool, field string) string {
	if is {
		return field + " is set in the ClusterConfiguration"
	}
	return ""
}
