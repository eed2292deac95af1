// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/program"
)

func (r *Runtimes) Images(ctx context.Context, socket string) (list []host.Image, err error) {
	err = r.ask(ctx, socket, "list the images", func(ctx context.Context, c client) error {
		answer, err := c.ListImages(ctx, &cri.ListImagesRequest{})
		for _, i := range answer.GetImages() {
			list = append(list, host.Image{ID: i.GetId(), Names: i.GetRepoTags(), Pinned: i.GetPinned()})
		}
		return err
	})
	return list, err
}

func (r *Runtimes) RemoveImage(ctx context.Context, socket, image string) error {
	return r.ask(ctx, socket, "remove image "+image, func(ctx context.Context, c client) error {
		_, err := c.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}})
		return err
	})
}

// pinnedLabel keeps containerd's CRI from removing an image:
// https://github.com/containerd/containerd/blob/main/docs/cri/config.md
const pinnedLabel = "io.cri-containerd.pinned"

// ImportImages uses containerd's own client, because CRI has no such call. The clients of containerd 1.x can pin images only after
// the import. That of containerd 2 leaves the import to containerd unless it's told not to, and then containerd 1.7 would hide the
// images from its CRI: https://github.com/containerd/containerd/issues/13494.
func (r *Runtimes) ImportImages(ctx context.Context, socket string, names []string, archive func(io.Writer) error) error {
	return r.durably(ctx, socket, names, func() error {
		help, err := askCtr(ctx, ctrAnswer, socket, "images", "import", "--help")
		if err != nil {
			return err
		}
		var flags []string
		if strings.Contains(help, "--local ") { // that of containerd 1.6 always imports by itself
			flags = append(flags, "--local")
		}
		if strings.Contains(help, "--label ") {
			return importImages(ctx, socket, archive, append(flags, "--label="+pinnedLabel+"=pinned")...)
		}
		err = importImages(ctx, socket, archive, flags...)
		for _, name := range names {
			if err == nil {
				err = r.PinImage(ctx, socket, name, true)
			}
		}
		return err
	})
}

func importImages(ctx context.Context, socket string, archive func(io.Writer) error, flags ...string) error {
	cmd, explain, err := ctr(ctx, socket, slices.Concat([]string{"images", "import"}, flags, []string{"-"})...)
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

func (r *Runtimes) PinImage(ctx context.Context, socket, image string, pinned bool) error {
	value := ""
	if pinned {
		value = "pinned"
	}
	_, err := askCtr(ctx, ctrAnswer, socket, "images", "label", image, pinnedLabel+"="+value)
	return errors.Wrapf(err, "pin or unpin image %s", image)
}

// ctrAnswer bounds a run of ctr that moves no images. The program has tens of megabytes, which a slow disk reads first.
const ctrAnswer = 2 * time.Minute

// askCtr is runCtr with a limit.
func askCtr(ctx context.Context, limit time.Duration, socket string, args ...string) (string, error) {
	late := fault.WithRemedy(errors.Wrapf(context.DeadlineExceeded, "it did not finish within %s", limit),
		"check that containerd answers: `ctr version`, `systemctl status containerd`")
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	return runCtr(ctx, socket, args...)
}

func runCtr(ctx context.Context, socket string, args ...string) (string, error) {
	cmd, explain, err := ctr(ctx, socket, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return string(out), errors.Wrapf(explain(err), "ctr %s", strings.Join(args[:2], " "))
}

// ctr is a command of containerd's client for Kubernetes' images. explain adds its complaint to an error.
func ctr(ctx context.Context, socket string, args ...string) (cmd *exec.Cmd, explain func(error) error, err error) {
	cmd, explain = program.Command(ctx, "ctr", slices.Concat([]string{"--address", socketPath(socket), "--namespace", "k8s.io"}, args)...)
	if cmd.Err != nil {
		return nil, nil, fault.WithRemedy(errors.Wrap(cmd.Err, "containerd's client"), "it comes with containerd: install it to a directory in PATH")
	}
	return cmd, explain, nil
}

func (r *Runtimes) ImagePresent(ctx context.Context, socket, image string) (present bool, err error) {
	err = r.ask(ctx, socket, "look for image "+image, func(ctx context.Context, c client) error {
		answer, err := c.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
		present = answer.GetImage() != nil
		return err
	})
	return present, err
}

func (r *Runtimes) ImageDir(ctx context.Context, socket string) (dir string, err error) {
	err = r.ask(ctx, socket, "ask for the directory of images", func(ctx context.Context, c client) error {
		answer, err := c.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		if list := answer.GetImageFilesystems(); len(list) > 0 {
			dir = list[0].GetFsId().GetMountpoint()
		}
		return err
	})
	return dir, err
}

func (r *Runtimes) PullImage(ctx context.Context, socket, image string) error {
	return r.durably(ctx, socket, []string{image}, func() error {
		return r.order(socket, "pull image "+image, func(c client) error {
			_, err := c.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
			return err
		})
	})
}
