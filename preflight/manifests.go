// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// staticPod checks that path doesn't exist or holds exactly this run's manifest. wanted is empty if this run wouldn't write it.
func staticPod(path, component string, wanted []byte) func(context.Context, View) []fault.Finding {
	return ifPresent(path, func(_ View, have []byte) []fault.Finding {
		switch {
		case len(wanted) == 0:
			return fail("%s exists, but this configuration has no such static Pod", path).
				remedy("move it away; if it is left from an old cluster, run `slipway reset` first")
		case bytes.Equal(have, wanted):
			return note("%s is in place", path)
		}
		difference, ours := compare(component, have, wanted)
		if !ours {
			return notStaticPod(path, component)
		}
		return fail("%s differs from what this configuration makes: %s", path, difference).remedy(KeepOrReset)
	})
}

// KeepOrReset is the remedy if an earlier run's result differs from this configuration's.
const KeepOrReset = "if you edited it, run the command again once the API server answers: an edit stays if the cluster has this configuration " +
	"(a plan needs --diff to ask). If it is from a run with another configuration, use that one. `slipway reset` starts over, and deletes this node's data"

func notStaticPod(path, component string) []fault.Finding {
	return fail("%s exists, but is not a static Pod of %s", path, component).remedy("move it away")
}

// ifPresent runs a check on a file unless it's missing.
func ifPresent(path string, judge func(h View, have []byte) []fault.Finding) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding {
		have, err := h.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrPermission):
			return fail("%s exists, but cannot be read", path).remedy("run as root")
		case err != nil:
			return fail("%s exists, but cannot be read: %v", path, err).remedy("move it away")
		}
		return judge(h, have)
	}
}

// OnlyThere and OnlyAsked begin the two parts of a difference.
const (
	OnlyThere = "only there: "
	OnlyAsked = "only in this configuration: "
)

// compare describes how the arguments and images of a component's two static Pods differ. It leaves out environment variables,
// whose values may be secret. ours is false unless both are static Pods of the component.
func compare(component string, have, wanted []byte) (difference string, ours bool) {
	old, err := containerOf(component, have)
	if err != nil {
		return "", false
	}
	asked, err := containerOf(component, wanted)
	if err != nil {
		return "", false
	}
	var parts []string
	if old.Image != asked.Image {
		parts = append(parts, fmt.Sprintf("its image is %s instead of %s", old.Image, asked.Image))
	}
	if gone := without(old.Command, asked.Command); len(gone) > 0 {
		parts = append(parts, OnlyThere+strings.Join(gone, " "))
	}
	if missing := without(asked.Command, old.Command); len(missing) > 0 {
		parts = append(parts, OnlyAsked+strings.Join(missing, " "))
	}
	if len(parts) == 0 {
		parts = append(parts, "volumes, environment, probes, resources or formatting")
	}
	return strings.Join(parts, "; "), true
}

// IsStaticPod reports whether manifest is a static Pod of a component, edited or not.
func IsStaticPod(component string, manifest []byte) bool {
	_, err := containerOf(component, manifest)
	return err == nil
}

