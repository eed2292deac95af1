// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// differences holds what an earlier init has left against what this one would
// make, before anything is written: a control plane is not half changed. The
// static Pods have checks of their own. As long as there is none of the API
// server, the kubelet may still get any settings.
func differences(ctx context.Context, env *Env) []string {
	found := append(certificatesDiffer(env), kubeconfigsDiffer(env)...)
	if !IsControlPlane(env.Host) {
		return found
	}
	return slices.Concat(found, kubeletDiffers(env), clusterDiffers(ctx, env))
}

// beginAnew is what to do about a difference.
const beginAnew = "run again with the configuration of the earlier run, or run the reset command to begin anew"

func kubeletDiffers(env *Env) []string {
	files, err := kubeletFiles(env)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for _, f := range files {
		have, err := readIfExists(env.Host, f.path)
		switch {
		case err != nil:
			faults = append(faults, err.Error())
		case have != nil && string(have) != string(f.data):
			faults = append(faults, fmt.Sprintf("%s is of another configuration: %s; %s", f.path, lineDifference(have, f.data), beginAnew))
		}
	}
	return faults
}

// lineDifference says which lines each of two texts has alone, but for the
// values of environment variables and what else no plan shows.
func lineDifference(have, wanted []byte) string {
	there, asked := redact.Document(string(have)), redact.Document(string(wanted))
	if there == asked {
		return "values that are not shown, such as those of environment variables"
	}
	only := func(a, b string) string {
		var lines []string
		others := strings.Split(b, "\n")
		for line := range strings.Lines(a) {
			if line = strings.TrimRight(line, "\n"); !slices.Contains(others, line) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		const most = 5
		if len(lines) > most {
			lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
		}
		return strings.Join(lines, ", ")
	}
	var parts []string
	if text := only(there, asked); text != "" {
		parts = append(parts, "there only: "+text)
	}
	if text := only(asked, there); text != "" {
		parts = append(parts, "asked for only: "+text)
	}
	if len(parts) == 0 {
		return "the same lines in another order"
	}
	return strings.Join(parts, "; ")
}

// certificatesDiffer tells what is wrong with the certificates that are there,
// for this configuration.
func certificatesDiffer(env *Env) []string {
	var faults []string
	for _, spec := range certs.Specs(env.Config) {
		if err := certificateFits(env, spec); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

func certificateFits(env *Env, spec certs.Spec) error {
	store := pairStore{env}
	cert, key, err := store.read(spec)
	if err != nil || cert == nil {
		return err
	}
	certPath, keyPath := store.paths(spec)
	pair, err := certs.ParsePair(cert, key)
	if err != nil {
		return errors.Wrapf(err, "%s and %s", certPath, keyPath)
	}
	if spec.IsCA() {
		return certs.Check(spec, env.Config, pair, nil, env.Host.Now())
	}
	ca, err := store.ca(spec)
	if err != nil {
		return err
	}
	return certs.Check(spec, env.Config, pair, ca.Bundle(), env.Host.Now())
}

// kubeconfigsDiffer leaves out a server of the administrator's own, which the
// phase kubeconfig warns of.
func kubeconfigsDiffer(env *Env) []string {
	var faults []string
	for _, spec := range kubeconfig.Specs(env.Config) {
		ca, err := pairStore{env}.ca(spec.Certificate())
		if err != nil {
			return nil // the certificates' own fault
		}
		data, err := readIfExists(env.Host, filepath.Join(env.Config.Paths.Kubeconfigs, spec.File))
		if err == nil && data != nil {
			err = kubeconfig.Check(data, spec, env.Config, ca.Bundle(), env.Host.Now())
		}
		var known *certs.Error
		switch {
		case err == nil, errors.As(err, &known) && known.Only(kubeconfig.WrongServer):
		default:
			faults = append(faults, err.Error())
		}
	}
	return faults
}

// askTime is how long an API server that is up may take for one question.
const askTime = 3 * time.Second

// clusterDiffers compares with the ClusterConfiguration that the cluster keeps,
// if there is a cluster yet that can be asked.
func clusterDiffers(ctx context.Context, env *Env) []string {
	wanted, err := env.Config.KubeadmConfigYAML()
	if err != nil {
		return []string{err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := env.Host.Probe(ctx, host.Probe{URL: "https://" + env.Config.LocalEndpoint() + "/readyz"}); err != nil {
		return nil
	}
	stored, err := StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return nil
	}
	if stored, wanted, err = config.Comparable(stored, wanted); err != nil {
		return []string{err.Error()}
	}
	if string(stored) == string(wanted) {
		return nil
	}
	return []string{fmt.Sprintf("the cluster keeps another configuration in %s: %s; %s", config.ClusterSource, lineDifference(stored, wanted), beginAnew)}
}
