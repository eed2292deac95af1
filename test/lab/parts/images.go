// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

const (
	pauseImage = "registry.k8s.io/pause:3.10.2"
	// ProbeImage is for Pods that tests start; see components/probe.
	ProbeImage = "slipway.test/probe:1"
)

// imageTable lists all images, named as a control plane of each release asks
// for them.
func (b *builder) imageTable(base string) ([]image, error) {
	tools, err := debianTools(base)
	if err != nil {
		return nil, err
	}
	pause, probe := b.releases[0].commonImages()
	table := append([]image{pause, probe}, b.releases[0].flannelImages(tools)...)
	for _, r := range b.releases {
		table = append(table, r.images(tools)...)
	}
	return table, nil
}

// commonImages are those that are the same in all releases.
func (r *built) commonImages() (pause, probe image) {
	return image{name: pauseImage, files: r.binaries("", "pause"), entrypoint: []string{"/pause"}},
		image{name: ProbeImage, files: r.binaries("", "probe"), entrypoint: []string{"/probe"}}
}

// images are those of a release. kube-proxy's also has tools.
func (r *built) images(tools tools) []image {
	const registry = "registry.k8s.io/"
	ofProgram := func(name string) image {
		return image{name: registry + name + ":" + r.versions.Kubernetes, files: r.binaries("usr/local/bin/", name)}
	}
	proxy := ofProgram("kube-proxy")
	proxy.files, proxy.debian = append(proxy.files, tools.packet...), packetLicenses
	return []image{
		ofProgram("kube-apiserver"), ofProgram("kube-controller-manager"), ofProgram("kube-scheduler"), proxy,
		{name: registry + "etcd:" + strings.TrimPrefix(r.versions.Etcd, "v") + "-0", files: r.binaries("usr/local/bin/", "etcd", "etcdctl")},
		{name: registry + "coredns/coredns:" + r.versions.CoreDNS, files: r.binaries("", "coredns"), entrypoint: []string{"/coredns"}},
	}
}

func (r *built) binaries(directory string, names ...string) []imageFile {
	var files []imageFile
	for _, name := range names {
		files = append(files, imageFile{path: directory + name, source: r.programs[name]})
	}
	return files
}

// images makes a containerd root with every image unpacked. A node gets a copy
// made of hard links, which takes a fraction of a second where an import takes many.
func (b *builder) images(ctx context.Context, base string) (string, error) {
	table, err := b.imageTable(base)
	if err != nil {
		return "", err
	}
	name := stamp("images", fmt.Sprint(table), b.releases[0].programs["containerd"])
	return b.part(name, "making and unpacking the images", func(dir string) error {
		archive := filepath.Join(dir, "images.tar")
		if err := writeImages(archive, dir, table); err != nil {
			return err
		}
		if err := b.unpack(ctx, archive, dir); err != nil {
			return err
		}
		return errors.Wrap(removeFiles(archive, filepath.Join(dir, "layer.tar")), "cannot tidy up")
	})
}

func writeImages(archive, scratch string, table []image) error {
	f, err := os.Create(archive)
	if err != nil {
		return errors.Wrap(err, "cannot make the images' archive")
	}
	defer f.Close()
	if err := writeArchive(f, scratch, table); err != nil {
		return err
	}
	return errors.Wrap(f.Close(), "cannot finish the images' archive")
}

// unpack imports the archive with a containerd of its own, whose root is dir/root.
func (b *builder) unpack(ctx context.Context, archive, dir string) error {
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
	daemon := exec.Command(b.releases[0].programs["containerd"], "--config", config, "--root", filepath.Join(dir, "root"),
		"--state", state, "--address", socket)
	daemon.Stdout, daemon.Stderr = &said, &said
	if err := startApart(daemon); err != nil {
		return err
	}
	err = waitForFile(ctx, socket)
	if err == nil {
		_, err = output(ctx, "", nil, b.releases[0].programs["ctr"], "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
	}
	stopped := stop(daemon)
	if err == nil {
		err = stopped
	}
	return errors.Wrapf(err, "cannot unpack the images; containerd said: %s", lastLines(said.String()))
}

// startApart starts a daemon in a mount namespace of its own.
func startApart(daemon *exec.Cmd) error {
	return thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		return errors.Wrap(daemon.Start(), "cannot start containerd")
	})
}

// stop ends a daemon in order, so that its files are complete.
func stop(daemon *exec.Cmd) error {
	if err := daemon.Process.Signal(os.Interrupt); err != nil {
		return errors.Wrap(err, "cannot stop containerd")
	}
	kill := time.AfterFunc(20*time.Second, func() { _ = daemon.Process.Kill() })
	defer kill.Stop()
	return errors.Wrap(daemon.Wait(), "containerd did not end in order")
}

// waitForFile waits until path exists.
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
