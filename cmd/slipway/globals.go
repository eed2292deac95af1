// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// maxLogLevel is the highest verbosity that the API client's log gets. Above
// it the client prints bodies of requests, and with them every Secret.
const maxLogLevel = 7

// globals are the options that every command takes.
type globals struct {
	program string
	streams streams

	rootfs    string
	verbosity level
	vmodule   patterns

	// report is that of a command which runs phases, once it has begun.
	report *report
}

// level and patterns are klog's two flags.
type (
	level    int32
	patterns string
)

func (l *level) String() string { return "" }
func (*level) Type() string     { return "Level" }

func (l *level) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	*l = level(n)
	if err != nil {
		return errors.New("must be a number from 0 to 10")
	}
	return nil
}

func (p *patterns) String() string { return string(*p) }
func (*patterns) Type() string     { return "moduleSpec" }

func (p *patterns) Set(text string) error {
	*p = patterns(text)
	return nil
}

func (g *globals) bind(fs *pflag.FlagSet) {
	fs.StringVar(&g.rootfs, "rootfs", "", "`directory` to use as the root file system instead of /")
	fs.VarP(&g.verbosity, "v", "v", "log `level` of the API client, 0 to 10")
	fs.Var(&g.vmodule, "vmodule", "log levels by source file, as `pattern=N,...`")
}

// apply does what the options ask for before a command runs.
func (g *globals) apply() error {
	if err := g.chroot(); err != nil {
		return err
	}
	logs := flag.NewFlagSet("log", flag.ContinueOnError)
	klog.InitFlags(logs)
	klog.SetOutput(discreetWriter{g.streams.err})
	if err := logs.Set("v", strconv.Itoa(min(int(g.verbosity), maxLogLevel))); err != nil {
		return err
	}
	return errors.Wrap(logs.Set("vmodule", capLevels(string(g.vmodule))), "--vmodule")
}

func (g *globals) chroot() error {
	if g.rootfs == "" {
		return nil
	}
	if err := unix.Chroot(g.rootfs); err != nil {
		return errors.Wrapf(err, "--rootfs %s: cannot change the root directory; it must exist, and you must be root", g.rootfs)
	}
	return errors.Wrapf(os.Chdir("/"), "--rootfs %s", g.rootfs)
}

// capLevels keeps single files below maxLogLevel, too.
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

// anyNumber is no limit to how many arguments a command takes.
const anyNumber = math.MaxInt

// takes refuses fewer or more arguments than a command takes. It repeats none
// where one may be a token.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		name := cmd.CommandPath()
		switch {
		case len(args) < least:
			return errors.Errorf("%s needs an argument: %s; see %s --help", name, cmd.Use, name)
		case len(args) > most && most == 0:
			return errors.Errorf("%s does not take the argument %q; see %s --help", name, args[0], name)
		case len(args) > most:
			return errors.Errorf("%s takes one argument, and got %d: %s; see %s --help", name, len(args), cmd.Use, name)
		}
		return nil
	}
}
