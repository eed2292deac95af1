// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

const (
	certificatesCheck = "CertificateExpiration"
	caKeyCheck        = "CertificateAuthorityKey"
	strayCheck        = "StrayManifest"
	imagesCheck       = "ImagesPresent"
	etcdHealthCheck   = "EtcdHealth"
	etcdAlarmCheck    = "EtcdAlarm"
	etcdLearnerCheck  = "EtcdLearner"
	etcdSpaceCheck    = "EtcdSpace"
	labelCheck        = "ControlPlaneLabel"
)

// expiryWarning is how long before its end a certificate is reported if the upgrade doesn't renew it.
const expiryWarning = 30 * 24 * time.Hour

// hostFindings finds faults of this control plane and of etcd's members that stand in the way of any upgrade.
func hostFindings(ctx context.Context, env *step.Env, members []etcd.Health) []fault.Finding {
	images, _ := node.Images(env) // the check for edits reports static Pods that can't be made
	// UnprovableComponents comes first, because others may use up the time waiting for the API.
	return slices.Concat(node.UnprovableComponents(ctx, env), edits.KubeletFindings(ctx, env), certificateFindings(env), strayManifests(env),
		node.EncryptionFileFindings(env), imageFindings(ctx, env, images), etcdFindings(members),
		backup.SnapshotSpace(env, members, backup.MissingImagesNeed(ctx, env, images)...))
}

// certificateFindings finds CAs and certificates that end soon without being renewed, and CAs whose missing keys prevent renewal.
func certificateFindings(env *step.Env) []fault.Finding {
	leaves, authorities, err := pki.Expirations(env.PKI())
	if err != nil {
		return []fault.Finding{fault.NewFinding(certificatesCheck, fault.Unasked, "run `slipway certs check-expiration`", "the certificates were not checked: %v", err)}
	}
	var found []fault.Finding
	until := func(e pki.Expiration) string { return e.NotAfter.UTC().Format(time.DateOnly) }
	ends := func(e pki.Expiration) bool { return !e.Missing && e.NotAfter.Before(env.Host.Now().Add(expiryWarning)) }
	for _, ca := range authorities {
		if ends(ca) {
			found = append(found, fault.NewFinding(certificatesCheck, fault.Warning, "replace the CA before it expires: see \"Replacing a CA\" in docs/cluster-life.md",
				"the CA %s expires on %s", ca.Name, until(ca)))
		}
		if names := issuedBy(leaves, ca.Name); ca.External && len(names) > 0 {
			found = append(found, fault.NewFinding(caKeyCheck, fault.Warning, "have them signed where the key is: `slipway certs generate-csr`",
				"the key of the CA %s is not on this host, so the upgrade cannot renew %s", ca.Name, strings.Join(names, ", ")))
		}
	}
	for _, e := range leaves {
		// Without an upgrade of etcd, its own certificates stay. Needed leaves out etcd-healthcheck-client, which is renewed.
		stays := !env.Config.Upgrade.CertificateRenewal || !env.Config.Upgrade.Etcd && e.Needed && strings.HasPrefix(e.Name, "etcd-")
		if ends(e) && (e.External || stays) {
			found = append(found, fault.NewFinding(certificatesCheck, fault.Warning, "renew it: `slipway certs renew "+e.Name+"`, or `slipway certs generate-csr` for a CA whose key is elsewhere",
				"the certificate %s expires on %s, and the upgrade does not renew it", e.Name, until(e)))
		}
	}
	return found
}

func issuedBy(leaves []pki.Expiration, ca string) []string {
	var names []string
	for _, e := range leaves {
		if e.CA == ca && !e.Missing {
			names = append(names, e.Name)
		}
	}
	return names
}

// strayManifests finds other files that the kubelet takes for static Pods, such as a component's copy: it may run that instead.
func strayManifests(env *step.Env) []fault.Finding {
	const remedy = "move it out of the directory: the kubelet reads every file whose name does not begin with a dot"
	dir := env.Config.Paths.Manifests
	paths, err := host.VisibleFiles(env.Host, dir)
	if err != nil {
		return []fault.Finding{fault.NewFinding(strayCheck, fault.Unasked, "run this as root", "%s was not checked: %v", dir, err)}
	}
	var found []fault.Finding
	for _, path := range paths {
		name, component := strings.CutSuffix(filepath.Base(path), ".yaml")
		if component && slices.Contains(manifests.Components(env.Config), name) {
			continue
		}
		data, err := env.Host.ReadFile(path)
		if err != nil {
			found = append(found, fault.NewFinding(strayCheck, fault.Unasked, "run this as root", "%s was not checked: %v", path, err))
			continue
		}
		var pod corev1.Pod
		switch err := yaml.Unmarshal(data, &pod); {
		case err != nil || pod.Kind != "Pod":
			found = append(found, fault.NewFinding(strayCheck, fault.Warning, remedy, "%s is not a Pod, and the kubelet keeps reporting it as an error", path))
		case slices.Contains(manifests.Components(env.Config), pod.Name):
			found = append(found, fault.NewFinding(strayCheck, fault.Error, remedy, "%s is another manifest of %s: the kubelet may run it instead of the upgraded one", path, pod.Name))
		}
	}
	return found
}

