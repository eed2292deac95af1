// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli has everything that commands share: global flags and streams (Globals), input (ReadConfigFile, ReadInput), questions
// (AskBefore), output in a chosen format (OutputOptions), and a run's progress and events (NewUI, Report). Every message passes
// through Shown. JoinedLines and its siblings print the lines that kubeadm users' scripts search for. It knows nothing about
// phases.
package cli

import (
	"flag"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
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

// PeerName is what kubeadm users' scripts call this program. They parse its output, so it then matches kubeadm's to the letter.
const PeerName = "kubeadm"

// EmulatesKubeadm reports whether the output is for kubeadm users' scripts.
func (g *Globals) EmulatesKubeadm() bool {
	return g.Program == PeerName && (g.Report == nil || g.Report.Form == "text")
}

// Lines public playbooks look for on standard output, which only kubeadm's users need; see docs/differences-from-kubeadm.md.
const (
	storingCerts   = `[upload-certs] Storing the certificates in Secret "kubeadm-certs" in the "kube-system" Namespace`
	usingKey       = "[upload-certs] Using certificate key:"
	initialized    = "Your Kubernetes control-plane has initialized successfully!"
	planesJoinWith = "You can now join any number of control-plane nodes running the following command on each as root:"
	nodesJoinWith  = "Then you can join any number of worker nodes by running the following on each as root:"
	nodeJoined     = "This node has joined the cluster"
	planeJoined    = nodeJoined + " and a new control plane instance was created"
	pulled         = "[config/images] Pulled "
	planeUpgraded  = "[upgrade/control-plane] The control plane instance for this node was successfully upgraded!"
	kubeletChanged = "[upgrade/kubelet-config] The kubelet configuration for this node was successfully upgraded!"
	upgraded       = `[upgrade] SUCCESS! A control plane node of your cluster was upgraded to "%s".`
)

// peerUI adds these lines to the results of `init`.
type peerUI struct {
	ui.UI
	phase string
}

func (u peerUI) Start(phase string) (ui.UI, func(error)) {
	in, end := u.UI.Start(phase)
	return peerUI{in, phase}, end
}

func (u peerUI) Outcome(o ui.Outcome) {
	if u.phase == "show-join-command" {
		u.UI.Result("\n" + initialized + "\n")
	}
	u.UI.Outcome(o)
}

func (u peerUI) Result(text string) {
	switch {
	case u.phase == "upload-certs":
		text = strings.Join([]string{storingCerts, usingKey, text}, "\n")
	case u.phase != "show-join-command":
	case strings.Contains(text, "--certificate-key "):
		text = planesJoinWith + "\n\n  " + text + "\n"
	default:
		text = nodesJoinWith + "\n\n" + text
	}
	u.UI.Result(text)
}

func JoinedLines(n *config.Node) []string {
	if n.ControlPlane {
		return []string{"\n" + planeJoined + ":", "* The kubelet has reported to the cluster.", "* This node's API server is healthy."}
	}
	return []string{"\n" + nodeJoined + ":", "* The kubelet has reported to the cluster."}
}

func UpgradedLines(n *config.Node) []string {
	var lines []string
	if n.ControlPlane && !slices.Contains(n.SkipPhases, "control-plane") {
		lines = append(lines, planeUpgraded)
	}
	if !slices.Contains(n.SkipPhases, "kubelet-config") {
		lines = append(lines, kubeletChanged)
	}
	if n.Upgrade.First {
		lines = append(lines, "\n"+strings.ReplaceAll(upgraded, "%s", n.Cluster.KubernetesVersion))
	}
	return lines
}

func PulledLines(n *config.Node) []string {
	var lines []string
	for _, image := range n.Images() {
		lines = append(lines, pulled+image)
	}
	return lines
}
