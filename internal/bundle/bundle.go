// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package bundle collects what somebody else needs to see why a node does not
// work, without a secret in it: all that goes in passes one gate, which knows
// of each file where its secrets are.
package bundle

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
	"github.com/slipway-k8s/slipway/internal/redact"
)

// Node says what is collected.
type Node struct {
	diagnose.Target
	// PKI is the certificates' folder.
	PKI string
	// Kubernetes is /etc/kubernetes.
	Kubernetes string
	// Version is this program's.
	Version string
	// AllNamespaces takes the logs of all containers; without it, only those of
	// the system's own namespace are taken.
	AllNamespaces bool
}

const (
	// fileLimit is how much of one file is taken, its end.
	fileLimit = 512 << 10
	// journalLimit is how many entries of a unit's journal are taken.
	journalLimit = 2000
	// containerLimit is how many containers' logs are taken, the newest.
	containerLimit = 60
)

// form says where the secrets of a file are.
type form int

const (
	plain     form = iota // by their own form and the names before them only
	document              // YAML or JSON: by its structure, too
	unit                  // a unit file: values of variables, too
	variables             // an environment file: values of variables, too
)

// collection is a bundle in the making.
type collection struct {
	ctx   context.Context
	h     diagnose.View
	n     Node
	known []string // IDs of containers, which look like keys
	root  string   // the folder inside the bundle
	now   time.Time
	tar   *tar.Writer
	err   error
}

// Collect returns the bundle, a tar.gz. What cannot be read is in it as the
// error that says so.
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
	return out.Bytes(), errors.Wrap(c.err, "support bundle")
}

const readme = `This is what "slipway support-bundle" found on a node. [redacted] stands where a
secret was taken out:

- private keys, tokens, passwords, cookies and Authorization headers
- the data of Secrets
- the keys and tokens of clouds, Git servers and registries
- the value of each environment variable, unless its name is known to be harmless,
  such as PATH; proxies and the kubelet's flags are shown without their passwords

%s
Secrets are recognized by where they are and by their form. One that looks like an
ordinary word in the middle of a log cannot be. Names and addresses are in here, too.
So look through these files before you give them away.

diagnosis.txt   what "slipway diagnose" says
containers.txt  the containers and sandboxes of the runtime
logs/           the ends of the containers' logs
host/           addresses, routes, mounts, disks, versions
units/          systemd's view of kubelet and runtime, their unit files and journals
kubernetes/     manifests and kubeconfigs
kubelet/        the kubelet's configuration
pki/            certificates, and a list of all files with their modes
`

const (
	systemLogs = `Logs were taken of containers in the namespace kube-system only, as applications log
what is nobody else's business. With --all-namespaces, all are taken.
`
	allLogs = `Logs were taken of the containers of all namespaces, as --all-namespaces was given.
`
)

func (c *collection) readme() {
	logs := systemLogs
	if c.n.AllNamespaces {
		logs = allLogs
	}
	c.add("README.txt", fmt.Appendf(nil, readme, logs), plain)
}

// add puts a file in, without its secrets. It is the only way in.
func (c *collection) add(name string, data []byte, f form) {
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

// shortened is the end of what is too long. A line without its beginning may be
// a secret without its name, so it begins with a whole one. Of files whose
// secrets are known by their structure, a part says too little.
func shortened(data []byte, f form) []byte {
	_, end, whole := bytes.Cut(data[len(data)-fileLimit:], []byte("\n"))
	if f != plain || !whole {
		return fmt.Appendf(nil, "left out, as it has %d KiB or more\n", fileLimit>>10)
	}
	return end
}

// file takes a file of the host, if it is there.
func (c *collection) file(name, path string, f form) {
	data, err := c.h.ReadTail(path, fileLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.add(name, []byte("cannot be read: "+err.Error()), plain)
	default:
		c.add(name, data, f)
	}
}
