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
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/preflight"
)

// differences compares what an earlier init left with what this one would make,
// before anything is written, so that a control plane is not half changed. Static
// Pods have checks of their own. Until there is one of the API server, the kubelet may
// still get any settings. If the cluster has exactly this configuration, what differs
// was edited, and stays.
func differences(env *Env, stored stored) []fault.Fault {
	found := append(certificatesDiffer(env), kubeconfigsDiffer(env)...)
	if !IsControlPlane(env.Host) || stored.same {
		return found
	}
	found = append(found, kubeletDiffers(env)...)
	if stored.difference.Message != "" {
		found = append(found, stored.difference)
	}
	return found
}

// acceptEdited makes the checks of static Pods take what is there for wanted
// where it is a static Pod of the component, with edits.
func acceptEdited(env *Env, wanted map[string][]byte) {
	for path := range wanted {
		have, err := readIfExists(env.Host, path)
		if err == nil && preflight.IsStaticPod(strings.TrimSuffix(filepath.Base(path), ".yaml"), have) {
			wanted[path] = have
		}
	}
}

func kubeletDiffers(env *Env) []fault.Fault {
	files, err := kubeletFiles(env)
	if err != nil {
		return []fault.Fault{fault.Of(err)}
	}
	var faults []fault.Fault
	for _, f := range files {
		have, err := readIfExists(env.Host, f.path)
		switch {
		case err != nil:
			faults = append(faults, fault.Of(err))
		case have != nil && string(have) != string(f.data):
			faults = append(faults, fault.Fault{
				Message: fmt.Sprintf("%s differs from what this configuration makes: %s", f.path, lineDifference(have, f.data)),
				Remedy:  preflight.KeepOrReset,
			})
		}
	}
	return faults
}

// lineDifference says which lines each of two texts has alone, but for the
// values of environment variables and what else no plan shows.
func lineDifference(have, wanted []byte) string {
	there, asked := shownFile(have), shownFile(wanted)
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
		parts = append(parts, preflight.OnlyThere+text)
	}
	if text := only(asked, there); text != "" {
		parts = append(parts, preflight.OnlyAsked+text)
	}
	if len(parts) == 0 {
		return "the same lines in another order"
	}
	return strings.Join(parts, "; ")
}

// certificatesDiffer tells what is wrong with the certificates that are there,
// for this configuration.
func certificatesDiffer(env *Env) []fault.Fault {
	var faults []fault.Fault
	for _, spec := range certs.Specs(env.Config) {
		if err := certificateFits(env, spec); err != nil {
			faults = append(faults, fault.Of(err))
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
func kubeconfigsDiffer(env *Env) []fault.Fault {
	var faults []fault.Fault
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
			faults = append(faults, fault.Of(err))
		}
	}
	return faults
}

// askTime is how long an API server that is up may take for one question.
const askTime = 3 * time.Second

// stored is how the ClusterConfiguration that the cluster keeps compares with the
// one that is asked for: neither is said where the cluster cannot be asked, or
// keeps none yet.
type stored struct {
	same       bool
	difference fault.Fault
}

func storedCompares(ctx context.Context, env *Env) stored {
	if !IsControlPlane(env.Host) {
		return stored{}
	}
	wanted, err := env.Config.KubeadmConfigYAML()
	if err != nil {
		return stored{difference: fault.Of(err)}
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := env.Host.Probe(ctx, host.Probe{URL: "https://" + env.Config.LocalEndpoint() + "/readyz"}); err != nil {
		return stored{}
	}
	have, err := StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return stored{}
	}
	if have, wanted, err = config.Comparable(have, wanted); err != nil {
		return stored{difference: fault.Of(err)}
	}
	if string(have) == string(wanted) {
		return stored{same: true}
	}
	return stored{difference: fault.Fault{
		Message: fmt.Sprintf("the cluster has a different configuration in %s: %s", config.ClusterSource, lineDifference(have, wanted)),
		Remedy:  preflight.KeepOrReset,
	}}
}
