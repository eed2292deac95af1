// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

func preflightInit() Phase {
	return Phase{
		Name:    "preflight",
		Summary: "Check that this host can become a control plane, and pull its images",
		Flags:   []string{"config", "cri-socket", "dry-run", "ignore-preflight-errors", "image-repository"},
		Run:     runPreflightInit,
	}
}

func runPreflightInit(ctx context.Context, env *Env) error {
	checks, err := initChecks(ctx, env)
	if err != nil {
		return err
	}
	env.UI.Printf("Checking this host")
	report := preflight.Run(ctx, checks, env.Host, env.Config.IgnorePreflightErrors)
	if err := show(env, report); err != nil {
		return err
	}
	return pullImages(ctx, env)
}

// wantedManifests returns the static Pods of this configuration by path: the checks accept these files.
func wantedManifests(env *Env) (map[string][]byte, error) {
	view, err := hostView(env)
	if err != nil {
		return nil, err
	}
	components := []string{manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName}
	if env.Config.Cluster.Etcd.External == nil {
		components = append(components, manifests.EtcdName)
	}
	wanted := map[string][]byte{}
	for _, c := range components {
		data, err := staticPodYAML(env, c, view, nil)
		if err != nil {
			return nil, err
		}
		wanted[filepath.Join(env.Config.Paths.Manifests, c+".yaml")] = data
	}
	return wanted, nil
}

// pullImages pulls the control plane's missing images.
func pullImages(ctx context.Context, env *Env) error {
	n := env.Config
	env.UI.Printf("Pulling missing images")
	check := preflight.Images(n, n.Images(), env.Host, sayImage(env))
	return show(env, preflight.Run(ctx, []preflight.Check{check}, env.Host, n.IgnorePreflightErrors))
}

// sayImage says what was done about an image.
func sayImage(env *Env) func(image, state string, took time.Duration) {
	return func(image, state string, took time.Duration) {
		env.UI.Printf("%s: %s (%.1fs)", image, state, took.Seconds())
	}
}

// PullImages is pullImages for `config images pull`, where no error is ignored.
func PullImages(ctx context.Context, env *Env) error {
	err := pullImages(ctx, env)
	var failed *preflight.FailedError
	if !errors.As(err, &failed) {
		return err
	}
	var lines []string
	for _, f := range failed.Findings {
		lines = append(lines, f.Fault.String())
	}
	return errors.New(strings.Join(lines, "\n"))
}

// show reports the findings to the operator and returns the errors.
func show(env *Env, report preflight.Report) error {
	for _, f := range report.Notes {
		env.UI.Printf("%s", f)
	}
	if len(report.Unasked) > 0 {
		var checks []string
		for _, f := range report.Unasked {
			checks = append(checks, fmt.Sprintf("%s (%s)", f.Check, f.Message))
		}
		env.UI.Warnf("not checked in a dry run: %s", strings.Join(checks, ", "))
	}
	for _, f := range report.Warnings {
		env.UI.Warn(f.Check+": "+f.Message, f.Remedy)
	}
	return report.Err()
}
