// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/fault"
)

type Create struct {
	List   *List
	Output string // the file; replaces an existing file once all has succeeded
	Cache  string // directory for downloads
	Access Access // for images from registries
	Sign   *SecretKey
	// Say reports progress in lines for people. It's called concurrently.
	Say func(format string, args ...any)
}

// Run makes the bundle. The same list makes the same bytes. Compressed parts stay in a directory beside the output until it's
// complete; a killed run's leftovers there are removed.
func (c Create) Run(ctx context.Context) error {
	var err error
	if c.Output, err = target(c.Output); err != nil {
		return err
	}
	s := &stage{Create: c, dir: stagingOf(c.Output)}
	endStaging, err := startStaging(c.Output)
	if err != nil {
		return err
	}
	defer endStaging()
	parts, err := s.parts(ctx)
	if err != nil {
		return err
	}
	made, err := c.List.contents(parts)
	if err != nil {
		return err
	}
	if c.Sign != nil {
		made.signature = c.Sign.sign(made)
	}
	return replace(ctx, c.Output, func(w io.Writer) error {
		return made.write(w, func(blob *blob) (io.ReadCloser, error) { return os.Open(s.path(blob.Digest)) })
	})
}

// target is the file that a path leads to: a link stays.
func target(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return resolved, errors.Wrap(err, "cannot make the bundle")
}

// stagingOf is the staging directory beside an output file.
func stagingOf(output string) string {
	return filepath.Join(filepath.Dir(output), "."+filepath.Base(output)+".staging")
}

// startStaging makes the staging directory, without an earlier run's leftovers. One run at a time has it: another is refused until
// end removes it.
func startStaging(output string) (end func(), err error) {
	if info, err := os.Stat(output); err == nil && !info.Mode().IsRegular() {
		return nil, errors.Errorf("cannot make the bundle: %s exists, and is not a file", output)
	}
	dir := stagingOf(output)
	held, err := freshDir(dir)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrExist) {
		return nil, fault.New("another run is making "+output+": it uses the directory "+dir, "wait for its end, or name another file")
	}
	if err != nil {
		return nil, errors.Wrap(err, "cannot make a directory beside the bundle")
	}
	return func() {
		os.RemoveAll(dir)
		held.Close()
	}, nil
}

// freshDir makes and locks a directory in place of one that no run holds.
func freshDir(dir string) (*os.File, error) {
	old, err := lockedDir(dir)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, err
	}
	if err == nil {
		defer old.Close()
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return lockedDir(dir)
}

func lockedDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil && !isStillAt(f, dir) {
		err = unix.EWOULDBLOCK
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// staged is a part whose blobs are in the staging directory.
type staged struct {
	part  Part
	blob  v1.Descriptor // of a file
	image *image
}

// stage is the staging directory of a run: blobs by their digest.
type stage struct {
	Create
	dir      string
	encoders sync.Pool // of *zstd.Encoder
	made     sync.Map  // the *sum of each content compressed here, by its blob's digest
}

// parts stages all parts, some of them side by side.
func (s *stage) parts(ctx context.Context) ([]staged, error) {
	parts := make([]staged, len(s.List.Parts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxCompressed)
	for i, listed := range s.List.Parts {
		group.Go(func() (err error) {
			if listed.Type == Image {
				parts[i], err = s.image(ctx, &listed)
			} else {
				parts[i], err = s.file(ctx, &listed)
			}
			return errors.Wrapf(err, "%s %s", listed.Type, listed.Name)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	sort.SliceStable(parts, func(a, b int) bool { return compareParts(parts[a].part, parts[b].part) < 0 })
	return parts, nil
}

func (l *List) contents(parts []staged) (*contents, error) {
	c := &contents{
		index:    Index{APIVersion, indexKind, l.KubernetesVersion, l.OS, l.Architecture, nil},
		manifest: v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: artifactType, Layers: []v1.Descriptor{}},
		layout:   v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: make([]v1.Descriptor, 1)},
	}
	for _, p := range parts {
		c.index.Parts = append(c.index.Parts, p.part)
		if p.image == nil {
			c.manifest.Layers = append(c.manifest.Layers, p.blob)
			continue
		}
		c.images = append(c.images, p.image)
		c.layout.Manifests = append(c.layout.Manifests, p.image.descriptor)
	}
	var err error
	if c.rawIndex, c.manifest.Config, err = encode(c.index, indexType); err != nil {
		return nil, err
	}
	if c.rawManifest, c.layout.Manifests[0], err = encode(c.manifest, types.OCIManifestSchema1); err != nil {
		return nil, err
	}
	bundle := &c.layout.Manifests[0]
	bundle.ArtifactType = artifactType
	bundle.Annotations = map[string]string{annotationRef: c.index.tag()}
	bundle.Platform = &v1.Platform{OS: l.OS, Architecture: l.Architecture}
	c.rawLayout, _, err = encode(c.layout, types.OCIImageIndex)
	return c, err
}

// tag is the bundle's tag in a registry or an image layout.
func (x *Index) tag() string { return x.KubernetesVersion + "-" + x.OS + "-" + x.Architecture }

func encode(document any, kind types.MediaType) ([]byte, v1.Descriptor, error) {
	raw, err := json.Marshal(document)
	return raw, describe(raw, kind), errors.Wrap(err, "cannot encode the bundle's documents")
}

func describe(raw []byte, kind types.MediaType) v1.Descriptor {
	return v1.Descriptor{MediaType: kind, Digest: digestOf(raw), Size: int64(len(raw))}
}

func (s *stage) path(digest v1.Hash) string { return filepath.Join(s.dir, digest.Hex) }

// replace writes a bundle in the staging directory, checks it as a reader would, and renames it into place, unless the run was
// interrupted until then.
func replace(ctx context.Context, output string, write func(io.Writer) error) error {
	path := filepath.Join(stagingOf(output), "bundle.tar")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return errors.Wrap(err, "cannot make the bundle")
	}
	defer f.Close()
	buffer := bufio.NewWriterSize(&interruptibleWriter{ctx, f}, 1<<20)
	if err := write(buffer); err != nil {
		return err
	}
	for _, finish := range []func() error{buffer.Flush, f.Sync, f.Close} {
		if err := finish(); err != nil {
			return errors.Wrap(err, "cannot write the bundle")
		}
	}
	made, err := Open(path, Keys{})
	if err != nil {
		return err
	}
	if err := made.Close(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Rename(path, output); err != nil {
		return errors.Wrap(err, "cannot put the bundle in its place")
	}
	return syncDir(filepath.Dir(output))
}

// syncDir makes renames in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return errors.Wrapf(d.Sync(), "cannot write %s", path)
}
