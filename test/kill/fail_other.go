// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package kill

import "syscall"

// CanFail reports whether Fail works on this kind of machine.
const CanFail = false

func fail(int, syscall.Errno) {}
