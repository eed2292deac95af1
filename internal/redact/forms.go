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

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// formRules find secrets by their form, wherever they are.
var formRules = []rule{
	// Bootstrap tokens.
	{nil, lazyregexp.New(`(\b[a-z0-9]{6}\.)([a-z0-9]{16})\b`), nil},
	// JSON Web Tokens, such as those of service accounts.
	{[]string{"eyj"}, lazyregexp.New(`()(\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*)`), nil},
	{[]string{"bearer", "basic", "negotiate"}, lazyregexp.New(`(?i)(\b(?:bearer|basic|negotiate)(?:[ \t]+|%20|\+))([A-Za-z0-9+/=._~:-]{8,})`), matches(authenticationWords)},
	// The part of a URL that allows posting to a chat service.
	{[]string{"hooks.slack.com"}, lazyregexp.New(`(hooks\.slack\.com/(?:services|workflows|triggers)/)([\w/+-]+)`), nil},
	{[]string{"webhook.office.com"}, lazyregexp.New(`(webhook\.office\.com/)([\w/@-]+)`), nil},
	{[]string{"api/webhooks"}, lazyregexp.New(`(discord(?:app)?\.com/api/webhooks/)([\w/-]+)`), nil},
	// Tokens of Terraform, Authress and MaxMind, which are marked in the middle.
	{[]string{".atlasv1."}, lazyregexp.New(`()([A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,})`), nil},
	{[]string{".acc-", ".acc_"}, lazyregexp.New(`()(\b(?:sc|ext|scauth|authress)_[A-Za-z0-9]+\.\w{4,6}\.acc[_-][\w.+/=-]{40,})`), nil},
	{[]string{"_mmk"}, lazyregexp.New(`()(\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk)`), nil},
	// A key of an Azure storage account, which has the length of a SHA-512.
	{[]string{"=="}, lazyregexp.New(`((?:^|[^A-Za-z0-9+/-]))([A-Za-z0-9+/]{86}==)`), nil},
	// An Azure client secret.
	{[]string{"q~"}, lazyregexp.New(`((?:^|[^\w.~-]))([\w.~-]{3}\dQ~[\w.~-]{31,34})`), nil},
}

// authenticationWords matches words that follow "basic" and "bearer" in sentences.
var authenticationWords = lazyregexp.New(`(?i)^(?:authenticat|authori[sz]|credential|challenge|constraint|configuration|functionality|information|settings)[a-z]*[.:]?$`)

// pemKeys match private keys in PEM, also with lines joined by \n in a string, and with
// their beginning or end cut off.
var pemKeys = []rule{
	{nil, lazyregexp.New(`(?s)(-----BEGIN[ A-Z0-9_-]*PRIVATE KEY(?: BLOCK)?-----)(.*?(?:-----END[ A-Z0-9_-]*PRIVATE KEY(?: BLOCK)?-----|\z))`), nil},
	{nil, lazyregexp.New(`()([A-Za-z0-9+/=\s]{16,}-----END[ A-Z0-9_-]*PRIVATE KEY-----)`), nil},
}

func privateKeys(text string) string {
	if !strings.Contains(text, "PRIVATE KEY") {
		return text
	}
	for _, r := range pemKeys {
		text = r.hide(text)
	}
	return text
}

// awsSecrets hides secret keys of AWS. They are just 40 random characters of base64. A
// hash in hex, a path or a long name does not look random.
func awsSecrets(text string) string {
	return runs(text, 40, "+/_.-", func(_, run string) string {
		if len(run) != 40 || strings.ContainsAny(run, "_.-") {
			return run
		}
		different := map[rune]bool{}
		for _, r := range run {
			different[r] = true
		}
		if len(different) >= 20 && upper().MatchString(run) && lower().MatchString(run) && digit().MatchString(run) {
			return mark
		}
		return run
	})
}

var upper, lower, digit = lazyregexp.New(`[A-Z]`), lazyregexp.New(`[a-z]`), lazyregexp.New(`[0-9]`)

// wrapped matches base64 in lines.
var wrapped = rule{pattern: lazyregexp.New(`()((?:[A-Za-z0-9+/]{60,80}(?:\\n|\r?\n[ \t]*))+[A-Za-z0-9+/]{1,80}={0,2})`)}

// encoded hides base64 that decodes to a text with a secret, in at most so many layers.
func encoded(text string, times int) string {
	if times == 0 {
		return text
	}
	long := false
	text = runs(text, 16, "+/_-", func(_, run string) string {
		long = long || len(run) >= 60
		if encodesSecret(run, times) {
			return mark
		}
		return run
	})
	if !long {
		return text
	}
	lines := wrapped
	lines.stays = func(run string) bool { return !encodesSecret(run, times) }
	return lines.hide(text)
}

// toStandard removes line ends and padding from base64, and replaces the URL alphabet
// by the standard one.
var toStandard = strings.NewReplacer(`\n`, "", "\n", "", "\r", "", " ", "", "\t", "", "=", "", "-", "+", "_", "/")

// encodesSecret tries several beginnings of the encoded text, as text before it, such
// as a path, may look like base64, too.
func encodesSecret(run string, times int) bool {
	run = toStandard.Replace(run)
	starts := []string{run, run[1:], run[2:], run[3:]}
	for rest := run; len(starts) < 12; {
		i := strings.IndexAny(rest, "/+")
		if i < 0 {
			break
		}
		rest = rest[i+1:]
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

// userAndPassword matches the credentials of registries and of HTTP basic authentication.
var userAndPassword = lazyregexp.New(`^[^\s:]+:[^\s:][^\s]*$`)

func isText(data []byte) bool {
	return utf8.Valid(data) && !slices.ContainsFunc([]rune(string(data)), func(r rune) bool {
		return !unicode.IsPrint(r) && !unicode.IsSpace(r)
	})
}

// certificate matches a certificate in PEM. Nothing in it is secret, even if it looks
// like it.
var certificate = lazyregexp.New(`-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----`)

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

// hexID matches the text before a digest, or before the ID of a container or sandbox.
var hexID = lazyregexp.New(`(?i)(?:sha256[:~/-]|(?:containerd|cri-?o|docker|libpod)(?:://|[-:])|/(?:k8s\.io|sandboxes|containers|overlay-containers|run/containerd/s)/|(?:container|sandbox)(?: for|[ _-]?id)?\\*["']?[ :={]+(?:Type:\w+ ID:)?\\*["']?|\bid\\*["']?[:=]\\*["']?|Type\\*":\\*"Container\w+\\*",\\*"Data\\*":\\*")$`)

// hideHexKeys hides 64 hex digits, the form of certificate keys, unless they are known
// to be something else.
func hideHexKeys(text string, known []string) string {
	ids := slices.Clone(known)
	var keys bool
	find := func(before, run string) string {
		switch {
		case len(run) != 64 || !allHex().MatchString(run) || slices.Contains(ids, run):
		case hexID().MatchString(before[max(0, len(before)-64):]):
			ids = append(ids, run)
		default:
			keys = true
		}
		return run
	}
	runs(text, 64, "", find)
	if !keys {
		return text
	}
	return runs(text, 64, "", func(_, run string) string {
		if len(run) == 64 && allHex().MatchString(run) && !slices.Contains(ids, run) {
			return mark
		}
		return run
	})
}

var allHex = lazyregexp.New(`^[0-9a-fA-F]+$`)
