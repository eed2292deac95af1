// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"io"
	"os/exec"
	"slices"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/program"
)

// Images implements RuntimeReader.
func (r *Runtimes) Images(ctx context.Context, socket string) ([]host.Image, error) {
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
	var list []host.Image
	for _, i := range answer.GetImages() {
		list = append(list, host.Image{ID: i.GetId(), Names: i.GetRepoTags(), Pinned: i.GetPinned()})
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
		_ = cmd.Process.Kill() // it got half an archive
	}
	_ = in.Close() // ctr reports missing data
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
	cmd, explain = program.Command(ctx, "ctr", slices.Concat([]string{"--address", socketPath(socket), "--namespace", "k8s.io"}, args)...)
	if cmd.Err != nil {
		return nil, nil, fault.WithRemedy(errors.Wrap(cmd.Err, "containerd's client"), "it comes with containerd: install it to a directory in PATH")
	}
	return cmd, explain, nil
}

// ImagePresent implements RuntimeReader.
func (r *Runtimes) ImagePresent(ctx context.Context, socket, image string) (bool, error) {
	conn, err := r.get(socket)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, criAnswer)
	defer cancel()
	req := &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}}
	answer, err := cri.NewImageServiceClient(conn).ImageStatus(ctx, req)
	if err != nil {
		return false, criFailure(socket, "look for image "+image, err)
	}
	return answer.GetImage() != nil, nil
}

// ImageDir implements RuntimeReader.
func (r *Runtimes) ImageDir(ctx context.Context, socket string) (string, error) {
	conn, err := r.get(socket)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, criAnswer)
	defer cancel()
	answer, err := cri.NewImageServiceClient(conn).ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return "", nil
	case err != nil:
		return "", criFailure(socket, "ask for the directory of images", err)
	case len(answer.GetImageFilesystems()) == 0:
		return "", nil
	}
	return answer.GetImageFilesystems()[0].GetFsId().GetMountpoint(), nil
}

// PullImage implements RuntimeWriter. Only ctx bounds it.
func (r *Runtimes) PullImage(ctx context.Context, socket, image string) error {
	conn, err := r.get(socket)
	if err != nil {
		return err
	}
	req := &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}}
	if _, err := cri.NewImageServiceClient(conn).PullImage(ctx, req); err != nil {
		return criFailure(socket, "pull image "+image, err)
	}
	return nil
}
