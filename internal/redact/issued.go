// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// token is the form of a secret with a prefix of its issuer.
type token struct {
	begins string
	rest   string // an expression for what follows
}

var issuers = []token{
	// AWS: access keys, then session tokens.
	{"AKIA", `[A-Z2-7]{16}`}, {"ASIA", `[A-Z2-7]{16}`}, {"ABIA", `[A-Z2-7]{16}`}, {"ACCA", `[A-Z2-7]{16}`},
	{"A3T", `[A-Z0-9][A-Z2-7]{16}`}, {"ABSK", `[A-Za-z0-9+/]{100,}`}, {"bedrock-api-key-", `[\w+/=-]{20,}`},
	{"IQoJb3JpZ2lu", `[\w+/=-]{20,}`}, {"FwoGZXIvYXdz", `[\w+/=-]{20,}`}, {"FQoGZXIvYXdz", `[\w+/=-]{20,}`}, {"AQoDYXdz", `[\w+/=-]{20,}`},
	// Google: API keys, OAuth's tokens and secrets, keys of storage.
	{"AIza", `[\w-]{35}`}, {"ya29.", `[\w-]{10,}`}, {"1//0", `[\w-]{20,}`}, {"GOCSPX-", `[\w-]{20,}`}, {"GOOG1", `[A-Za-z0-9]{20,}`},
	// Other clouds.
	{"dop_v1_", `[a-fA-F0-9]{32,}`}, {"doo_v1_", `[a-fA-F0-9]{32,}`}, {"dor_v1_", `[a-fA-F0-9]{32,}`},
	{"LTAI", `[A-Za-z0-9]{12,30}`}, {"AKID", `[A-Za-z0-9]{30,}`}, {"SCW", `[A-Z0-9]{17}`}, {"tskey-", `[\w-]{10,}`}, {"fo1_", `[\w-]{40,}`}, {"fm", `(?:1[ar]|2)_[A-Za-z0-9+/]{80,}`},
	{"v1.0-", `[a-f0-9]{24}-[a-f0-9]{40,}`}, {"HRKU-", `[\w-]{40,}`}, {"tk-us-", `[\w-]{40,}`}, {"pscale_", `[a-z]+_[\w=.-]{24,}`},
	// Git: GitHub, GitLab, Bitbucket.
	{"ghp_", `[A-Za-z0-9]{20,}`}, {"gho_", `[A-Za-z0-9]{20,}`}, {"ghu_", `[A-Za-z0-9]{20,}`}, {"ghs_", `[A-Za-z0-9]{20,}`}, {"ghr_", `[A-Za-z0-9]{20,}`},
	{"github_pat_", `\w{20,}`}, {"gl", `(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w.-]{16,}`}, {"GR1348941", `[\w-]{20,}`},
	{"ATBB", `[\w=]{24,}`}, {"ATATT3", `[\w=-]{50,}`}, {"ATCTT3", `[\w=-]{50,}`},
	// Registries of packages and images.
	{"npm_", `[A-Za-z0-9]{20,}`}, {"pypi-", `[\w-]{40,}`}, {"rubygems_", `[a-f0-9]{48}`}, {"dckr_", `[po]at_[\w-]{20,}`}, {"AKCp", `[A-Za-z0-9]{60,}`}, {"cio", `[A-Za-z0-9]{32}`},
	{"cmVmd", `[A-Za-z0-9]{59}`}, {"CLOJARS_", `[A-Za-z0-9]{40,}`},
	// Secret stores and machine services.
	{"hvs.", `[\w-]{20,}`}, {"hvb.", `[\w-]{20,}`}, {"hvr.", `[\w-]{20,}`}, {"s.", `[A-Za-z0-9]{24}\b`}, {"b.AAAAAQ", `[\w-]{20,}`},
	{"dp.", `(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}`}, {"pul-", `[a-f0-9]{40}`}, {"AGE-SECRET-KEY-1", `[0-9A-Z]{20,}`}, {"ops_eyJ", `[\w+/=-]{50,}`},
	{"glsa_", `\w{32,}`}, {"glc_", `[\w+/=-]{32,}`}, {"NRAK-", `[A-Za-z0-9]{20,}`}, {"dt0c01.", `[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}`}, {"sntr", `y[su]_[\w+/=-]{30,}`},
	{"dapi", `[a-f0-9]{32}`}, {"nvapi-", `[\w-]{30,}`}, {"hf_", `[A-Za-z0-9]{30,}`}, {"sk-", `[\w-]{20,}`},
	{"A3-", `[A-Z0-9]{6}-[A-Z0-9-]{20,}`}, {"sha256~", `[\w-]{43}`}, {"eyJrIjoi", `[\w+/=-]{40,}`}, {"api_org_", `[A-Za-z0-9]{30,}`}, {"pplx-", `[A-Za-z0-9]{40,}`},
	{"pnu_", `[A-Za-z0-9]{30,}`}, {"API-", `[A-Z0-9]{26}`}, {"PMAK-", `[A-Za-z0-9-]{30,}`}, {"rdme_", `[a-z0-9]{60,}`}, {"sgp_", `\w{40,}`}, {"4b1d", `[A-Za-z0-9]{38}`},
	{"pat.", `[\w-]{22}\.\w{24}\.\w{20}`}, {"sat.", `[\w-]{22}\.\w{24}\.\w{20}`}, {"sm_", `[aps]at_[A-Za-z0-9]{16}`}, {"ico-", `[A-Za-z0-9]{32}`}, {"p8e-", `[A-Za-z0-9]{32}`},
	{"lin_api_", `[A-Za-z0-9]{30,}`}, {"ntn_", `[A-Za-z0-9]{40,}`}, {"fio-u-", `[\w=-]{40,}`},
	// Chat, mail, money.
	{"duffel_", `(?:test|live)_[\w=-]{30,}`}, {"EZ", `[AT]K[A-Za-z0-9]{54}`}, {"FLW", `(?:SEC|PUB)K(?:_TEST)?-[A-Za-z0-9-]{12,}`}, {"shippo_", `(?:live|test)_[a-fA-F0-9]{40}`},
	{"sq0", `[a-z]{3}-[\w-]{20,}`}, {"EAA", `[AMC][\w-]{21,}`},
	{"xox", `[a-z](?:\.[a-z]+)?-[\w.-]{8,}`}, {"xapp-", `[\w-]{10,}`}, {"xwfp-", `[\w-]{10,}`}, {"SG.", `[\w=.-]{40,}`},
	{"sk_", `(?:live|test|prod)_\w{10,}`}, {"rk_", `(?:live|test|prod)_\w{10,}`}, {"SK", `[0-9a-fA-F]{32}`}, {"shp", `(?:at|ca|pa|ss)_[a-fA-F0-9]{32}`},
}

// issuedForms are the expressions of issuers. Each begins with literal letters, which
// makes it fast.
var issuedForms = func() []lazyregexp.Pattern {
	forms := make([]lazyregexp.Pattern, len(issuers))
	for i, t := range issuers {
		forms[i] = lazyregexp.New(regexp.QuoteMeta(t.begins) + t.rest)
	}
	return forms
}()

// issued hides the tokens of known issuers.
func issued(text string) string {
	for i, t := range issuers {
		if !strings.Contains(text, t.begins) {
			continue
		}
		var out strings.Builder
		end := 0
		for _, at := range issuedForms[i]().FindAllStringIndex(text, -1) {
			if at[0] > 0 && isAlphanumeric(text[at[0]-1]) {
				continue
			}
			out.WriteString(text[end:at[0]] + mark)
			end = at[1]
		}
		text = out.String() + text[end:]
	}
	return text
}
