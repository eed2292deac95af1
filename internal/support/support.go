// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package support makes the support bundle, an archive with a node's diagnostics for people outside. Collect gathers it for a
// Node, and contents.go lists the files. Every file goes through collection.add, which hides secrets with internal/redact.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// Node is the node to collect from, and how much.
type Node struct {
	diagnose.Target
	PKI string
	// Kubernetes is /etc/kubernetes.
	Kubernetes string
	// Version is this program's.
	Version string
	// AllNamespaces collects the logs of all containers instead of only kube-system's.
	AllNamespaces bool
}

const (
	// fileLimit is how many bytes of a file a bundle holds, counted from its end.
	fileLimit = 512 << 10
	// journalLimit is how many entries of a unit's journal it holds.
	journalLimit = 2000
	// containerLimit is how many containers' logs it holds, the newest first.
	containerLimit = 60
)

// form says where to look for secrets in a file.
type form int

const (
	plain     form = iota // by their form and the names before them
	document              // YAML or JSON: also by its structure
	unit                  // a unit file: also values of environment variables
	variables             // an environment file: also all of its values
)

// collection is a bundle in the making.
type collection struct {
	ctx   context.Context
	h     diagnose.View
	n     Node
	known []string // IDs of containers, which look like keys
	root  string   // the directory inside the archive
	now   time.Time
	tar   *tar.Writer
	err   error
}

// Collect returns the bundle, a tar.gz. It holds the error instead of a file it can't read. If it's interrupted, it returns only an
// error: a bundle of such errors would pass for a complete one.
func Collect(ctx context.Context, h diagnose.View, n Node) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	c := &collection{ctx: ctx, h: h, n: n, now: h.Now(), tar: tar.NewWriter(zip), root: "slipway-support"}
	c.containers()
	c.diagnosis()
	c.facts()
	c.units()
	c.configuration()
	c.certificates()
	c.readme()
	if c.err == nil {
		c.err = c.tar.Close()
	}
	if c.err == nil {
		c.err = zip.Close()
	}
	if c.err != nil {
		return nil, errors.Wrap(c.err, "cannot make the support bundle")
	}
	return out.Bytes(), nil
}

const readme = `"slipway support-bundle" collected these diagnostics on a node. Secrets were replaced
by [redacted]:

- private keys, tokens, passwords, cookies and Authorization headers
- words that look random, as keys and tokens of clouds, Git servers and registries do
- the values of environment variables, unless the name is known to be harmless, such
  as PATH; proxies and the kubelet's flags are shown without their passwords
- comments in unit files and environment files
- documents other than Pods, kubeconfigs and the kubelet's configuration

%s
Secrets are recognized by where they are and by their form. A secret that looks like
an ordinary word in the middle of a log cannot be recognized. Names and addresses are
not removed. Look through these files before you share them.

diagnosis.txt   the output of "slipway diagnose"
containers.txt  the containers and sandboxes of the runtime
logs/           the ends of the containers' logs
host/           addresses, routes, mounts, disks, versions
units/          states, unit files and journals of kubelet and container runtime
kubernetes/     manifests and kubeconfigs
kubelet/        the kubelet's configuration
pki/            certificates, and a list of all files with their modes
`

const (
	systemLogs = `Only logs of containers in kube-system are included, as applications may log private
data. --all-namespaces includes all of them.
`
	allLogs = `Logs of containers in all namespaces are included, as --all-namespaces was given.
`
)

func (c *collection) readme() {
	logs := systemLogs
	if c.n.AllNamespaces {
		logs = allLogs
	}
	c.add("README.txt", fmt.Appendf(nil, readme, logs), plain)
}

// add adds a file to the archive, without its secrets. Nothing else adds files.
func (c *collection) add(name string, data []byte, f form) {
	if c.err == nil && c.ctx.Err() != nil {
		c.err = errors.WithMessage(context.Cause(c.ctx), "interrupted before everything was collected")
	}
	if c.err != nil {
		return
	}
	if len(data) >= fileLimit {
		data, f = shortened(data, f), plain
	}
	switch f {
	case document:
		data = redact.YAML(data, c.known...)
	case unit:
		data = []byte(redact.Unit(string(data), c.known...))
	case variables:
		data = []byte(redact.Variables(string(data), c.known...))
	default:
		data = []byte(redact.Text(string(data), c.known...))
	}
	c.err = c.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: c.root + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: c.now,
	})
	if c.err == nil {
		_, c.err = c.tar.Write(data)
	}
}

// shortened returns the end of a file that's too long, from a whole line on, as part of a line may be a secret without its name.
// It leaves out files whose secrets only their structure shows.
func shortened(data []byte, f form) []byte {
	_, end, whole := bytes.Cut(data[len(data)-fileLimit:], []byte("\n"))
	if f != plain || !whole {
		return fmt.Appendf(nil, "left out: larger than %d KiB\n", fileLimit>>10)
	}
	return end
}

// file adds one of the host's files, if it exists.
func (c *collection) file(name, path string, f form) {
	data, err := host.ReadTail(c.h, path, fileLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.add(name, []byte("cannot read it: "+err.Error()), plain)
	default:
		c.add(name, data, f)
	}
}
