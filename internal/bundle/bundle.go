// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package bundle works with bundles: one file with everything a node needs for one version of Kubernetes and one architecture.
// Create makes one from a List, Open verifies and opens it, Bundle.Each reads the parts, and Sign and Bundle.Push publish it.
// bundle.go has the index. docs/bundle.md describes the format; docs/design/bundles.md says why Slipway verifies a whole bundle
// first.
package bundle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// Identifiers of the format.
const (
	APIVersion = "slipway.bundle/v1"
	indexKind  = "BundleIndex"

	artifactType  = "application/vnd.slipway.bundle.v1"
	indexType     = types.MediaType("application/vnd.slipway.bundle.index.v1+json")
	partType      = types.MediaType("application/vnd.slipway.bundle.part.v1+zstd")
	signatureType = types.MediaType("application/vnd.slipway.bundle.signature.v1+minisign")
)

// Common tools recognize parts and images by these annotations.
const (
	annotationTitle = "org.opencontainers.image.title"
	annotationRef   = "org.opencontainers.image.ref.name"
	annotationImage = "io.containerd.image.name"
)

// Index describes a bundle and each of its parts. docs/bundle-index.schema.json is its JSON Schema.
type Index struct {
	APIVersion        string `json:"apiVersion"`
	Kind              string `json:"kind"`
	KubernetesVersion string `json:"kubernetesVersion"` // such as v1.37.2
	OS                string `json:"os"`                // as Go calls it
	Architecture      string `json:"architecture"`      // as Go calls it
	// Parts are sorted by type, then by name.
	Parts []Part `json:"parts"`
}

// Part is a file or an image.
type Part struct {
	// Name is a file name without a directory, or an image's full reference with a tag. It's unique within a type.
	Name    string `json:"name"`
	Type    Type   `json:"type"`
	Version string `json:"version"`
	Source  string `json:"source"`  // where it comes from, for people
	License string `json:"license"` // an SPDX expression
	// Digest is the file content's, or the image manifest's.
	Digest v1.Hash `json:"digest"`
	// Size in bytes is the file content's, or that of all the image's layers, uncompressed.
	Size int64 `json:"size"`
	// ConfigDigest is the digest of an image's configuration, which the CRI calls the image's ID; nil for a file.
	ConfigDigest *v1.Hash `json:"configDigest,omitempty"`
}

// Type is a part's kind, and so its place on a node.
type Type string

// The types, in an index's order.
const (
	Program   Type = "program"    // an executable for /usr/local/bin
	CNIPlugin Type = "cni-plugin" // an executable for /opt/cni/bin
	Unit      Type = "unit"       // a unit of systemd
	Setting   Type = "setting"    // settings of containerd for /etc/containerd/conf.d
	Image     Type = "image"      // a container image
)

var partTypes = []Type{Program, CNIPlugin, Unit, Setting, Image}

func (p Part) String() string { return string(p.Type) + " " + p.Name }

var (
	fileName          = lazyregexp.New(`^[a-z0-9][a-z0-9._@-]{0,99}$`)
	kubernetesVersion = lazyregexp.New(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	platformWord      = lazyregexp.New(`^[a-z0-9]+$`)
)

// validate checks an index, which an attacker may have made.
func (x *Index) validate() error {
	switch {
	case x.APIVersion != APIVersion || x.Kind != indexKind:
		return fault.New(fmt.Sprintf("the bundle's index is %q of %q, not %q of %q", x.Kind, x.APIVersion, indexKind, APIVersion),
			"use the Slipway that made the bundle, or a newer one")
	case !kubernetesVersion().MatchString(x.KubernetesVersion):
		return errors.Errorf("the bundle's kubernetesVersion %q is not a version such as v1.37.2", x.KubernetesVersion)
	case !platformWord().MatchString(x.OS) || !platformWord().MatchString(x.Architecture):
		return errors.Errorf("the bundle's platform %q is not one such as linux/amd64", x.OS+"/"+x.Architecture)
	}
	for i, p := range x.Parts {
		if err := p.validate(); err != nil {
			return err
		}
		if i > 0 && compareParts(x.Parts[i-1], p) >= 0 {
			return errors.Errorf("%s appears twice in the bundle's index, or in the wrong order", p)
		}
	}
	return nil
}

func (p Part) validate() error {
	if err := checkName(p.Type, p.Name); err != nil {
		return err
	}
	switch {
	case p.Version == "" || p.Source == "" || p.License == "":
		return errors.Errorf("%s has no version, source or license in the bundle's index", p)
	case p.Size < 0 || p.Digest.Algorithm != "sha256":
		return errors.Errorf("%s has a wrong size or digest in the bundle's index", p)
	case (p.Type == Image) != (p.ConfigDigest != nil):
		return errors.Errorf("%s: images, and only images, have a configDigest", p)
	}
	return nil
}

// checkName keeps names from leading out of their directory.
func checkName(t Type, text string) error {
	switch {
	case !slices.Contains(partTypes, t):
		return fault.New(fmt.Sprintf("part %q is of the unknown type %q", text, t), fmt.Sprintf("the types are %v", partTypes))
	case t != Image && !fileName().MatchString(text):
		return fault.New(fmt.Sprintf("%s %q: a name has only a-z, 0-9, '.', '_', '@' and '-', and begins with a letter or digit", t, text),
			"a name has no directory: the type says where the file belongs")
	case t == Setting && !strings.HasSuffix(text, ".toml"):
		return fault.New(fmt.Sprintf("setting %q: its name does not end in .toml", text), "settings are for containerd, which reads *.toml in /etc/containerd/conf.d")
	case t != Image:
		return nil
	}
	ref, err := name.NewTag(text, name.StrictValidation)
	if err != nil || strings.Replace(ref.Name(), name.DefaultRegistry+"/", "docker.io/", 1) != text {
		return fault.New(fmt.Sprintf("image %q is not a full reference with a tag", text),
			"write it like registry.k8s.io/pause:3.10.2")
	}
	return nil
}

func compareParts(a, b Part) int {
	return cmp.Or(slices.Index(partTypes, a.Type)-slices.Index(partTypes, b.Type), strings.Compare(a.Name, b.Name))
}

func (x *Index) platform() string { return x.OS + "/" + x.Architecture }

func (x *Index) files() []Part {
	n := slices.IndexFunc(x.Parts, func(p Part) bool { return p.Type == Image })
	if n < 0 {
		return x.Parts
	}
	return x.Parts[:n]
}

func (x *Index) images() []Part { return x.Parts[len(x.files()):] }

// title names a file's blob once common tools have unpacked it. It isn't the file's name, because the blob is compressed.
func (p Part) title() string { return string(p.Type) + "/" + p.Name + ".zst" }

func bytesText(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
