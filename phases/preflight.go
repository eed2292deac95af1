// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

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

// wantedManifests are the static Pods that this configuration asks for, by
// path: what the checks take for this tool's own.
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

// pullImages pulls the images of the control plane that are missing.
func pullImages(ctx context.Context, env *Env) error {
	n := env.Config
	env.UI.Printf("Checking the images, and pulling those that are missing")
	check := preflight.Images(n, n.Images(), env.Host, func(image, state string, took time.Duration) {
		env.UI.Printf("%s: %s (%.1fs)", image, state, took.Seconds())
	})
	return show(env, preflight.Run(ctx, []preflight.Check{check}, env.Host, n.IgnorePreflightErrors))
}

// PullImages is pullImages for `config images pull`, where nothing goes on
// regardless.
func PullImages(ctx context.Context, env *Env) error {
	err := pullImages(ctx, env)
	var failed *preflight.FailedError
	if !errors.As(err, &failed) {
		return err
	}
	var lines []string
	for _, f := range failed.Findings {
		lines = append(lines, f.Message)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// show gives a report to the operator and returns its errors.
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
		env.UI.Warnf("%s: %s", f.Check, f.Message)
	}
	return report.Err()
}
