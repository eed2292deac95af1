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

// maxLogLevel is the highest verbosity passed on to the API client. Above it, the client logs request bodies, and with
// them every Secret.
const maxLogLevel = 7

// globals are the options of every command.
type globals struct {
	program string
	streams streams

	rootfs    string
	verbosity level
	vmodule   patterns

	// report is set while a command that runs phases is running.
	report *report
}

// level and patterns are the values of klog's two flags.
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
	fs.VarP(&g.verbosity, "v", "v", "log `level`, 0 to 10: from 1 on, a terminal shows all details; higher levels add the log of the API client")
	fs.Var(&g.vmodule, "vmodule", "log levels by source file, as `pattern=N,...`")
}

// apply puts the options into effect before a command runs.
func (g *globals) apply() error {
	if err := g.chroot(); err != nil {
		return err
	}
	logs := flag.NewFlagSet("log", flag.ContinueOnError)
	klog.InitFlags(logs)
	klog.SetOutput(discreetWriter{g.streams.err})
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

func (g *globals) chroot() error {
	if g.rootfs == "" {
		return nil
	}
	if err := unix.Chroot(g.rootfs); err != nil {
		return errors.Wrapf(err, "--rootfs %s: cannot change the root directory; it must exist, and you must be root", g.rootfs)
	}
	return errors.Wrapf(os.Chdir("/"), "--rootfs %s", g.rootfs)
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

func numbered(arguments int) string {
	if arguments == 1 {
		return "one argument"
	}
	return strconv.Itoa(arguments) + " arguments"
}

// anyNumber is for commands that take any number of arguments.
const anyNumber = math.MaxInt

// takes rejects fewer than least or more than most arguments. It does not repeat arguments that may be tokens.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		name := cmd.CommandPath()
		switch {
		case len(args) < least:
			return errors.Errorf("%s needs an argument: %s; see %s --help", name, cmd.Use, name)
		case len(args) > most && most == 0:
			return errors.Errorf("%s does not take the argument %q; see %s --help", name, args[0], name)
		case len(args) > most:
			return errors.Errorf("%s takes %s but got %d: %s; see %s --help", name, numbered(most), len(args), cmd.Use, name)
		}
		return nil
	}
}
