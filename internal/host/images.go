// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io"
	"os/exec"
	"slices"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Image is an image in the runtime's store.
type Image struct {
	// ID is the digest of its configuration: sha256:….
	ID string
	// Names are its references with a tag, such as registry.k8s.io/pause:3.10.
	Names []string
	// Pinned images stay when the kubelet or `crictl rmi --prune` removes unused ones.
	Pinned bool
}

// Images implements RuntimeReader.
func (r *Runtimes) Images(ctx context.Context, socket string) ([]Image, error) {
	conn, err := r.get(socket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, criAnswer)
	defer cancel()
	answer, err := cri.NewImageServiceClient(conn).ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, criFailure(socket, "list the images", err)
	}
	var list []Image
	for _, i := range answer.GetImages() {
		list = append(list, Image{ID: i.GetId(), Names: i.GetRepoTags(), Pinned: i.GetPinned()})
	}
	return list, nil
}

// RemoveImage implements RuntimeWriter.
func (r *Runtimes) RemoveImage(ctx context.Context, socket, image string) error {
	conn, err := r.get(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, criAnswer)
	defer cancel()
	req := &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}}
	if _, err := cri.NewImageServiceClient(conn).RemoveImage(ctx, req); err != nil {
		return criFailure(socket, "remove image "+image, err)
	}
	return nil
}

// pinnedLabel keeps containerd's CRI from removing an image:
// https://github.com/containerd/containerd/blob/main/docs/cri/config.md
const pinnedLabel = "io.cri-containerd.pinned"

// ImportImages implements RuntimeWriter. CRI has no such call, so containerd's own
// client does it.
func (r *Runtimes) ImportImages(ctx context.Context, socket string, _ []string, archive func(io.Writer) error) error {
	cmd, explain, err := ctr(ctx, socket, "images", "import", "--label="+pinnedLabel+"=pinned", "-")
	if err != nil {
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return errors.Wrap(err, "run ctr")
	}
	written := archive(in)
	if written != nil {
		_ = cmd.Process.Kill() // what it got is not complete
	}
	_ = in.Close() // ctr reports what it did not get
	ended := cmd.Wait()
	if ended != nil && (written == nil || errors.Is(written, unix.EPIPE)) { // it ended before it got all
		written = explain(ended)
	}
	return errors.WithMessage(written, "import images with ctr")
}

// PinImage implements RuntimeWriter.
func (r *Runtimes) PinImage(ctx context.Context, socket, image string, pinned bool) error {
	value := ""
	if pinned {
		value = "pinned"
	}
	cmd, explain, err := ctr(ctx, socket, "images", "label", image, pinnedLabel+"="+value)
	if err != nil {
		return err
	}
	return errors.Wrapf(explain(cmd.Run()), "pin or unpin image %s with ctr", image)
}

// ctr is a command of containerd's client for the images of Kubernetes. explain adds its complaint to an error.
func ctr(ctx context.Context, socket string, args ...string) (cmd *exec.Cmd, explain func(error) error, err error) {
	cmd, explain = Command(ctx, "ctr", slices.Concat([]string{"--address", socketPath(socket), "--namespace", "k8s.io"}, args)...)
	if cmd.Err != nil {
		return nil, nil, fault.WithRemedy(errors.Wrap(cmd.Err, "containerd's client"), "it comes with containerd: install it to a directory in PATH")
	}
	return cmd, explain, nil
}
