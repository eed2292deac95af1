// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package encryption turns on, rotates and turns off the encryption of Secrets in etcd. Run.Phases is the workflow of
// `encryption enable`, `rotate` and `disable`; ReadStatus reports the state, and Recall restores earlier keys. No run remembers
// a step: internal/encryption.Next works it out from the files that the API servers have loaded and the values in etcd. So the
// same command, on any control plane, finishes an interrupted run. docs/design/encryption.md has the reasons.
package encryption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Goal is what a run is asked for.
type Goal string

// The goals, which are also the commands.
const (
	Enable  Goal = "enable"
	Rotate  Goal = "rotate"
	Disable Goal = "disable"
)

// Run pursues a goal on this control plane.
type Run struct {
	Goal Goal
	// Again rotates a key although it has only just been rotated.
	Again bool

	rewritten []string // the Secrets of the last rewrite
}

// Phases is the workflow. restart has the phases for this node's API server to read the file with the keys; none if it does.
func (r *Run) Phases(restart []step.Phase) []step.Phase {
	list := []step.Phase{
		{Name: "check", Summary: "Check that Slipway looks after this cluster's encryption", Run: r.check},
		{Name: "keys", Summary: "Choose the key, and share it with the other control planes", Run: r.decide},
	}
	list = append(list, restart...)
	return append(list, step.Phase{Name: "encrypt", Summary: "Take the steps that the API servers are ready for", Run: r.encrypt})
}

// Reads reports whether this host's API server reads the file with the keys, by its static Pod.
func Reads(env *step.Env) bool {
	return flagged(env) == config.EncryptionFile
}

// check refuses an EncryptionConfiguration that is managed outside Slipway, an earlier cluster's, and Secrets in an etcd that Slipway
// doesn't look at.
func (r *Run) check(ctx context.Context, env *step.Env) error {
	for _, file := range []string{flagged(env), env.Config.Cluster.EncryptedBy()} {
		if file != "" && file != config.EncryptionFile {
			return fault.New(fmt.Sprintf("--%s=%s: this cluster's encryption is managed outside Slipway", manifests.EncryptionFlag, file),
				"manage it by hand (https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/); Slipway changes only "+config.EncryptionFile)
		}
	}
	if r.Goal != Enable && !Reads(env) {
		return fault.New("this control plane's API server does not read "+config.EncryptionFile, "run `slipway encryption enable` first")
	}
	if err := checkPlace(env); err != nil {
		return err
	}
	o, err := ownFile(env)
	if err != nil || !o.unused || o.data == nil {
		return err
	}
	ring, _, err := readKeyring(ctx, env)
	if err != nil {
		return err
	}
	return o.refuseLeftover(ring)
}

// reloadTimeout is how long an API server may take to load a changed file. It looks at the file every minute.
const reloadTimeout = 3 * time.Minute

// encrypt takes one step after the other, each in a turn of its own, until there's nothing left to do here.
func (r *Run) encrypt(ctx context.Context, env *step.Env) error {
	for {
		turn, err := node.AcquireLease(ctx, env, node.ForEncryption)
		if err != nil {
			return err
		}
		done, err := r.step(ctx, env, turn)
		if err := turn.Release(ctx, env, err); err != nil || done {
			return err
		}
	}
}

func (r *Run) step(ctx context.Context, env *step.Env, turn node.Lease) (done bool, err error) {
	ring, err := gather(ctx, env)
	if err != nil {
		return false, err
	}
	var lacking []string
	s, next, err := nextStep(ctx, env, ring, func(list []string) { lacking = list })
	if err != nil {
		return false, err
	}
	switch next.Do {
	case encryption.Write:
		turn.KeepOnFailure() // until this API server has loaded the file, nobody knows what it reads
		return false, r.write(ctx, env, ring, s.own, next.Order)
	case encryption.Rewrite:
		return false, r.rewrite(ctx, env, lacking)
	case encryption.Wait:
		env.UI.Nextf("This control plane has done its part for now. Run `slipway encryption %s` on %s", r.Goal, strings.Join(next.For, ", "))
	default:
		r.reportDone(env, ring)
	}
	return true, nil
}

func (r *Run) write(ctx context.Context, env *step.Env, ring encryption.Keyring, from, to encryption.Order) error {
	switch {
	case from[0] != to[0]:
		env.UI.Printf("From now on, this API server writes Secrets with %s", to[0])
	case len(to) > len(from):
		env.UI.Printf("This API server will be able to read Secrets written with %s", to[1])
	default:
		env.UI.Printf("This API server drops %s: every Secret in etcd can be read with %s", removedProviders(from, to), to[0])
	}
	data, err := fileFor(ring, to)
	if err != nil {
		return err
	}
	// A control plane that joins with the file of another step may write with a key that others have given up.
	if err := dropSharedKeys(ctx, env); err != nil {
		return err
	}
	if err := writeOwn(env, data); err != nil {
		return err
	}
	return awaitLoaded(ctx, env, encryption.Hash(data))
}

func removedProviders(from, to encryption.Order) string {
	var names []string
	for _, name := range from {
		if !slices.Contains(to, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (r *Run) reportDone(env *step.Env, ring encryption.Keyring) {
	if ring.Target == encryption.Identity {
		env.UI.Nextf("No Secret in etcd is encrypted any more")
		return
	}
	env.UI.Nextf("All Secrets in etcd are encrypted with the key %s. Keep a copy of %s, but not next to a snapshot of etcd: without its key, they can't be read",
		ring.Target, config.EncryptionFile)
}

// awaitLoaded waits until this host's API server has loaded the file with this hash.
func awaitLoaded(ctx context.Context, env *step.Env, hash string) error {
	limited, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	said := false
	err := reloads.Do(limited, func(ctx context.Context) error {
		now, err := loaded(ctx, env, env.Config.LocalEndpoint())
		switch {
		case err != nil || now == hash:
			return err
		case !said:
			env.UI.Printf("Waiting until this API server has loaded %s, which takes up to a minute", config.EncryptionFile)
			said = true
		}
		return notLoadedError{errors.Errorf("this API server has not loaded %s: it has %s, and the file is %s", config.EncryptionFile, orNone(now), hash)}
	})
	if late := (notLoadedError{}); !errors.As(err, &late) {
		return err
	}
	return fault.WithRemedy(err, "its log in /var/log/pods says why; Kubernetes before 1.34 doesn't say what it has loaded, and has to be upgraded first")
}

// notLoadedError can pass: the API server will look at the file again.
type notLoadedError struct{ error }

func orNone(hash string) string {
	if hash == "" {
		return "none"
	}
	return hash
}
