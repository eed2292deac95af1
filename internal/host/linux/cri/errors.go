// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	stderrors "errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/internal/host"
)

// criFailure explains the error of a call that took so long.
func criFailure(socket, op string, took time.Duration, err error) error {
	if status.Code(err) == codes.DeadlineExceeded {
		err = stderrors.Join(context.DeadlineExceeded, err) // gRPC has its own error
	}
	reason, fix := criReason(socket, took, err)
	return &host.RuntimeError{Socket: socket, Op: op, Reason: reason, Fix: fix, Err: err}
}

func criReason(socket string, took time.Duration, err error) (reason, fix string) {
	answer := status.Convert(err)
	switch answer.Code() {
	case codes.Unimplemented:
		return "it does not serve the CRI v1 API (" + answer.Message() + ")",
			"if disabled_plugins in /etc/containerd/config.toml has \"cri\" or \"io.containerd.grpc.v1.cri\", as in some packages, " +
				"remove it and run `systemctl restart containerd`; containerd before 1.6 and CRI-O before 1.20 are too old"
	case codes.Unavailable:
		return socketTrouble(socketPath(socket), answer.Message())
	case codes.DeadlineExceeded:
		return fmt.Sprintf("it did not answer within %s", took.Round(time.Millisecond)),
			"check that it is healthy, for example with `systemctl status " + host.RuntimeService(socket) + "`, and what keeps this host so busy (`top`)"
	case codes.Canceled:
		return "interrupted", ""
	default:
		return answer.Message(), ""
	}
}

// socketTrouble says why a runtime can't be reached, more precisely than gRPC.
func socketTrouble(path, message string) (reason, fix string) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return "a program accepts connections there but does not speak CRI (" + message + ")", "name the right socket (criSocket, --cri-socket)"
	case errors.Is(err, fs.ErrNotExist):
		return "the socket does not exist", "install and start a runtime (`slipway host prepare --bundle FILE` installs the bundle's containerd), " +
			"or name the right socket (criSocket, --cri-socket)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the socket exists but nothing listens on it", "start the runtime, for example with `systemctl start " + host.RuntimeService(path) + "`"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not use the socket", "run the command as root"
	default:
		return message, ""
	}
}
