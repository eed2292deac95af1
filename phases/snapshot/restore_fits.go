// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// identity is the provider that stores objects as they are.
const identity = "identity"

// fits fails if this host's etcd wouldn't start with the snapshot, or its API server, with this static Pod, couldn't work with it.
// Whatever isn't known is a doubt.
func (r *Restore) fits(env *step.Env, server []byte) error {
	minor := node.EtcdMinor([]byte(r.journal.Manifest))
	if minor == "" && r.info.Version != "" {
		r.doubts = append(r.doubts, fmt.Sprintf("whether this host's etcd, whose image's tag is not a version, starts with data that needs etcd %s or newer", r.info.Version))
	}
	if err := backup.StartsWith(r.info, minor); err != nil {
		return fault.New(fmt.Sprintf("%s does not fit this host: %v", r.File, err), "upgrade this control plane to the snapshot's version first, or choose an older snapshot")
	}
	if !r.recorded {
		r.record = recordOf(r.info.Contents)
		r.record.Alarms = r.info.Contents.Alarms
	}
	pod, err := manifests.DecodePod(server)
	if err != nil {
		return errors.WithMessage(err, env.Config.Paths.StaticPod(manifests.APIServerName))
	}
	if err := r.isOfCluster(env, pod); err != nil {
		return err
	}
	if err := r.isNotNewer(server); err != nil {
		return err
	}
	return r.hasKeys(env, pod)
}

// isOfCluster compares the cluster's CAs: the snapshot's objects hold them, and its clients trust them.
func (r *Restore) isOfCluster(env *step.Env, pod *corev1.Pod) error {
	recorded := r.record.Authorities[certs.CA]
	if len(recorded) == 0 {
		says := "its record does not say which CA the cluster had"
		if !r.recorded {
			says = "it has no record (" + snapshots.RecordPath(r.File) + "), and no object in it says which CA the cluster had"
		}
		r.doubts = append(r.doubts, "whether the snapshot is of this cluster: "+says)
		return nil
	}
	pins, err := pinsIn(env, pod, authorities[0].flag)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(pins, func(pin string) bool { return slices.Contains(recorded, pin) }) {
		return nil
	}
	return fault.New(fmt.Sprintf("%s is of a cluster with the CA %s, and this host's is %s", r.File, strings.Join(recorded, ", "), strings.Join(pins, ", ")),
		"choose a snapshot of this cluster; if its CA was replaced since, put the earlier one back first")
}

// compare looks for signs that the snapshot is of another cluster with the same CA. A cluster keeps the UID of Namespace kube-system
// as long as it lives; it has another one only if the wrong snapshot was restored before. etcd's ID changes with each restore and
// recovery, so a different one is only a doubt.
func (r *Restore) compare(ctx context.Context, env *step.Env) {
	now, then := clusterUID(ctx, env), r.record.ClusterUID
	switch {
	case now != "" && then != "":
		if now != then {
			r.another = []fault.Finding{fault.NewFinding(fault.EtcdSnapshotCluster, fault.Error, "choose a snapshot of this cluster",
				"%s is of another cluster: its Namespace kube-system has the UID %s, and this cluster's has %s", r.File, then, now)}
		}
	case r.Cluster != 0 && r.record.ClusterID != "" && r.record.ClusterID != backup.EtcdID(r.Cluster):
		r.unsure = append(r.unsure, fmt.Sprintf("whether the snapshot is of this cluster, or of another with the same CA: etcd's cluster has the ID %s, and had %s then, which a restore or recovery since explains",
			backup.EtcdID(r.Cluster), r.record.ClusterID))
	}
}

// clusterUID is the UID of this cluster's Namespace kube-system; empty if the API doesn't say.
func clusterUID(ctx context.Context, env *step.Env) string {
	limited, cancel := context.WithTimeout(ctx, node.ReachTimeout)
	defer cancel()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	if found, err := env.Cluster.Get(limited, system); err != nil || !found {
		return ""
	}
	return string(system.UID)
}

// isNotNewer compares versions of Kubernetes: an older API server may not know versions of objects that a newer one has stored, or
// may drop fields from them.
func (r *Restore) isNotNewer(server []byte) error {
	here, _ := upgrading.VersionOf(server) // an image may have a tag that isn't a version
	if here == "" || r.record.Kubernetes == "" {
		r.doubts = append(r.doubts, fmt.Sprintf("whether this host's Kubernetes (%s) is older than the snapshot's (%s)", cmp.Or(here, "of unknown version"), cmp.Or(r.record.Kubernetes, "of unknown version")))
		return nil
	}
	if releases.Less(r.record.Kubernetes, here) {
		r.journal.Upgrade = here
	}
	if !releases.Less(here, r.record.Kubernetes) {
		return nil
	}
	return fault.New(fmt.Sprintf("%s comes from Kubernetes %s, and this host's API server has %s: it may not read everything in it", r.File, r.record.Kubernetes, here),
		"choose an older snapshot, or upgrade this control plane first; on a bare host, use the snapshot's version in the configuration (kubernetesVersion)")
}

