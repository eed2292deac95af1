// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package corefile brings a Corefile, the configuration of CoreDNS, from one version of CoreDNS to another. What changes
// between versions comes from the tables of github.com/coredns/corefile-migration.
package corefile

import (
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/corefile-migration/migration"
	"github.com/coredns/corefile-migration/migration/corefile"
	"github.com/pkg/errors"
)

// Version returns the version of CoreDNS that an image has, such as 1.14.6: by its tag, or else by its digest if that is
// one of a CoreDNS release. It is empty if neither is there.
func Version(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "" {
		tag, _ = migration.VersionFromSHA(strings.TrimPrefix(digest, "sha256:"))
	}
	return strings.TrimPrefix(tag, "v")
}

// UnknownPluginsError names what a Corefile has that the tables do not know: it cannot be said whether the new version of
// CoreDNS still accepts it.
type UnknownPluginsError struct {
	// Version is the new version, Parts are plugins and options.
	Version string
	Parts   []string
}

func (e *UnknownPluginsError) Error() string {
	return "the Corefile uses " + strings.Join(e.Parts, ", ") + ", and it is not known whether CoreDNS " + e.Version + " still supports that"
}

// Migrate returns a Corefile for version to of CoreDNS, made from one for version from. It returns the text as it is if
// nothing has to change, comments included; a text that changes loses its comments. Deprecated settings stay. Versions
// have no leading v.
//
// The error is an *UnknownPluginsError for plugins and options that are unknown; the text is then what it would be if
// these stay as they are. Other errors are about versions that are unknown or go down, and about a Corefile that cannot
// be read or written without losing some of it.
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

// parse reads a Corefile, which must keep all of its words when it is written again: the library knows two levels of
// braces, and panics when a block has no beginning.
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

// words are those of a Corefile without its braces: a block that is empty may be left out.
func words(text string) (list []string) {
	for d := caddyfile.NewDispenser("Corefile", strings.NewReader(text)); d.Next(); {
		if word := d.Val(); word != "{" && word != "}" {
			list = append(list, word)
		}
	}
	return list
}

// unknownIn returns the plugins and options of a Corefile that the tables for version to do not have. The tables of the
// versions in between do not count.
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
