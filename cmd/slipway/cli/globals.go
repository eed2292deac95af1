// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli has everything commands share: global options and Streams (Globals), arguments, confirmation, Report (-o, --diff,
// --timeline), and Shown, through which every message passes. peer.go has the lines kubeadm's users' scripts look for.
package cli

import (
	"flag"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// maxLogLevel is the highest verbosity passed on to the API client: above it, the client logs request bodies, with every Secret.
const maxLogLevel = 7

type Globals struct {
	Program string
	Version func() string // this program's
	Streams Streams

	Rootfs    string
	verbosity level
	vmodule   patterns

	Report *Report // set while a command that runs phases is running
}

type (
	level    int32
	patterns string
)

func (l *level) String() string { return "" }

func (*level) Type() string { return "Level" }

func (l *level) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	*l = level(n)
	if err != nil {
		return errors.New("must be a number from 0 to 10")
	}
	return nil
}

func (p *patterns) String() string { return string(*p) }

func (*patterns) Type() string { return "moduleSpec" }

func (p *patterns) Set(text string) error {
	*p = patterns(text)
	return nil
}

func (g *Globals) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&g.Rootfs, "rootfs", "", "`directory` to use as the root file system instead of /")
	fs.VarP(&g.verbosity, "v", "v", "log `level`, 0 to 10: from 1 on, a terminal shows all details; higher levels add the log of the API client")
	fs.Var(&g.vmodule, "vmodule", "log levels by source file, as `pattern=N,...`")
}

func (g *Globals) Apply() error {
	if err := g.chroot(); err != nil {
		return err
	}
	logs := flag.NewFlagSet("log", flag.ContinueOnError)
	klog.InitFlags(logs)
	klog.SetOutput(discreetWriter{g.Streams.Err})
	for name, value := range map[string]string{
		"v": strconv.Itoa(min(int(g.verbosity), maxLogLevel)),
		// By default, klog writes to file descriptor 2 itself.
		"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true",
	} {
		if err := logs.Set(name, value); err != nil {
			return errors.Wrapf(err, "log option %s", name)
		}
	}
	return errors.Wrap(logs.Set("vmodule", capLevels(string(g.vmodule))), "--vmodule")
}

func (g *Globals) chroot() error {
	if g.Rootfs == "" {
		return nil
	}
	if err := unix.Chroot(g.Rootfs); err != nil {
		return errors.Wrapf(err, "--rootfs %s: cannot change the root directory; it must exist, and you must be root", g.Rootfs)
	}
	return errors.Wrapf(os.Chdir("/"), "--rootfs %s", g.Rootfs)
}

// capLevels keeps the levels of single files at or below maxLogLevel, too.
func capLevels(patterns string) string {
	parts := strings.Split(patterns, ",")
	for i, part := range parts {
		name, text, found := strings.Cut(part, "=")
		if level, err := strconv.Atoi(text); found && err == nil {
			parts[i] = name + "=" + strconv.Itoa(min(level, maxLogLevel))
		}
	}
	return strings.Join(parts, ",")
}

type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}