// imageFindings finds missing images, and too little space for them.
func imageFindings(ctx context.Context, env *step.Env, images []string) []fault.Finding {
	n := env.Config
	missing, err := backup.MissingImages(ctx, env, images)
	switch {
	case err != nil:
		return []fault.Finding{fault.NewFinding(imagesCheck, fault.Unasked, "start the container runtime", "the images were not checked: %v", err)}
	case len(missing) == 0:
		return nil
	}
	return append(preflight.ImageSpace(ctx, &n.Machine, env.Host), fault.NewFinding(imagesCheck, fault.Warning,
		"`slipway upgrade apply` pulls them; `slipway config images pull --kubernetes-version "+n.Cluster.KubernetesVersion+"` does so earlier",
		"not on this node yet: %s", strings.Join(missing, ", ")))
}

func etcdFindings(members []etcd.Health) []fault.Finding {
	var found []fault.Finding
	names := map[uint64]string{}
	for _, m := range members {
		names[m.ID] = cmp.Or(m.Name, m.PeerURL)
	}
	for _, m := range members {
		name := names[m.ID]
		switch {
		case m.Err != nil:
			found = append(found, fault.NewFinding(etcdHealthCheck, fault.Warning, "make it healthy (`slipway diagnose` on its node), or remove a member that is lost (`slipway etcd member remove`)",
				"etcd member %s does not work: %v", name, m.Err))
		case m.Learner:
			found = append(found, fault.NewFinding(etcdLearnerCheck, fault.Warning, "wait until the join finishes; remove a learner that will not come back (`slipway etcd member remove`)",
				"etcd member %s is a learner: a control plane is being added", name))
		case m.Status.NearsQuota():
			found = append(found, fault.NewFinding(etcdSpaceCheck, fault.Warning, "`slipway etcd status` says what to do about it",
				"etcd member %s uses %d of the %d MiB that its database may have", name, m.Status.Size>>20, m.Status.Quota>>20))
		}
	}
	return append(found, alarms(members, names)...)
}

// alarms reports each alarm once: all members return the same list.
func alarms(members []etcd.Health, names map[uint64]string) []fault.Finding {
	var found []fault.Finding
	var seen []etcd.Alarm
	for _, m := range members {
		for _, a := range m.Status.Alarms {
			if slices.Contains(seen, a) {
				continue
			}
			seen = append(seen, a)
			found = append(found, fault.NewFinding(etcdAlarmCheck, fault.Error, "`slipway etcd status` says what to do about it",
				"etcd member %s has raised the alarm %s: etcd refuses writes", cmp.Or(names[a.Member], fmt.Sprintf("%x", a.Member)), a.Kind))
		}
	}
	return found
}

// strayPods finds control plane Pods on Nodes without the label: somebody has removed it, or a worker pretends. They don't count.
func strayPods(state *upgrading.State) []fault.Finding {
	pods := map[string][]string{}
	for _, pod := range state.Strays {
		pods[pod.Spec.NodeName] = append(pods[pod.Spec.NodeName], pod.Name)
	}
	var found []fault.Finding
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		found = append(found, fault.NewFinding(labelCheck, fault.Warning,
			"if it is a control plane, label it: `kubectl label node "+name+" "+cluster.LabelControlPlane+"=`; if it is a worker, find out who runs these Pods there, and do not trust it",
			"node %s has Pods of a control plane (%s), but not the label %s: they are neither asked nor counted", name, strings.Join(pods[name], ", "), cluster.LabelControlPlane))
	}
	return found
}

// lookFromHere looks at the cluster. A control plane counts itself, even without the label.
func lookFromHere(ctx context.Context, env *step.Env) (*upgrading.State, error) {
	state, err := upgrading.Look(ctx, env.Cluster)
	if err == nil && env.Config.ControlPlane {
		state.Count(env.Config.Name)
	}
	return state, err
}

// unmarkedHere warns if this control plane's Node lacks the label, so the others neither wait for it nor count it.
func unmarkedHere(env *step.Env, nodes []corev1.Node) []fault.Finding {
	here := func(n corev1.Node) bool { return n.Name == env.Config.Name }
	if !env.Config.ControlPlane || !slices.ContainsFunc(nodes, here) || cluster.ControlPlanesOf(nodes)[env.Config.Name] != nil {
		return nil
	}
	return []fault.Finding{fault.NewFinding(labelCheck, fault.Warning,
		"label it: `kubectl label node "+env.Config.Name+" "+cluster.LabelControlPlane+"=`",
		"node %s, which this host is, lacks the label %s: other control planes neither wait for it nor ask its etcd", env.Config.Name, cluster.LabelControlPlane)}
}
