// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"slices"
	"strings"
)

// proxySchemes are those that clients know. What stands in front of :// may be
// a part of a password, too.
var proxySchemes = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// Proxy returns a proxy's address without user and password. Clients take one
// without a scheme, and passwords whose characters are not escaped, which no
// parser of URLs gets right: all that comes before the last @ goes.
func Proxy(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return address
	}
	shown := mark + address[at:]
	scheme, _, found := strings.Cut(address[:at], "://")
	if found && slices.Contains(proxySchemes, strings.ToLower(scheme)) {
		shown = scheme + "://" + shown
	}
	return shown
}

var (
	// namedProxy is the variable of a proxy with its value: in an environment,
	// in JSON, as the item of a list of variables.
	namedProxy = lazy(`(?i)(_proxy\\*["']?\s*(?:[=:]|,?\s*\\*["']?value\\*["']?\s*:)\s*\\*["']?)([^\s"'\\]+)`)
	// urlUser is user:password@ of a URL; with a slash in it, what comes after
	// the colon is not just a port.
	urlUser = lazy(`(://)(?:[^\s/@"'\\]*:[^\s/"'\\]*@|[^\s/@"'\\[]*:[^\s/"'\\@]*[^\s/"'\\@\d][^\s/"'\\@]*/[^\s"'\\]*@)`)
	// urlToken is a user alone, as Git takes tokens.
	urlToken = lazy(`((?i:https?)://)[^\s/@"'\\]+@`)
	// bareUser is the same without a scheme, which then needs a port behind it:
	// the digest of an image also has a colon before and behind its @.
	bareUser = lazy(`(^|[\s"'=,;(])[^\s/@"'\\:=,;(]+:[^\s/@"'\\]+(@[\w.-]+:\d{1,5}\b)`)
)

// URLs replaces user and password of every URL and of every proxy, and leaves
// all else as it is.
func URLs(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	text = namedProxy().ReplaceAllStringFunc(text, func(found string) string {
		groups := namedProxy().FindStringSubmatch(found)
		return groups[1] + Proxy(groups[2])
	})
	text = urlUser().ReplaceAllString(text, "${1}"+mark+"@")
	text = urlToken().ReplaceAllString(text, "${1}"+mark+"@")
	return bareUser().ReplaceAllString(text, "${1}"+mark+"${2}")
}
