// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package management makes a management cluster of Cluster API out of a control plane of the lab: it builds the released
// controllers, and runs them on that machine with their own objects and webhooks.
package management

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
)

// Controller is one of Cluster API's programs.
type Controller struct {
	Name   string
	dir    string // of its main package, and of its objects, in the module
	number int    // of its ports
}

// Controllers are Cluster API's own, which need nothing from an infrastructure provider.
var Controllers = []Controller{{"core", "core", 0}, {"bootstrap", "bootstrap/kubeadm", 1}, {"control-plane", "controlplane/kubeadm", 2}}

const (
	module = "sigs.k8s.io/cluster-api"
	// host is where the API server finds the webhooks: the controllers run on its machine.
	host = "127.0.0.1"

	firstWebhookPort, firstHealthPort, firstDiagnosticsPort = 9443, 9543, 8443
)

func (c Controller) webhookPort() int { return firstWebhookPort + c.number }

// HealthPort is the port of /readyz.
func (c Controller) HealthPort() int { return firstHealthPort + c.number }

// Args are the controller's flags. The directory has the webhooks' certificate and key.
func (c Controller) Args(certDir string) []string {
	return []string{
		"--webhook-cert-dir=" + certDir,
		fmt.Sprintf("--webhook-port=%d", c.webhookPort()),
		fmt.Sprintf("--health-addr=:%d", c.HealthPort()),
		fmt.Sprintf("--diagnostics-address=%s:%d", host, firstDiagnosticsPort+c.number),
		"--sync-period=1m", // some states are only looked at again by then; the default is ten minutes
	}
}

// Build builds the controllers into a directory, under their names, from the module that pins them.
func Build(ctx context.Context, pinned, into string) error {
	for _, c := range Controllers {
		cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(into, c.Name), module+"/"+c.dir)
		cmd.Dir, cmd.Env = pinned, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=") // for machines with another libc, and as released
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Wrapf(err, "cannot build Cluster API's controller %s: %s", c.Name, out)
		}
	}
	return nil
}

// Source returns the directory with the sources of the controllers, and downloads them if they're missing.
func Source(ctx context.Context, pinned string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = pinned
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Wrapf(err, "cannot download %s: %s%s", module, out, errs.String())
	}
	var downloaded struct{ Dir string }
	return downloaded.Dir, errors.Wrapf(json.Unmarshal(out, &downloaded), "cannot find %s", module)
}
