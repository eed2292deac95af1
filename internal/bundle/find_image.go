// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// foundImage is an image at its source.
type foundImage struct {
	v1.Image
	fromDocker   bool // from a docker-archive
	fromRegistry bool
	close        func()
}

func (s *stage) findImage(ctx context.Context, p *ListedPart) (*foundImage, error) {
	if p.Image != "" {
		return s.pull(ctx, p)
	}
	file, err := s.local(ctx, p)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		image, err := s.fromLayout(file, p)
		return &foundImage{Image: image, close: func() {}}, err
	}
	return s.fromArchive(ctx, file, p)
}

// pull finds an image in a registry, with the user's credentials. Its layers are read, and verified, later.
func (s *stage) pull(ctx context.Context, p *ListedPart) (*foundImage, error) {
	ref, err := name.NewDigest(p.Image, s.Access.names()...)
	if err != nil {
		return nil, err
	}
	options, err := s.Access.options(ctx)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(ref, append(options, remote.WithPlatform(s.platform()))...)
	return &foundImage{Image: image, fromRegistry: true, close: func() {}}, errors.Wrapf(withAccessRemedy(err), "cannot pull %s", p.Image)
}

func (s *stage) platform() v1.Platform {
	return v1.Platform{OS: s.List.OS, Architecture: s.List.Architecture}
}

// fromArchive finds an image in a docker-archive, or in a tar of an image layout.
func (s *stage) fromArchive(ctx context.Context, file string, p *ListedPart) (*foundImage, error) {
	opener := func() (io.ReadCloser, error) { return openUnpacked(file) }
	if all, err := tarball.LoadManifest(opener); err == nil {
		image, err := fromDocker(opener, len(all), p)
		return &foundImage{Image: image, fromDocker: true, close: func() {}}, errors.Wrapf(err, "%s", file)
	}
	dir, err := os.MkdirTemp(s.dir, "layout-")
	if err != nil {
		return nil, err
	}
	if err := unpackLayout(ctx, opener, dir); err != nil {
		return nil, errors.Wrapf(err, "%s is neither a docker-archive nor an image layout", file)
	}
	image, err := s.fromLayout(dir, p)
	return &foundImage{Image: image, close: func() { os.RemoveAll(dir) }}, errors.Wrapf(err, "%s", file)
}

// fromDocker finds one of several images by its name, or takes the only image.
func fromDocker(open tarball.Opener, images int, p *ListedPart) (v1.Image, error) {
	if images == 1 {
		return tarball.Image(open, nil)
	}
	tag, err := name.NewTag(p.Name)
	if err != nil {
		return nil, err
	}
	image, err := tarball.Image(open, &tag)
	return image, fault.WithRemedy(err, "the archive must have one image, or one of that name")
}

// unpackLayout unpacks only an image layout's files.
func unpackLayout(ctx context.Context, open tarball.Opener, dir string) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	for t := tar.NewReader(f); ; {
		header, err := t.Next()
		if err == io.EOF {
			_, err := os.Stat(filepath.Join(dir, entryLayout))
			return err
		}
		if err != nil {
			return err
		}
		entry := path.Clean(header.Name)
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(entry) || entry != entryLayout && entry != entryIndex && !strings.HasPrefix(entry, "blobs/") {
			continue
		}
		to := filepath.Join(dir, entry)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := copyTo(ctx, to, t); err != nil {
			return err
		}
	}
}

// fromLayout finds an image in an image layout by its name, or takes the platform's only image.
func (s *stage) fromLayout(dir string, p *ListedPart) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, errors.Wrap(err, "not an image layout")
	}
	found, err := s.choose(index, p)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fault.New(fmt.Sprintf("the image layout has %d images for %s to choose from", len(found), s.List.OS+"/"+s.List.Architecture),
			"it must have one, or one whose annotation "+annotationImage+" or "+annotationRef+" is the image's name or tag")
	}
	return found[0], nil
}

// choose returns an index's images for the platform: those with the part's name, if there are any. Attestations never fit,
// because they have a platform of their own.
func (s *stage) choose(index v1.ImageIndex, p *ListedPart) ([]v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the index")
	}
	var named, all []v1.Image
	for _, d := range manifest.Manifests {
		found, err := s.descend(index, d, p)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if matches(d.Annotations, p.Name) {
			named = append(named, found...)
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	return all, nil
}

func (s *stage) descend(index v1.ImageIndex, d v1.Descriptor, p *ListedPart) ([]v1.Image, error) {
	switch {
	case d.MediaType.IsIndex():
		child, err := index.ImageIndex(d.Digest)
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the index")
		}
		return s.choose(child, p)
	case !d.MediaType.IsImage() || d.Platform != nil && !d.Platform.Satisfies(s.platform()):
		return nil, nil
	}
	image, err := index.Image(d.Digest)
	return []v1.Image{image}, errors.Wrap(err, "cannot read the image")
}
