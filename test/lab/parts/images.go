// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
	filetree "github.com/slipway-k8s/slipway/test/lab/internal/tree"
)

const (
	pauseImage = "registry.k8s.io/pause:3.10.2"
	// ProbeImage is the image of the tests' Pods; see components/probe.
	ProbeImage = "slipway.test/probe:1"
)

// imageRecipe is an image whose files aren't made yet.
type imageRecipe struct {
	image
	picks     []pick // the programs in it
	directory string // their directory in it
	tools     func(tools) []imageFile
}

// imageGroup holds images that a node has all or none of.
type imageGroup struct {
	of      string
	recipes []imageRecipe
}

// commonImages returns the images shared by all releases.
func (r *versioned) commonImages() []imageRecipe {
	return []imageRecipe{
		{image: image{name: pauseImage, entrypoint: []string{"/pause"}}, picks: r.picks("pause")},
		r.probe(),
	}
}

func (r *versioned) probe() imageRecipe {
	return imageRecipe{image: image{name: ProbeImage, entrypoint: []string{"/probe"}}, picks: r.picks("probe")}
}

// images returns the images of a release, named as its control plane asks for them. kube-proxy's also contains tools.
func (r *versioned) images() []imageRecipe {
	const registry, directory = "registry.k8s.io/", "usr/local/bin/"
	ofProgram := func(name string) imageRecipe {
		return imageRecipe{image: image{name: registry + name + ":" + r.versions.Kubernetes}, picks: r.picks(name), directory: directory}
	}
	proxy := ofProgram("kube-proxy")
	proxy.tools, proxy.debian = packetTools, packetLicenses
	return []imageRecipe{
		ofProgram("kube-apiserver"), ofProgram("kube-controller-manager"), ofProgram("kube-scheduler"), proxy,
		{image: image{name: registry + "etcd:" + strings.TrimPrefix(r.versions.Etcd, "v") + "-0"}, picks: r.picks("etcd", "etcdctl"), directory: directory},
		{image: image{name: registry + "coredns/coredns:" + r.versions.CoreDNS, entrypoint: []string{"/coredns"}}, picks: r.picks("coredns")},
	}
}

// table makes images of recipes by adding their files.
func (b *Builder) table(recipes []imageRecipe, tools tools) ([]image, error) {
	var table []image
	for _, recipe := range recipes {
		for _, p := range recipe.picks {
			path, err := b.programPath(p)
			if err != nil {
				return nil, err
			}
			recipe.files = append(recipe.files, imageFile{path: recipe.directory + p.program, source: path})
		}
		if recipe.tools != nil {
			recipe.files = append(recipe.files, recipe.tools(tools)...)
		}
		table = append(table, recipe.image)
	}
	return table, nil
}

// images makes a containerd root with the images of all groups unpacked. A node gets a copy made of hard links, which takes a
// fraction of a second where an import takes many. So does a root with one more group.
func (r *run) images(ctx context.Context, groups []imageGroup, debian tree) (string, error) {
	tools, err := debianTools(debian)
	if err != nil {
		return "", err
	}
	containerd, err := r.common("containerd")
	if err != nil {
		return "", err
	}
	var rows []imageRoot
	name := ""
	for _, g := range groups {
		table, err := r.table(g.recipes, tools)
		if err != nil {
			return "", err
		}
		row := imageRoot{upon: name, name: r.stamp("images", name, fmt.Sprint(table), containerd), of: g.of, table: table}
		rows, name = append(rows, row), row.name
	}
	// Usually all of them exist, or all but the last. The roots below an existing one may be gone.
	from := len(rows) - 1
	for from > 0 && !r.has(rows[from].name) {
		from--
	}
	path := ""
	for _, row := range rows[from:] {
		if path, err = r.imageRoot(ctx, row); err != nil {
			return "", err
		}
	}
	return path, nil
}

// imageRoot is a part with a containerd root: the images in the table on top of another root's, if upon names one.
type imageRoot struct {
	upon, name, of string
	table          []image
}

func (r *run) imageRoot(ctx context.Context, row imageRoot) (string, error) {
	return r.part(ctx, row.name, "making and unpacking the images "+row.of, func(dir string) error {
		if row.upon != "" {
			if err := filetree.Link(filepath.Join(r.path(row.upon), "root"), filepath.Join(dir, "root")); err != nil {
				return err
			}
		}
		return r.unpack(ctx, row.table, dir)
	})
}

func (r *run) writeImages(archive string, table []image) error {
	f, err := os.Create(archive)
	if err != nil {
		return errors.Wrap(err, "cannot make the images' archive")
	}
	defer f.Close()
	if err := writeArchive(f, table, r.platform.Architecture); err != nil {
		return err
	}
	return errors.Wrap(f.Close(), "cannot finish the images' archive")
}

// unpack imports images with its own containerd, whose root is dir/root.
func (r *run) unpack(ctx context.Context, table []image, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	state, err := os.MkdirTemp("", "lab-containerd-") // a socket's path has to be short
	if err != nil {
		return errors.Wrap(err, "cannot make a directory for containerd")
	}
	defer os.RemoveAll(state)
	socket, config := filepath.Join(state, "containerd.sock"), filepath.Join(state, "config.toml")
	text := "version = 3\ndisabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime']\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return errors.Wrap(err, "cannot write containerd's configuration")
	}
	var said strings.Builder
	containerd, err := r.common("containerd")
	if err != nil {
		return err
	}
	ctr, err := r.common("ctr")
	if err != nil {
		return err
	}
	daemon := exec.Command(containerd, "--config", config, "--root", filepath.Join(dir, "root"),
		"--state", state, "--address", socket)
	daemon.Stdout, daemon.Stderr = &said, &said
	if err := startApart(daemon); err != nil {
		return err
	}
	err = waitForFile(ctx, socket)
	if err == nil {
		archive, w := io.Pipe()
		go func() { w.CloseWithError(writeArchive(w, table, r.platform.Architecture)) }()
		_, err = outputOf(ctx, archive, "", nil, ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", "-")
		archive.Close()
	}
	stopped := stop(daemon)
	if err == nil {
		err = stopped
	}
	return errors.Wrapf(err, "cannot unpack the images; containerd said: %s", lastLines(said.String()))
}

// startApart starts a daemon in its own mount namespace.
func startApart(daemon *exec.Cmd) error {
	return thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		return errors.Wrap(daemon.Start(), "cannot start containerd")
	})
}

// stop ends a daemon cleanly, so that its files are complete.
func stop(daemon *exec.Cmd) error {
	if err := daemon.Process.Signal(os.Interrupt); err != nil {
		return errors.Wrap(err, "cannot stop containerd")
	}
	kill := time.AfterFunc(20*time.Second, func() { _ = daemon.Process.Kill() })
	defer kill.Stop()
	return errors.Wrap(daemon.Wait(), "containerd did not end in order")
}

func waitForFile(ctx context.Context, path string) error {
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Wrapf(ctx.Err(), "waiting for %s", path)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func removeFiles(paths ...string) error {
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
