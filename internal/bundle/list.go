// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// listKind is the kind of a list of parts, and ListName its file's name in a directory.
const (
	listKind = "BundleParts"
	ListName = "bundle.yaml"
)

// List has a bundle's parts and their sources. docs/bundle.md describes its fields.
type List struct {
	APIVersion        string       `json:"apiVersion"`
	Kind              string       `json:"kind"`
	KubernetesVersion string       `json:"kubernetesVersion"`
	OS                string       `json:"os"`
	Architecture      string       `json:"architecture"`
	Parts             []ListedPart `json:"parts"`

	dir string // paths are relative to it
}

// ListedPart is a part and its source: one of File, URL and Image.
type ListedPart struct {
	Name    string `json:"name"`
	Type    Type   `json:"type"`
	Version string `json:"version"`
	// Source defaults to the URL or the image.
	Source  string `json:"source,omitempty"`
	License string `json:"license"`

	File   string `json:"file,omitempty"`   // relative to the list
	URL    string `json:"url,omitempty"`    // http or https, needs SHA256
	Image  string `json:"image,omitempty"`  // in a registry, with its digest
	SHA256 string `json:"sha256,omitempty"` // of the file at File or URL, in hex
	Member string `json:"member,omitempty"` // the path in the archive at File or URL

	data []byte // of a part added by Provide
}

// Provide adds a file with this content, unless the list has a part of its type and name.
func (l *List) Provide(p ListedPart, content []byte) {
	if l.Has(p.Type, p.Name) {
		return
	}
	p.data = content
	l.Parts = append(l.Parts, p)
}

func (l *List) Has(kind Type, name string) bool {
	return slices.ContainsFunc(l.Parts, func(p ListedPart) bool { return p.Type == kind && p.Name == name })
}

// ReadList reads a list, or the list in a directory, and reports all its faults at once, missing files among them.
func ReadList(path string) (*List, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the list of parts")
	}
	if info.IsDir() {
		path = filepath.Join(path, ListName)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.WithRemedy(errors.Wrap(err, "cannot read the list of parts"), "a directory needs the list "+ListName+": see docs/bundle.md")
	}
	l := &List{dir: filepath.Dir(path)}
	if err := yaml.UnmarshalStrict(data, l); err != nil {
		return nil, errors.Wrapf(err, "%s", path)
	}
	if faults := l.faults(); len(faults) > 0 {
		return nil, errors.Errorf("%s:\n  %s", path, strings.Join(faults, "\n  "))
	}
	return l, nil
}

func (l *List) faults() []string {
	x := Index{APIVersion: APIVersion, Kind: indexKind, KubernetesVersion: l.KubernetesVersion, OS: l.OS, Architecture: l.Architecture}
	var found []string
	if l.APIVersion != APIVersion || l.Kind != listKind {
		found = append(found, fmt.Sprintf("it is %q of %q, not %q of %q", l.Kind, l.APIVersion, listKind, APIVersion))
	}
	if err := x.validate(); err != nil {
		found = append(found, strings.ReplaceAll(err.Error(), "the bundle's ", ""))
	}
	if len(l.Parts) == 0 {
		found = append(found, "it has no parts")
	}
	known := sets.New[string]()
	for _, p := range l.Parts {
		title := fmt.Sprintf("%s %s", p.Type, p.Name)
		for _, text := range p.faults(l.dir) {
			found = append(found, title+": "+text)
		}
		if known.Has(title) {
			found = append(found, title+" appears twice")
		}
		known.Insert(title)
	}
	return found
}

func (p *ListedPart) faults(dir string) []string {
	if err := checkName(p.Type, p.Name); err != nil {
		return []string{err.Error()}
	}
	var found []string
	from := slices.DeleteFunc([]string{p.File, p.URL, p.Image}, func(s string) bool { return s == "" })
	switch {
	case len(from) != 1:
		found = append(found, "it needs one of file, url and image")
	case p.File != "":
		found = append(found, p.fileFaults(dir)...)
	case p.URL != "":
		found = append(found, p.urlFaults()...)
	default:
		found = append(found, p.imageFaults()...)
	}
	if p.Version == "" {
		found = append(found, "version is missing")
	}
	if p.License == "" {
		found = append(found, "license is missing; write an SPDX expression, or NOASSERTION")
	}
	if p.Type == Image && p.Member != "" {
		found = append(found, "member is only for files")
	}
	if sum := (v1.Hash{}); p.SHA256 != "" && sum.UnmarshalText([]byte("sha256:"+p.SHA256)) != nil {
		found = append(found, fmt.Sprintf("sha256 %q has not 64 digits of hex", p.SHA256))
	}
	return found
}

func (p *ListedPart) fileFaults(dir string) (found []string) {
	if p.Source == "" {
		found = append(found, "source is missing: say where the file comes from")
	}
	info, err := os.Stat(p.at(dir))
	switch {
	case err != nil:
		found = append(found, errors.Wrap(err, "the file is missing").Error())
	case info.IsDir() && p.Type != Image:
		found = append(found, p.File+" is a directory")
	}
	return found
}

func (p *ListedPart) urlFaults() (found []string) {
	address, err := url.Parse(p.URL)
	if err != nil || address.Host == "" || address.Scheme != "https" && address.Scheme != "http" {
		found = append(found, "url is not one of https or http")
	} else if address.User != nil {
		found = append(found, "url has a name or password; everybody with the bundle would see it")
	}
	if p.SHA256 == "" {
		found = append(found, "url needs the sha256 of its file")
	}
	return found
}

func (p *ListedPart) imageFaults() (found []string) {
	if p.Type != Image {
		found = append(found, "only a part of the type image comes from an image")
	}
	if _, err := name.NewDigest(p.Image, name.StrictValidation); err != nil {
		found = append(found, fmt.Sprintf("image %q is not a full reference with a digest, such as registry.k8s.io/pause:3.10.2@sha256:…", p.Image))
	}
	if p.SHA256 != "" {
		found = append(found, "sha256 is not for images: their digest is in the reference")
	}
	return found
}

func (p *ListedPart) at(dir string) string {
	if filepath.IsAbs(p.File) {
		return p.File
	}
	return filepath.Join(dir, p.File)
}

// part is its entry in the index, as far as the list knows.
func (p *ListedPart) part() Part {
	return Part{Name: p.Name, Type: p.Type, Version: p.Version, Source: cmp.Or(p.Source, p.URL, p.Image), License: p.License}
}
