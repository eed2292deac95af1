// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// DefaultTokenUsages and DefaultTokenGroups are what a token is for unless the
// user says otherwise.
func DefaultTokenUsages() []string { return []string{"signing", "authentication"} }

// DefaultTokenGroups are the groups of whoever shows a token.
func DefaultTokenGroups() []string { return []string{defaultTokenGroup} }

// TokenFlags is what the command line of `token create` says. The fields but
// Token count even if Given does not name them: they hold their defaults.
type TokenFlags struct {
	// Given names the flags that the command line has, without dashes.
	Given []string
	// Token is the argument; empty for a token that is to be made up.
	Token       string
	TTL         time.Duration
	Usages      []string
	Groups      []string
	Description string
}

// LoadTokens returns the tokens that `token create` shall create: those of a
// file's InitConfiguration, or the one that the command line describes where
// src is nil. Bad input is returned as Faults; no message holds a token.
func LoadTokens(src *Source, flags TokenFlags, opts Options) ([]Token, []string, error) {
	d := read(src)
	if src != nil {
		flags.refuseMixing(d)
		if d.init == nil || len(d.init.BootstrapTokens) == 0 {
			d.fault(Fault{File: src.Name, Message: "holds no InitConfiguration with bootstrapTokens"})
		}
	} else {
		flags.describe(d)
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
			t.Groups = nil // nobody shows it, so it is in no group
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

func (f *TokenFlags) refuseMixing(d *documents) {
	for _, flag := range []string{"ttl", "usages", "groups", "description"} {
		if slices.Contains(f.Given, flag) {
			d.fault(Fault{Field: "--" + flag, Message: "cannot be given together with --config; write the value into the file"})
		}
	}
	if f.Token != "" {
		d.fault(Fault{Message: "a token cannot be given together with --config; write it into the file"})
	}
}

// describe puts the one token of the command line where a file has its tokens.
func (f *TokenFlags) describe(d *documents) {
	t := BootstrapToken{
		Token: f.Token, Description: f.Description, TTL: &metav1.Duration{Duration: f.TTL},
		Usages: f.Usages, Groups: f.Groups,
	}
	if !slices.Contains(f.Given, "groups") && !slices.Contains(f.Usages, "authentication") {
		t.Groups = nil
	}
	for _, flag := range []string{"ttl", "usages", "groups", "description"} {
		d.setByFlag(kindInit, flag, "bootstrapTokens[0]."+flag)
	}
	d.init = &InitConfiguration{BootstrapTokens: []BootstrapToken{t}}
}

var tokenIDPattern = lazyregexp.New(`^[a-z0-9]{6}$`)

// TokenID returns the ID of a token that is given as such or in full. The
// error does not repeat the text, which may be a mistyped secret.
func TokenID(text string) (string, error) {
	id, _, _ := strings.Cut(text, ".")
	if tokenIDPattern().MatchString(text) || tokenPattern().MatchString(text) {
		return id, nil
	}
	return "", errors.New("is neither the ID of a bootstrap token (six of the characters a-z and 0-9) nor a whole one (ID, a dot, sixteen of the same)")
}

// APINode is the Node of a command that only speaks to the API: it knows the
// kubeconfig file (empty for admin.conf), the tokens to create, and the
// defaults of timeouts and paths.
func APINode(kubeconfig string, tokens []Token) *Node {
	p := paths(&ClusterConfiguration{CertificatesDir: DefaultCertificatesDir}, &InitFlags{})
	p.AdminKubeconfig = cmp.Or(kubeconfig, p.AdminKubeconfig)
	return &Node{BootstrapTokens: tokens, Timeouts: defaultLimits(), Paths: p}
}

// CertificateKey reads a certificate key; an empty text is none. The error
// does not repeat it.
func CertificateKey(text string) (Secret, error) {
	if text != "" && !certificateKeyForm().MatchString(text) {
		return Secret{}, errors.New("is no certificate key: 64 hexadecimal digits (32 bytes, AES-256); `slipway certs certificate-key` makes one")
	}
	return NewSecret(text), nil
}

// NewToken makes up a bootstrap token of 110 random bits, 80 of them secret.
//
// It stands here because k8s.io/cluster-bootstrap/token/util costs each start
// of the program 0.7 ms: it compiles its expressions when it is loaded.
func NewToken() (id, secret string) {
	text := strings.ToLower(rand.Text()) // of a-z and 2-7
	return text[:6], text[6:22]
}

// IsToken tells whether text has the form of a bootstrap token, id.secret.
func IsToken(text string) bool { return tokenPattern().MatchString(text) }
