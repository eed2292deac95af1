// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// formRules find secrets by their own form, wherever they are.
var formRules = []rule{
	// A private key in PEM, also where its lines were joined by \n in a string,
	// and one whose end or beginning was cut off.
	{lazy(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)(.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\z))`), nil},
	{lazy(`()([A-Za-z0-9+/=\s]{16,}-----END [A-Z ]*PRIVATE KEY-----)`), nil},
	// Bootstrap tokens.
	{lazy(`(\b[a-z0-9]{6}\.)([a-z0-9]{16})\b`), nil},
	// JSON Web Tokens, such as those of service accounts.
	{lazy(`()(\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*)`), nil},
	{lazy(`(?i)(\b(?:bearer|basic|negotiate)(?:[ \t]+|%20|\+))([A-Za-z0-9+/=._~:-]{8,})`), matches(authenticationWords)},
	// The part of a URL by which chat services let one post.
	{lazy(`(hooks\.slack\.com/(?:services|workflows|triggers)/)([\w/+-]+)`), nil},
	{lazy(`(discord(?:app)?\.com/api/webhooks/)([\w/-]+)`), nil},
	// A key of an Azure storage account, which is as long as a SHA-512.
	{lazy(`((?:^|[^A-Za-z0-9+/-]))([A-Za-z0-9+/]{86}==)`), nil},
	// An Azure client secret.
	{lazy(`((?:^|[^\w.~-]))([\w.~-]{3}\dQ~[\w.~-]{31,34})`), nil},
	// A secret key of AWS is 40 characters with nothing to know them by.
	{lazy(`()([A-Za-z0-9+/_.-]{40,})`), func(s string) bool { return !isAWSSecret(s) }},
}

// authenticationWords follow "basic" and "bearer" in sentences.
var authenticationWords = lazy(`(?i)^(?:authenticat|authori[sz]|credential|challenge|constraint|configuration|functionality|information|settings)[a-z]*[.:]?$`)

// isAWSSecret: 40 characters of base64 that are mixed as random ones are. A hash
// in hex is no secret, nor is a path or a long name.
func isAWSSecret(s string) bool {
	if len(s) != 40 || strings.ContainsAny(s, "_.-") {
		return false
	}
	var upper, lower, digit bool
	different := map[rune]bool{}
	for _, r := range s {
		upper, lower, digit = upper || unicode.IsUpper(r), lower || unicode.IsLower(r), digit || unicode.IsDigit(r)
		different[r] = true
	}
	return upper && lower && digit && len(different) >= 20
}

// base64 in lines, and in one run.
var base64Runs = []rule{
	{lazy(`()((?:[A-Za-z0-9+/]{60,80}(?:\\n|\r?\n[ \t]*))+[A-Za-z0-9+/]{1,80}={0,2})`), nil},
	{lazy(`()([A-Za-z0-9+/_-]{16,}={0,2})`), nil},
}

// encoded hides what is base64 of a text with a secret, so often encoded at
// most.
func encoded(text string, times int) string {
	if times == 0 {
		return text
	}
	for _, r := range base64Runs {
		r.stays = func(run string) bool { return !encodesSecret(run, times) }
		text = r.hide(text)
	}
	return text
}

// toStandard takes the line ends out of base64, and makes that of URLs the
// usual one.
var toStandard = strings.NewReplacer(`\n`, "", "\n", "", "\r", "", " ", "", "\t", "", "=", "", "-", "+", "_", "/")

// encodesSecret tries the places where the encoded text may begin, as what
// stands before it, such as a path, may look like base64, too.
func encodesSecret(run string, times int) bool {
	run = toStandard.Replace(run)
	starts := []string{run, run[1:], run[2:], run[3:]}
	for _, rest, found := strings.Cut(run, "/"); found && len(starts) < 12; _, rest, found = strings.Cut(rest, "/") {
		starts = append(starts, rest)
	}
	for _, part := range starts {
		if len(part)%4 == 1 {
			part = part[:len(part)-1]
		}
		data, err := base64.RawStdEncoding.DecodeString(part)
		if err != nil || !isText(data) {
			continue
		}
		text := string(data)
		shown := betweenCertificates(text, func(part string) string { return hide(part, times-1) })
		if shown != text || userAndPassword().MatchString(text) {
			return true
		}
	}
	return false
}

// userAndPassword is what registries and HTTP's basic scheme want.
var userAndPassword = lazy(`^[^\s:]+:[^\s:][^\s]*$`)

func isText(data []byte) bool {
	return utf8.Valid(data) && !slices.ContainsFunc([]rune(string(data)), func(r rune) bool {
		return !unicode.IsPrint(r) && !unicode.IsSpace(r)
	})
}

// certificate is one in PEM; nothing in it is secret, though it may look so.
var certificate = lazy(`-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----`)

func betweenCertificates(text string, shown func(part string) string) string {
	var out strings.Builder
	end := 0
	for _, at := range certificate().FindAllStringIndex(text, -1) {
		block, _ := pem.Decode([]byte(text[at[0]:at[1]]))
		if block == nil {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			continue
		}
		out.WriteString(shown(text[end:at[0]]) + text[at[0]:at[1]])
		end = at[1]
	}
	return out.String() + shown(text[end:])
}

var (
	// hexKey is the form of a certificate key, 32 bytes as hex. Container IDs and
	// digests have it, too.
	hexKey = lazy(`(\b)([0-9a-fA-F]{64})\b`)
	// hexID is one that is a digest, or by its place the ID of a container or of
	// a sandbox.
	hexID = lazy(`(?i)(?:sha256[:~/-]|(?:containerd|cri-?o|docker|libpod)(?:://|[-:])|/(?:k8s\.io|sandboxes|containers|overlay-containers)/|(?:container|sandbox)(?: for|[ _-]?id)?\\*["']?[ :={]+(?:Type:\w+ ID:)?\\*["']?|\bid\\*["']?[:=]\\*["']?|Type\\*":\\*"Container\w+\\*",\\*"Data\\*":\\*")([0-9a-f]{64})\b`)
)

// hideHexKeys hides 64 hex digits that are not known to be something else.
func hideHexKeys(text string, known []string) string {
	ids := slices.Clone(known)
	for _, found := range hexID().FindAllStringSubmatch(text, -1) {
		ids = append(ids, found[1])
	}
	return rule{hexKey, func(found string) bool { return slices.Contains(ids, found) }}.hide(text)
}
