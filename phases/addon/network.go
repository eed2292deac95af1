// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"fmt"
	"path"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Network is the phase that installs the Pod network of --network.
func Network() step.Phase {
	return step.Phase{
		Name:    "network",
		Summary: "Install the Pod network given with --network",
		Flags: []string{"apiserver-advertise-address", "apiserver-bind-port", "config", "control-plane-endpoint", "dry-run", "image-repository",
			"kubeconfig", "kubernetes-version", "network", "pod-network-cidr", "print-manifest", "service-cidr"},
		Run: func(ctx context.Context, env *step.Env) error {
			if err := flannelFits(ctx, env); err != nil {
				return err
			}
			if err := CheckNetwork(ctx, env); err != nil {
				return err
			}
			return runAddon(ctx, env, "network --network "+env.Config.NetworkAddOn.Name, networkName(env), NetworkObjects)
		},
		Print: printed(NetworkObjects),
		Skip: func(env *step.Env) string {
			if env.Config.NetworkAddOn.Name == "" {
				return "no --network is given"
			}
			return ""
		},
	}
}

// flannelFits refuses to install flannel with another Pod network, endpoint or kind of rules than the cluster's. The phase's own
// command gets these from flags and a file, which people forget: with defaults instead, Pods would lose their network.
func flannelFits(ctx context.Context, env *step.Env) error {
	n := env.Config
	if n.NetworkAddOn.Name != config.Flannel || env.Rerun { // a whole init has compared its configuration with the cluster's
		return nil
	}
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, manifests.KubeadmConfigMap, manifests.KubeadmConfigKey)
	if err != nil || text == "" { // a cluster in the making
		return err
	}
	have, _, err := config.LoadCluster([]byte(text), nil, nil, nil, config.Options{AnyVersion: true})
	if err != nil {
		return errors.WithMessage(err, config.ClusterSource)
	}
	mode, err := kubeProxyMode(ctx, env, string(n.KubeProxy.Mode))
	if err != nil {
		return err
	}
	for _, field := range []struct{ name, cluster, given string }{
		{"networking.podSubnet", have.Cluster.Networking.PodSubnet, n.Cluster.Networking.PodSubnet},
		{"controlPlaneEndpoint", have.Cluster.ControlPlaneEndpoint, n.Cluster.ControlPlaneEndpoint},
		{"the mode of kube-proxy", mode, string(n.KubeProxy.Mode)},
	} {
		if field.cluster != field.given {
			return fault.New(fmt.Sprintf("flannel would get %q for %s, and the cluster has %q", field.given, field.name, field.cluster),
				"give the configuration that the cluster was made with: --config FILE, or the same flags")
		}
	}
	return nil
}

// kubeProxyMode returns the mode of the cluster's kube-proxy, or otherwise if it has none.
func kubeProxyMode(ctx context.Context, env *step.Env, otherwise string) (string, error) {
	text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, manifests.KubeProxyName, "config.conf")
	if err != nil || text == "" {
		return otherwise, err
	}
	var settings struct{ Mode string }
	err = yaml.Unmarshal([]byte(text), &settings)
	return settings.Mode, errors.Wrap(err, "the settings in ConfigMap kube-system/kube-proxy")
}

func networkName(env *step.Env) string {
	if env.Config.NetworkAddOn.FromFile() {
		return "the Pod network of " + env.Config.NetworkAddOn.File()
	}
	return env.Config.NetworkAddOn.Name
}

// NetworkObjects returns the Pod network's objects; none without --network.
func NetworkObjects(env *step.Env) ([]manifests.Object, error) {
	return manifests.Network(env.Config, config.PatchSet{})
}

// CheckNetwork asks the API whether it accepts the objects of --network FILE, before anything is created.
func CheckNetwork(ctx context.Context, env *step.Env) error {
	addOn := env.Config.NetworkAddOn
	if !addOn.FromFile() {
		return nil
	}
	objs, err := NetworkObjects(env)
	if err != nil {
		return err
	}
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	verdicts, err := env.Cluster.Validate(ctx, objs...)
	if errors.Is(err, cluster.ErrNotInPlan) {
		env.UI.Warnf("not checked in a dry run: whether the API takes the objects of %s", addOn.File())
		return nil
	}
	if err != nil {
		return err
	}
	var refused config.Faults
	for i, v := range verdicts {
		if v.UnknownReason != "" {
			env.UI.Printf("The API cannot tell yet whether it takes %s: %s", objectName(objs[i]), v.UnknownReason)
		}
		refusals, err := refusalsOf(ctx, env, objs[i], v)
		if err != nil {
			return err
		}
		for _, r := range refusals {
			refused = append(refused, faultIn(addOn, i, objs[i], r))
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return fault.WithRemedy(refused, "correct "+addOn.File()+" and run the same command again")
}

// refusalsOf returns no refusals for an existing object, which this run leaves alone.
func refusalsOf(ctx context.Context, env *step.Env, obj manifests.Object, v cluster.Verdict) ([]cluster.Refusal, error) {
	if !env.Rerun || len(v.Refusals) == 0 {
		return v.Refusals, nil
	}
	d, err := env.Cluster.Compare(ctx, obj)
	if err != nil || d.Change != cluster.Create {
		return nil, err
	}
	return v.Refusals, nil
}

func objectName(obj manifests.Object) string {
	return obj.GetObjectKind().GroupVersionKind().Kind + " " + path.Join(obj.GetNamespace(), obj.GetName())
}

// faultIn locates a refusal of the manifest's object number i.
func faultIn(addOn config.NetworkAddOn, i int, obj manifests.Object, r cluster.Refusal) config.Fault {
	f := config.Fault{File: addOn.File(), Field: objectName(obj), Message: r.Message}
	if r.Field != "" {
		f.Message = r.Field + ": " + r.Message
	}
	if i < len(addOn.Objects) {
		f.Line = addOn.Objects[i].LineOf(r.Field)
	}
	return f
}

// upgradeNetwork upgrades flannel if `init --network flannel` installed it. Any other network is its owner's to upgrade.
func upgradeNetwork(ctx context.Context, env *step.Env) error {
	live := &appsv1.DaemonSet{}
	live.Namespace, live.Name = manifests.FlannelNamespace, manifests.FlannelDaemonSet
	found, err := env.Cluster.Get(ctx, live)
	if err != nil {
		return err
	}
	if !found || !manifests.ByFlannel(live) {
		env.UI.Printf("Leaving the Pod network as it is: it was not installed with --network flannel")
		return nil
	}
	list, err := Versions(env, manifests.Flannel)
	if err != nil {
		return err
	}
	versions := FindVersions[*appsv1.DaemonSet](list)
	manifests.AsOlderFlannel(versions.Old.(*appsv1.DaemonSet), live)
	upgraded, err := mergedWith(env.Config, live, *versions)
	if err != nil {
		return err
	}
	if image := flannelImage(upgraded); image != flannelImage(live) {
		env.UI.Printf("Upgrading flannel to %s", image)
	}
	return UpgradeObjects(ctx, env, "addon network --network flannel", list)
}

func flannelImage(d *appsv1.DaemonSet) string {
	return manifests.ContainerImage(d.Spec.Template.Spec.InitContainers, manifests.FlannelContainer)
}
