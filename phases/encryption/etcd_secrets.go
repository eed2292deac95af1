// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// values are all Secrets in etcd.
type values struct {
	prefix  string // of their keys
	all     int
	others  []string          // as NAMESPACE/NAME: those whose values don't have the target's prefix
	needs   map[string]string // the providers that wrote those, and the name of a Secret of each
	keyring bool              // the keyring's Secret is among them
}

// readValues reads etcd where this host's API server keeps its Secrets.
func readValues(ctx context.Context, env *step.Env, target string) (v values, err error) {
	v.needs = map[string]string{}
	root := cmp.Or(manifests.FlagOf(apiServer(env), "etcd-prefix"), "/registry")
	v.prefix = path.Join("/", root, "secrets") + "/"
	err = env.Etcd.Values(ctx, v.prefix, func(key string, value []byte) {
		name := strings.TrimPrefix(key, v.prefix)
		v.all++
		v.keyring = v.keyring || name == metav1.NamespaceSystem+"/"+encryption.KeyringSecret
		if p := encryption.Provider(value); p != target {
			v.others, v.needs[p] = append(v.others, name), name
		}
	})
	return v, err
}

// check fails if these aren't the cluster's Secrets: an empty range proves nothing.
func (v values) check() error {
	if v.keyring {
		return nil
	}
	return fault.New("etcd has no Secret kube-system/"+encryption.KeyringSecret+" below "+v.prefix+", although the API server has it",
		"see where the API server keeps Secrets: Slipway reads the etcd of the stored configuration, below the API server's --etcd-prefix")
}

// providers returns the names of the providers that wrote the others. It fails if nobody here has a key, so no API server reads the value.
func (v values) providers(ring encryption.Keyring) ([]string, error) {
	names := slices.Sorted(maps.Keys(v.needs))
	for _, name := range names {
		if _, found := ring.Key(name); !found && name != encryption.Identity {
			return nil, fault.New(fmt.Sprintf("Secret %s is encrypted with the key %s, which neither this host nor Secret kube-system/%s has", v.needs[name], name, encryption.KeyringSecret),
				"run the same command on another control plane: "+keyringFile+" there may have the key; if none has it, delete the Secret from etcd")
		}
	}
	return names, nil
}

func apiServer(env *step.Env) *corev1.Pod {
	pod, _ := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	return pod
}

const overridesFlag = "etcd-servers-overrides"

// checkPlace refuses Secrets in another etcd than all else: nobody would look there for the proof.
func checkPlace(env *step.Env) error {
	configured := manifests.FlagsOf(config.Words(env.Config.Cluster.APIServer.ExtraArgs))
	for _, f := range append(manifests.PodFlags(apiServer(env)), configured...) {
		if f.Name == overridesFlag && slices.ContainsFunc(strings.Split(f.Value, ","), overridesSecrets) {
			return fault.New("--"+overridesFlag+": the API server keeps Secrets in an etcd of their own",
				"manage it by hand (https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/): Slipway doesn't look there, and didn't change anything")
		}
	}
	return nil
}

// overridesSecrets reads GROUP/RESOURCE#SERVERS, perhaps in quotes; the group of Secrets is empty.
func overridesSecrets(override string) bool {
	return strings.HasPrefix(strings.Trim(override, `" `), "/secrets#")
}

// flagged returns the API server's file with keys.
func flagged(env *step.Env) string { return manifests.FlagOf(apiServer(env), manifests.EncryptionFlag) }
