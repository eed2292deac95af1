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

var (
	// privateKey and privateKeyEnd match PEM keys, even with lines joined by \n in a string, or with the beginning or end cut off.
	privateKey    = lazyregexp.New(`(?s)(-----BEGIN[ A-Z0-9_-]*PRIVATE KEY(?: BLOCK)?-----).*?(?:-----END[ A-Z0-9_-]*PRIVATE KEY(?: BLOCK)?-----|\z)`)
	privateKeyEnd = lazyregexp.New(`[A-Za-z0-9+/=\s]{16,}(-----END[ A-Z0-9_-]*PRIVATE KEY-----)`)
	// bootstrapToken matches kubeadm's tokens.
	bootstrapToken = lazyregexp.New(`(\b[a-z0-9]{6}\.)[a-z0-9]{16}\b`)
)

// issued matches words that begin with an issuer's prefix for its tokens. Most tokens of other issuers look random.
var issued = lazyregexp.New(`^(?:s\.[A-Za-z0-9]{24}\b|(?:` +
	// Clouds, chat, mail, payments.
	`(?:A(?:KIA|SIA|BIA|CCA|3T[A-Z0-9])[A-Z2-7]{4}|LTAI|SCW[A-Z0-9]{8}|EAA[AMC]|xox[a-z]|xapp-|xwfp-|SG\.|[rs]k_(?:live|test|prod)_|FLW[A-Z]{3}K|sm_[aps]at_)[\w.=-]{8}` +
	`|(?:AIza|ya29\.|GOCSPX-|GOOG1|AKID|ABSK|bedrock-api-key-|do[opr]_v1_|dapi|v1\.0-[a-f0-9]{24}-|[\w.~-]{3}\dQ~|tskey-|fo1_|HRKU-|tk-us-|nvapi-|NRAK-` +
	`|shp[a-z]{2}_|shippo_|sq0[a-z]{3}-|SK[0-9a-fA-F]{16}|EZ[AT]K|duffel_|p8e-|ico-|sk-|hf_|pplx-|api_org_|API-[A-Z0-9]{10}|PMAK-|pnu_|fio-u-` +
	// Git servers, registries, secret stores, trackers.
	`|gh[oprsu]_|github_pat_|gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-|GR1348941|AT(?:BB|ATT3|CTT3)|npm_|pypi-|rubygems_|CLOJARS_|dckr_[op]at_|AKCp` +
	`|hv[brs]\.|dp\.[a-z]+\.|pul-|pscale_|AGE-SECRET-KEY-|A3-|ops_eyJ|gl[cs]a?_|sntry[su]_|sgp_|dt0c01\.|[A-Za-z0-9]{14}\.atlasv1\.|\w+\.\w{4,6}\.acc[_-]|lin_api_|ntn_|rdme_` +
	// OpenShift, and JSON Web Tokens.
	`|sha256~|eyJ)[\w~.+/=-]{16}))`)

// runs replaces each run of at least that many letters, digits and others by shown's result, given the text before it, too.
func runs(text string, least int, others string, shown func(before, run string) string) string {
	var out strings.Builder
	end, begin := 0, 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && (kind(rune(text[i])) != '-' || strings.IndexByte(others, text[i]) >= 0) {
			continue
		}
		if i-begin >= least {
			out.WriteString(text[end:begin] + shown(text[:begin], text[begin:i]))
			end = i
		}
		begin = i + 1
	}
	return out.String() + text[end:]
}

// hideWords hides known issuers' tokens, words that look random, and base64 of text.
func hideWords(text string) string {
	return runs(text, 12, "+/_-.~=", func(_, word string) string {
		for i := range word {
			if (i == 0 || kind(rune(word[i-1])) == '-') && issued().MatchString(word[i:]) {
				word = word[:i] + mark
				break
			}
		}
		return runs(word, shortest, "+/_-", func(_, run string) string {
			if hides(run) {
				return mark
			}
			return run
		})
	})
}

const (
	// shortest is the minimum length of a word that looks random.
	shortest = 16
	// azureKey is the length of an Azure storage account's key, without its padding.
	azureKey = 86
)

// hides reports whether a word looks random, or is base64 of text other than certificates.
func hides(word string) bool {
	if text, whole := decoded(word); text != "" {
		return !whole || !allCertificates(text)
	}
	return len(word) == azureKey || looksRandom(word) || slices.ContainsFunc(strings.Split(word, "/"), looksRandom)
}

// looksRandom reports whether a word changes between lower case, upper case and digits more often than names do.
func looksRandom(word string) bool {
	kinds := strings.Map(kind, word)
	count := func(pairs ...string) (n int) {
		for _, pair := range pairs {
			n += strings.Count(kinds, pair)
		}
		return n
	}
	length, groups := len(kinds)-count("-"), count("ld", "ud")
	changes := groups + count("dl", "du", "lu")
	return length >= shortest && count("l") >= 2 && count("u") >= 2 && changes*8 >= 16+length && (groups >= 2 || length >= 32 && count("d") > 0)
}

func kind(r rune) rune {
	switch {
	case '0' <= r && r <= '9':
		return 'd'
	case 'a' <= r && r <= 'z':
		return 'l'
	case 'A' <= r && r <= 'Z':
		return 'u'
	}
	return '-'
}

// toStandard replaces base64's URL alphabet with the standard alphabet.
var toStandard = strings.NewReplacer("-", "+", "_", "/")

// decoded returns the text encoded in base64 in a word or its rest, such as the last part of a path.
func decoded(word string) (text string, whole bool) {
	word = toStandard.Replace(word)
	for i, tried := 0, 0; len(word)-i >= shortest && tried < 12; i++ { // a long word may have many slashes
		if i > 3 && word[i-1] != '/' && word[i-1] != '+' {
			continue
		}
		tried++
		data, err := base64.RawStdEncoding.DecodeString(word[i : len(word)-(len(word)-i)%4])
		if err == nil && isText(data) {
			return string(data), i == 0
		}
	}
	return "", false
}

func allCertificates(text string) bool {
	between := ""
	betweenCertificates(text, func(part string) string {
		between += part
		return part
	})
	return strings.TrimSpace(between) == ""
}

func isText(data []byte) bool {
	return utf8.Valid(data) && !strings.ContainsFunc(string(data), func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) })
}

var certificate = lazyregexp.New(`-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----`)

// betweenCertificates passes the text around certificates through shown: certificates have no secrets, but look random.
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

var hexKey = lazyregexp.New(`^[0-9a-fA-F]{64}$`)

// hexKeys hides 64 hex digits, the form of certificate keys, unless the text around them says it's an ID.
func hexKeys(text string, known []string) string {
	ids := slices.Clone(known)
	runs(text, 64, "", func(before, run string) string {
		if !slices.Contains(ids, run) && hexID().MatchString(before[max(0, len(before)-64):]) {
			ids = append(ids, run)
		}
		return run
	})
	return runs(text, 64, "", func(_, run string) string {
		if hexKey().MatchString(run) && !slices.Contains(ids, run) {
			return mark
		}
		return run
	})
}
