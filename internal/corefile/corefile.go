// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package corefile migrates a Corefile, CoreDNS's configuration, between versions with github.com/coredns/corefile-migration.
// Migrate is the entry point. It refuses to lose settings that it doesn't know.
package corefile

import (
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/corefile-migration/migration"
	"github.com/coredns/corefile-migration/migration/corefile"
	"github.com/pkg/errors"
)

// Version returns an image's version of CoreDNS, such as 1.14.6, by its tag, or else a release's digest; empty if unknown.
func Version(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "" {
		tag, _ = migration.VersionFromSHA(strings.TrimPrefix(digest, "sha256:"))
	}
	return strings.TrimPrefix(tag, "v")
}

// UnknownPluginsError names parts of a Corefile missing from the tables: the new version of CoreDNS may not accept them any more.
type UnknownPluginsError struct {
	// Version is the new version, Parts are plugins and options.
	Version string
	Parts   []string
}

func (e *UnknownPluginsError) Error() string {
	return "the Corefile uses " + strings.Join(e.Parts, ", ") + ", which CoreDNS " + e.Version + " may not support"
}

// Migrate turns a Corefile from CoreDNS's version from to version to. If nothing has to change, it returns the text as
// it is; a changed text loses its comments. Deprecated settings stay. Versions have no leading v.
//
// The error is an *UnknownPluginsError for unknown plugins and options; the text then keeps these as they are. Other errors are
// about unknown or decreasing versions, and about a Corefile that can't be read or written without losing some of it.
func Migrate(text, from, to string) (string, error) {
	if from == to {
		return text, nil
	}
	if err := migration.ValidUpMigration(from, to); err != nil {
		return "", errors.Errorf("it is not known how to migrate the Corefile from CoreDNS %q to %q (%v)", from, to, err)
	}
	before, err := parse(text)
	if err != nil {
		return "", err
	}
	after, err := migration.Migrate(from, to, text, false)
	if err != nil {
		return "", errors.Wrapf(err, "migrate the Corefile from CoreDNS %s to %s", from, to)
	}
	unknown, err := unknownIn(after, from, to)
	if err != nil {
		return "", err
	}
	if after == before.ToString() {
		after = text
	}
	if len(unknown) > 0 {
		return after, &UnknownPluginsError{Version: to, Parts: unknown}
	}
	return after, nil
}

// parse refuses a Corefile that would lose words when written again: the library knows two levels of braces, and panics when a
// block has no beginning.
func parse(text string) (parsed *corefile.Corefile, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("the braces of the Corefile do not match")
		}
	}()
	if parsed, err = corefile.New(text); err != nil {
		return nil, errors.Wrap(err, "the Corefile cannot be read")
	}
	if !slices.Equal(words(text), words(parsed.ToString())) {
		return nil, errors.New("the Corefile has a form that cannot be migrated without losing some of it, such as blocks in three levels")
	}
	return parsed, nil
}

// words returns a Corefile's words without its braces, as the library may leave out an empty block.
func words(text string) (list []string) {
	for d := caddyfile.NewDispenser("Corefile", strings.NewReader(text)); d.Next(); {
		if word := d.Val(); word != "{" && word != "}" {
			list = append(list, word)
		}
	}
	return list
}

// unknownIn returns a Corefile's plugins and options missing from the tables for version to. Versions in between don't count.
func unknownIn(text, from, to string) (parts []string, err error) {
	notices, err := migration.Unsupported(from, to, text)
	if err != nil {
		return nil, errors.Wrap(err, "check the Corefile's plugins")
	}
	for _, n := range notices {
		if n.Version != to {
			continue
		}
		part := "plugin " + n.Plugin
		if n.Option != "" {
			part = "option " + n.Option + " of " + part
		}
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts, nil
}
