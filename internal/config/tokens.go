// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// DefaultTokenUsages are a token's usages if none are configured.
func DefaultTokenUsages() []string { return []string{"signing", "authentication"} }

// DefaultTokenGroups are granted to clients with a token if it has no groups configured.
func DefaultTokenGroups() []string { return []string{defaultTokenGroup} }

// LoadTokens returns the tokens to create: a file's, from its InitConfiguration, or the command line's if src is nil. Invalid
// input is returned as Faults; no message contains a token.
func LoadTokens(src *Source, flags Flags, opts Options) ([]Token, []string, error) {
	d := read(src)
	if src == nil {
		d.init = &InitConfiguration{BootstrapTokens: []BootstrapToken{{Token: flags.Token}}}
	} else if flags.Token != "" {
		d.fault(Fault{Message: "a token cannot be given together with --config; add it to the file"})
	}
	flags.apply(d, "token create", src != nil, kindInit)
	if d.init == nil || len(d.init.BootstrapTokens) == 0 {
		d.fault(Fault{File: src.Name, Message: "contains no InitConfiguration with bootstrapTokens"})
	}
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	list, err := d.completeTokens(opts)
	return list, d.warningTexts(), err
}

func (d *documents) completeTokens(opts Options) ([]Token, error) {
	seen := make(map[string]bool)
	for i := range d.init.BootstrapTokens {
		t := &d.init.BootstrapTokens[i]
		signingOnly := len(t.Groups) == 0 && len(t.Usages) > 0 && !slices.Contains(t.Usages, "authentication")
		defaultToken(t)
		if signingOnly {
			t.Groups = nil // no client authenticates with it
		}
		d.checkToken(fmt.Sprintf("bootstrapTokens[%d]", i), t, seen, opts.Now)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	if err := d.nameTokens(opts); err != nil {
		return nil, err
	}
	return tokens(d.init.BootstrapTokens, opts)
}

var tokenIDPattern = lazyregexp.New(`^[a-z0-9]{6}$`)

// TokenID returns the ID of a token, given as an ID or in full. The error doesn't quote the text, which may be a mistyped secret.
func TokenID(text string) (string, error) {
	id, _, _ := strings.Cut(text, ".")
	if tokenIDPattern().MatchString(text) || tokenPattern().MatchString(text) {
		return id, nil
	}
	return "", errors.New("is neither a token ID (6 characters of a-z and 0-9) nor a full token (ID, a dot and 16 more such characters)")
}

// APINode returns the Node of a command that only talks to the API: the kubeconfig file (empty for admin.conf), the tokens to
// create, and default timeouts and paths.
func APINode(kubeconfig string, tokens []Token) *Node {
	p := paths(&ClusterConfiguration{CertificatesDir: DefaultCertificatesDir}, &Flags{})
	p.AdminKubeconfig = cmp.Or(kubeconfig, p.AdminKubeconfig)
	return &Node{BootstrapTokens: tokens, Timeouts: defaultLimits(), Paths: p}
}

// CertificateKey validates a certificate key; empty text is a zero Secret. The error doesn't quote it.
func CertificateKey(text string) (Secret, error) {
	if text != "" && !certificateKeyForm().MatchString(text) {
		return Secret{}, errors.New("is not a certificate key, which has 64 hexadecimal digits; `slipway certs certificate-key` generates one")
	}
	return NewSecret(text), nil
}

// NewToken generates a bootstrap token of 110 random bits, 80 of them secret. k8s.io/cluster-bootstrap/token/util would do, but
// compiles its regular expressions on loading, which costs every start of the program 0.7 ms.
func NewToken() (id, secret string) {
	text := strings.ToLower(rand.Text()) // of a-z and 2-7
	return text[:6], text[6:22]
}

// IsToken reports whether text has the form of a bootstrap token, id.secret.
func IsToken(text string) bool { return tokenPattern().MatchString(text) }
