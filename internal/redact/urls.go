// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

var urlUser = lazy(`(://)[^\s/@"'\\]*:[^\s/"'\\]*@`)

// URLs replaces user and password of every URL, such as a proxy's, and leaves
// all else as it is.
func URLs(text string) string { return urlUser().ReplaceAllString(text, "${1}"+mark+"@") }
