// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"

	"github.com/pkg/errors"
)

// An image has one layer.
type image struct {
	name       string // with its tag
	entrypoint []string
	files      []imageFile
	of         string // its content; empty for the components of Kubernetes
	debian     string // the licenses of its files from Debian
}

// imageFile is a file copied from the machine, or a symbolic link.
type imageFile struct {
	path   string // in the image, without a leading slash
	source string // on the machine
	link   string // the target, instead of a source
}

// searchPath is where an image's command is searched.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// imageConfig is the part of an image's configuration that the lab needs.
type imageConfig struct {
	Architecture string        `json:"architecture"`
	OS           string        `json:"os"`
	Config       processConfig `json:"config"`
	RootFS       rootFS        `json:"rootfs"`
}

type processConfig struct {
	Env        []string
	Entrypoint []string `json:",omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// manifest is an archive's table of contents, with one row per image.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeArchive writes images of an architecture in the format of "docker save". The same images give the same bytes.
func writeArchive(w io.Writer, images []image, architecture string) error {
	archive := tar.NewWriter(w)
	var manifests []manifest
	for _, i := range images {
		m, err := addImage(archive, i, architecture)
		if err != nil {
			return errors.Wrapf(err, "image %s", i.name)
		}
		manifests = append(manifests, m)
	}
	data, err := json.Marshal(manifests)
	if err != nil {
		return errors.Wrap(err, "cannot write the images' manifest")
	}
	if err := addBytes(archive, "manifest.json", data); err != nil {
		return err
	}
	return errors.Wrap(archive.Close(), "cannot finish the images' archive")
}

// addImage makes the image's layer twice, as the digest and size precede it: that's cheaper than keeping it.
func addImage(archive *tar.Writer, i image, architecture string) (manifest, error) {
	hash, size := sha256.New(), counter(0)
	if err := writeLayer(io.MultiWriter(hash, &size), i.files); err != nil {
		return manifest{}, err
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	config, err := json.Marshal(imageConfig{
		Architecture: architecture, OS: "linux",
		Config: processConfig{Env: []string{searchPath}, Entrypoint: i.entrypoint},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest}},
	})
	if err != nil {
		return manifest{}, errors.Wrap(err, "cannot write its configuration")
	}
	sum := sha256.Sum256(config)
	m := manifest{Config: hex.EncodeToString(sum[:]) + ".json", RepoTags: []string{i.name}, Layers: []string{digest + ".tar"}}
	if err := addBytes(archive, m.Config, config); err != nil {
		return manifest{}, err
	}
	if err := archive.WriteHeader(&tar.Header{Name: m.Layers[0], Size: int64(size), Mode: 0o644}); err != nil {
		return manifest{}, errors.Wrap(err, "cannot add its layer")
	}
	return m, writeLayer(archive, i.files)
}

func writeLayer(w io.Writer, files []imageFile) error {
	layer := tar.NewWriter(w)
	for _, file := range files {
		if err := addFile(layer, file, 0o755); err != nil {
			return err
		}
	}
	return errors.Wrap(layer.Close(), "cannot finish its layer")
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func addFile(w *tar.Writer, file imageFile, mode int64) error {
	if file.link != "" {
		header := tar.Header{Typeflag: tar.TypeSymlink, Name: file.path, Linkname: file.link, Mode: 0o777}
		return errors.Wrapf(w.WriteHeader(&header), "cannot add %s", file.path)
	}
	f, err := os.Open(file.source)
	if err != nil {
		return errors.Wrapf(err, "cannot add %s", file.path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return errors.Wrapf(err, "cannot add %s", file.path)
	}
	if err := w.WriteHeader(&tar.Header{Name: file.path, Size: info.Size(), Mode: mode}); err != nil {
		return errors.Wrapf(err, "cannot add %s", file.path)
	}
	_, err = io.Copy(w, f)
	return errors.Wrapf(err, "cannot add %s", file.path)
}

func addBytes(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
		return errors.Wrapf(err, "cannot add %s", name)
	}
	_, err := w.Write(data)
	return errors.Wrapf(err, "cannot add %s", name)
}
