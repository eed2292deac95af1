// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// proxySchemes lists the schemes clients know. Other text before :// may be part of a password.
var proxySchemes = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// Proxy returns a proxy's address without everything before the last @: clients accept addresses without a scheme, and passwords
// with unescaped characters, which no URL parser can handle.
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
	// namedProxy matches a proxy variable with its value: in an environment, in JSON, or as an item of a list of variables.
	namedProxy = lazyregexp.New(`(?i)(_proxy\\*["']?\s*(?:[=:]|,?\s*\\*["']?value\\*["']?\s*:)\s*\\*["']?)([^\s"'\\]+)`)
	// urlUser matches user:password@ in a URL; if the password contains a slash, the part before that must not be a port.
	urlUser = lazyregexp.New(`(://)(?:[^\s/@"'\\]*:[^\s/"'\\]*@|[^\s/@"'\\[]*:[^\s/"'\\@]*[^\s/"'\\@\d][^\s/"'\\@]*/[^\s"'\\]*@)`)
	// urlToken matches a user alone, as Git accepts tokens.
	urlToken = lazyregexp.New(`((?i:https?)://)[^\s/@"'\\]+@`)
	// bareUser matches user:password@ without a scheme. A port must follow: an image's digest also has colons around its @.
	bareUser = lazyregexp.New(`(^|[\s"'=,;(])[^\s/@"'\\:=,;(]+:[^\s/@"'\\]+(@[\w.-]+:\d{1,5}\b)`)
)

// URLs replaces the user and password of every URL and every proxy, and nothing else.
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