func containerOf(component string, manifest []byte) (corev1.Container, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return corev1.Container{}, errors.New("not a Pod") // the parser's error may quote the file
	}
	if pod.Name != component || pod.Namespace != "kube-system" || len(pod.Spec.Containers) != 1 {
		return corev1.Container{}, errors.Errorf("not a static Pod of %s", component)
	}
	return pod.Spec.Containers[0], nil
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// clusterInfo is the ConfigMap that a bootstrap token signs; nodes read it before they know the cluster.
const clusterInfo = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// anonymousAccess checks that an AuthenticationConfiguration allows clients without credentials: the kubelet's probes of the API
// server, and nodes that find the cluster by a token. Patches may give the probes a token.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-authenticator-configuration
func anonymousAccess(_ context.Context, h View, n *config.Node) []fault.Finding {
	pod := plannedServer(n, h)
	file := manifests.FlagOf(pod, "authentication-config")
	if file == "" {
		return nil
	}
	unseen := func(format string, args ...any) []fault.Finding {
		return warn("it was not checked whether the API server's probes can work with authentication-config: "+format, args...).
			remedy("see that the API server finds the file, and that the file allows anonymous requests to /livez, /readyz and %s", clusterInfo)
	}
	there, mounted := thisnode.OnHost(pod, file)
	if !mounted {
		return unseen("%s is in no volume that the API server has from this host", file)
	}
	data, err := h.ReadFile(there)
	if planned := plannedFile(n, there); errors.Is(err, fs.ErrNotExist) && planned != nil {
		data, err = planned, nil
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unseen("%s, which the API server reads as %s, does not exist", there, file)
	case err != nil:
		return unseen("%v", err)
	}
	return anonymousFindings(there, data, n.PatchesDir != "")
}

// plannedFile is the content of a profile's file, which this run writes unless it exists; nil for any other path.
func plannedFile(n *config.Node, path string) []byte {
	for _, f := range n.ProfileFiles() {
		if f.Path == path {
			return f.Data
		}
	}
	return nil
}

// plannedServer is the API server's static Pod, with the user's patches if they can be applied; another phase says why not.
func plannedServer(n *config.Node, h View) *corev1.Pod {
	plain := manifests.APIServer(n, manifests.HostView{CertDirs: existing(h, manifests.CertDirs())})
	doc, err := yaml.Marshal(plain)
	if err != nil {
		return plain
	}
	patches, err := config.ReadPatches(h, n.PatchesDir)
	if err != nil {
		return plain
	}
	patched := &corev1.Pod{}
	if doc, err = patches.Apply(manifests.APIServerName, doc, &corev1.Pod{}); err != nil || yaml.Unmarshal(doc, patched) != nil {
		return plain
	}
	return patched
}

func patches(_ context.Context, h View, dir string) []fault.Finding {
	set, err := config.ReadPatches(h, dir)
	if err != nil {
		return fail("the patches in %s cannot be applied: %v", dir, err).remedy("fix the patches, or move them out of the directory")
	}
	var found []fault.Finding
	for _, ignored := range set.Ignored {
		found = append(found, warn("ignoring a file in %s: %s", dir, ignored.Error()).remedy("rename it if it is a patch; otherwise move it away")...)
	}
	return found
}

func existing(h View, paths []string) []string {
	return slices.DeleteFunc(paths, func(p string) bool {
		_, err := h.Stat(p)
		return err != nil
	})
}

func anonymousFindings(file string, data []byte, patched bool) []fault.Finding {
	var c struct {
		Anonymous *struct {
			Enabled    bool                    `json:"enabled"`
			Conditions []struct{ Path string } `json:"conditions"`
		} `json:"anonymous"`
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return warn("%s is not an AuthenticationConfiguration", file).remedy("fix it: the API server does not start with it")
	}
	if c.Anonymous == nil || c.Anonymous.Enabled && len(c.Anonymous.Conditions) == 0 {
		return nil
	}
	allows := func(p string) bool {
		return c.Anonymous.Enabled && slices.ContainsFunc(c.Anonymous.Conditions, func(one struct{ Path string }) bool { return one.Path == p })
	}
	var found []fault.Finding
	if !allows("/livez") || !allows("/readyz") {
		report := fail
		if patched {
			report = warn
		}
		found = report("%s allows no anonymous requests to /livez and /readyz, so the API server's probes fail, and the kubelet kills it", file).
			remedy("add both paths to anonymous.conditions")
	}
	if !allows(clusterInfo) {
		found = append(found, warn("%s allows no anonymous requests to cluster-info, so no node can find the cluster by a token", file).
			remedy("add %s to anonymous.conditions, or let nodes join with --discovery-file", clusterInfo)...)
	}
	return found
}
