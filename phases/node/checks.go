// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// PullMissingImages pulls this node's images that the runtime lacks: the check ImagePull, whose errors can be ignored.
func PullMissingImages(ctx context.Context, env *step.Env) error {
	n := env.Config
	env.UI.Printf("Pulling missing images")
	if err := env.Host.RepairInterruptedFetches(ctx, n.CRISocket); err != nil {
		return err
	}
	images, err := Images(env)
	if err != nil {
		return err
	}
	return Check(ctx, env, preflight.Images(n, images, env.Host, ReportImage(env)))
}

// Check makes checks and reports their findings. An error fails unless the operator ignores its check.
func Check(ctx context.Context, env *step.Env, checks ...preflight.Check) error {
	return reportFindings(env, preflight.Run(ctx, checks, env.Host, env.Settings().IgnorePreflightErrors))
}

// ReportImage prints the result for an image.
func ReportImage(env *step.Env) func(image, state string, took time.Duration) {
	return func(image, state string, took time.Duration) {
		env.UI.Printf("%s: %s (%.1fs)", image, state, took.Seconds())
	}
}

// PullImages is PullMissingImages for `config images pull`, which ignores no errors.
func PullImages(ctx context.Context, env *step.Env) error {
	err := PullMissingImages(ctx, env)
	var failed *preflight.FailedError
	if !errors.As(err, &failed) {
		return err
	}
	var lines []string
	for _, f := range failed.Findings {
		lines = append(lines, f.Plain())
	}
	return errors.New(strings.Join(lines, "\n"))
}

// AwaitChecks repeats checks for up to the time a kubelet may take to become healthy, until none finds an error that ignore doesn't
// name. Upgrades and preparations use it right before they restart something: other control planes may have changed since
// preflight, and may be about to recover. It prints the last findings.
func AwaitChecks(ctx context.Context, env *step.Env, checks []preflight.Check, ignore []string) error {
	limited, cancel := context.WithTimeout(ctx, env.Settings().Timeouts.KubeletHealthCheck)
	defer cancel()
	var report preflight.Report
	err := retry.Every(turnInterval).Do(limited, func(ctx context.Context) error {
		report = preflight.Run(ctx, checks, env.Host, ignore)
		return report.Err()
	})
	if err != nil {
		return err
	}
	return reportFindings(env, report)
}

// reportFindings prints the notes, the warnings and the names of checks that couldn't be made, such as in a dry run, and returns the
// errors as a *preflight.FailedError.
func reportFindings(env *step.Env, report preflight.Report) error {
	for _, f := range report[fault.Note] {
		env.UI.Printf("%s", f)
	}
	if len(report[fault.Unasked]) > 0 {
		var checks []string
		for _, f := range report[fault.Unasked] {
			checks = append(checks, fmt.Sprintf("%s (%s)", f.Name, f.Message))
		}
		env.UI.Warnf("not checked: %s", strings.Join(checks, ", "))
	}
	for _, f := range report[fault.Warning] {
		env.UI.Warn(f.Name+": "+f.Message, f.Remedy)
	}
	return report.Err()
}