// outdated warns of a snapshot of an older minor of Kubernetes; empty without one.
func (r *Restore) outdated() string {
	if r.journal.Upgrade == "" {
		return ""
	}
	return fmt.Sprintf("The snapshot is of Kubernetes %s, and this host's API server has %s: the cluster's stored configuration and add-ons will be of the older version. Afterwards, run `slipway upgrade apply %s`",
		r.record.Kubernetes, r.journal.Upgrade, r.journal.Upgrade)
}

// sayUpgrade says how the restored configuration gets to this host's version.
func (r *Restore) sayUpgrade(env *step.Env) {
	if r.journal.Upgrade != "" {
		env.UI.Nextf("The snapshot is of an older Kubernetes, and so are the cluster's stored configuration and add-ons now: "+
			"run `slipway upgrade apply %s`, once lost nodes are deleted, and before other hosts join", r.journal.Upgrade)
	}
}

// hasKeys fails if the API server couldn't read some of the snapshot's objects. Keys go by their names and fingerprints.
func (r *Restore) hasKeys(env *step.Env, pod *corev1.Pod) error {
	for _, unknown := range r.record.Unknown {
		if strings.Contains(unknown, encryptionFact) {
			r.doubts = append(r.doubts, "whether the keys that the snapshot's Secrets may be encrypted with are here: "+unknown)
			return nil
		}
	}
	now, err := encryptionIn(env, pod, r.record)
	if err != nil {
		return errors.WithMessage(err, "cannot tell whether the API server can read the snapshot's Secrets")
	}
	stored := r.record.Encryption
	if !snapshots.IsSealed(r.File) { // it's known which of them encrypt anything
		stored = usedKeys(stored, r.info.Contents.EncryptedWith)
	}
	missing, changed := missingKeys(stored, now)
	if len(changed) > 0 {
		return fault.New(fmt.Sprintf("the API server could not read all of the snapshot's objects: some may be encrypted with keys whose names are in this host's --%s, but with other bytes: %s",
			manifests.EncryptionFlag, strings.Join(changed, ", ")),
			"put the former bytes back under this name in the EncryptionConfiguration, from a backup, and give the present ones a name of their own; then restart the API server and run this again")
	}
	if len(missing) == 0 {
		if !r.recorded && len(r.record.Encryption) > 0 {
			r.doubts = append(r.doubts, fmt.Sprintf("whether the keys here are the same: values in the snapshot are encrypted with %s, and without a record (%s), only these names are known",
				strings.Join(r.info.Contents.EncryptedWith, ", "), snapshots.RecordPath(r.File)))
		}
		return nil
	}
	remedy := "add them to the EncryptionConfiguration, after the first key, under the same names; then restart the API server and run this again"
	if manifests.FlagOf(pod, manifests.EncryptionFlag) == config.EncryptionFile {
		remedy = "`slipway encryption recall " + strings.ReplaceAll(strings.Join(missing, " "), "secretbox:", "") + "`, then run this again"
	}
	return fault.New(fmt.Sprintf("the API server could not read all of the snapshot's objects: they may be encrypted with %s, and --%s of this host does not have %s",
		strings.Join(missing, ", "), manifests.EncryptionFlag, pronoun(missing)), remedy)
}

func pronoun(list []string) string {
	if len(list) == 1 {
		return "it"
	}
	return "them"
}

// usedKeys leaves out the keys that nothing in a snapshot is encrypted with, and adds used keys that the record lacks. Of a used key's
// name, only the text before a colon is known.
func usedKeys(recorded []snapshots.Encryption, used []string) []snapshots.Encryption {
	is := func(key, name string) bool { return key == name || strings.HasPrefix(key, name+":") }
	lacking, kept := slices.Clone(used), slices.Clone(recorded)
	for i := range kept {
		kept[i].Keys = slices.DeleteFunc(slices.Clone(kept[i].Keys), func(key string) bool {
			found := slices.ContainsFunc(used, func(name string) bool { return is(key, name) })
			lacking = slices.DeleteFunc(lacking, func(name string) bool { return is(key, name) })
			return !found && key != identity
		})
	}
	for _, name := range lacking {
		kept = append(kept, snapshots.Encryption{Keys: []string{name}})
	}
	return kept
}

// missingKeys returns the keys that objects may be stored with, and that aren't there to read them, or have other bytes. An identity
// that isn't the first was there for objects from before their encryption, and isn't insisted on.
func missingKeys(stored, now []snapshots.Encryption) (missing, changed []string) {
	if len(stored) == 0 {
		stored = []snapshots.Encryption{{Keys: []string{identity}}}
	}
	for _, e := range stored {
		for i, key := range e.Keys {
			if i > 0 && key == identity || key == identity && len(now) == 0 {
				continue
			}
			switch named, same := hasKey(now, key, e.Fingerprints[key]); {
			case same:
			case named:
				changed = append(changed, key)
			default:
				missing = append(missing, key)
			}
		}
	}
	return unique(missing), unique(changed)
}

// hasKey looks for a key by its name, and for one with the same fingerprint. A key without a fingerprint is the same as any other.
func hasKey(now []snapshots.Encryption, name, fingerprint string) (named, same bool) {
	for _, e := range now {
		if !slices.Contains(e.Keys, name) {
			continue
		}
		here := e.Fingerprints[name]
		named, same = true, same || here == fingerprint || here == "" || fingerprint == ""
	}
	return named, same
}

func unique(list []string) (once []string) {
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}
