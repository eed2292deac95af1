// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
)

// TestPrintGolden compares the output of --print-manifest with the reference, object by object and in the same order.
func TestPrintGolden(t *testing.T) {
	for _, name := range []string{"default", "podcidr", "external-etcd", "dualstack"} {
		n := load(t, read(t, golden, "node", name, "input.yaml"))
		for addon, objs := range map[string][]Object{"coredns": coreDNS(t, n), "kube-proxy": kubeProxy(t, n)} {
			t.Run(name+"/"+addon, func(t *testing.T) {
				printed, err := Print(objs)
				if err != nil {
					t.Fatal(err)
				}
				want := documents(read(t, golden, "node", name, "addon-"+addon+".yaml"))
				got := documents(printed)
				if len(got) != len(want) {
					t.Fatalf("%d objects, want %d", len(got), len(want))
				}
				for i := range want {
					if diff := cmp.Diff(retyped(t, want[i], objs[i]), retyped(t, got[i], objs[i])); diff != "" {
						t.Errorf("%s, -reference +got:\n%s", objs[i].GetName(), diff)
					}
				}
			})
		}
	}
}

func coreDNS(t *testing.T, n *config.Node) []Object {
	t.Helper()
	objs, err := CoreDNS(n, config.PatchSet{})
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

func kubeProxy(t *testing.T, n *config.Node) []Object {
	t.Helper()
	objs, err := KubeProxy(n, config.PatchSet{})
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

func documents(stream []byte) []string {
	var out []string
	for doc := range strings.SplitSeq("\n"+string(stream), "\n---\n") {
		if strings.TrimSpace(doc) != "" {
			out = append(out, doc+"\n")
		}
	}
	return out
}

// retyped reads doc strictly as an object of like's type and writes it again, to compare only the meaning.
func retyped(t *testing.T, doc string, like Object) string {
	t.Helper()
	obj := reflect.New(reflect.TypeOf(like).Elem()).Interface()
	if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	data, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestClusterGolden compares every object of a cluster with the reference, which has every field set here, and otherwise only
// fields that the server fills in.
func TestClusterGolden(t *testing.T) {
	n := load(t, read(t, "testdata/cluster.yaml"))
	objs := clusterObjects(t, n)
	for _, obj := range objs {
		file := fileName(obj)
		t.Run(file, func(t *testing.T) {
			want, got := map[string]string{}, map[string]string{}
			flatten(want, "", decoded(t, read(t, golden, "cluster", file)))
			data, err := Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			fields := decoded(t, data).(map[string]any)
			delete(fields, "status") // the server ignores it
			flatten(got, "", fields)
			for _, field := range slices.Sorted(maps.Keys(got)) {
				if _, there := want[field]; !there {
					t.Errorf("%s: %q is not in the reference", field, got[field])
				} else if got[field] != want[field] {
					t.Errorf("%s, -reference +got:\n%s", field, cmp.Diff(want[field], got[field]))
				}
			}
			for _, field := range slices.Sorted(maps.Keys(want)) {
				if _, there := got[field]; !there && !serverFills(obj, field, want[field]) {
					t.Errorf("%s: %q is missing", field, want[field])
				}
			}
		})
	}
	entries, err := os.ReadDir(filepath.Join(golden, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "clusterrolebinding_kubeadm-cluster-admins.yaml" {
			continue // internal/cluster makes it, and compares it with the same file
		}
		if !slices.ContainsFunc(objs, func(o Object) bool { return fileName(o) == e.Name() }) {
			t.Errorf("nothing makes %s", e.Name())
		}
	}
}

// clusterObjects returns init's objects, with a run's facts (a kubeconfig with a CA, ciphertext) from the reference.
func clusterObjects(t *testing.T, n *config.Node) []Object {
	t.Helper()
	objs := slices.Concat(coreDNS(t, n), kubeProxy(t, n), BootstrapRBAC(n), CertsRBAC())
	for _, make := range []func(*config.Node) ([]Object, error){KubeadmConfig, KubeletConfig} {
		more, err := make(n)
		if err != nil {
			t.Fatal(err)
		}
		objs = append(objs, more...)
	}
	var info corev1.ConfigMap
	if err := yaml.Unmarshal(read(t, golden, "cluster/kube-public_configmap_cluster-info.yaml"), &info); err != nil {
		t.Fatal(err)
	}
	return append(objs, ClusterInfo([]byte(info.Data["kubeconfig"])), sharedCerts(n))
}

func sharedCerts(n *config.Node) Object {
	data := map[string][]byte{}
	for key := range SharedFiles(n) {
		data[key] = nil
	}
	secret := CertsSecret(data, &corev1.Secret{})
	secret.OwnerReferences = nil // left out of the reference, for its UID
	return secret
}

func fileName(o Object) string {
	name := strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind) + "_" + strings.ReplaceAll(o.GetName(), ":", "-") + ".yaml"
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "_" + name
	}
	return name
}

func decoded(t *testing.T, data []byte) any {
	t.Helper()
	var out any
	if err := yaml.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// flatten collects the leaves of a tree by path, without empty structs and the values of a Secret, which vary by run.
func flatten(out map[string]string, path string, node any) {
	switch v := node.(type) {
	case map[string]any:
		for key, value := range v {
			flatten(out, path+"/"+key, value)
		}
	case []any:
		for i, value := range v {
			flatten(out, fmt.Sprintf("%s/%d", path, i), value)
		}
	default:
		if regexp.MustCompile(`^/data/.*\.(crt|key|pub)$`).MatchString(path) {
			v = "ciphertext"
		}
		out[path] = fmt.Sprint(v)
	}
}

// serverFills reports whether the API server sets a field to this value by default.
func serverFills(obj Object, field, value string) bool {
	const pod = `/spec/template/spec`
	for _, row := range []struct{ kind, field, value string }{
		{"Binding", `/subjects/\d+/apiGroup`, "rbac.authorization.k8s.io"},
		{"ConfigMap", `/data/jws-kubeconfig-.*`, "<compact detached JWS signed by the token>"},
		{"Service", `/spec/clusterIPs/0`, "10.96.0.10"},
		{"Service", `/spec/internalTrafficPolicy`, "Cluster"},
		{"Service", `/spec/ipFamilies/0`, "IPv4"},
		{"Service", `/spec/ipFamilyPolicy`, "SingleStack"},
		{"Service", `/spec/sessionAffinity`, "None"},
		{"Service", `/spec/type`, "ClusterIP"},
		{"DaemonSet", `/metadata/annotations/deprecated\.daemonset\.template\.generation`, "1"},
		{"DaemonSet", pod + `/containers/0/env/0/valueFrom/fieldRef/apiVersion`, "v1"},
		{"DaemonSet", pod + `/dnsPolicy`, "ClusterFirst"},
		{"DaemonSet", pod + `/volumes/2/hostPath/type`, ""},
		{"DaemonSet", `/spec/updateStrategy/rollingUpdate/maxSurge`, "0"},
		{"DaemonSet", `/spec/updateStrategy/rollingUpdate/maxUnavailable`, "1"},
		{"Deployment", `/metadata/annotations/deployment\.kubernetes\.io/revision`, "1"},
		{"Deployment", `/spec/progressDeadlineSeconds`, "600"},
		{"Deployment", `/spec/strategy/rollingUpdate/maxSurge`, "25%"},
		{"Deployment", pod + `/containers/0/(liveness|readiness)Probe/periodSeconds`, "10"},
		{"Deployment", pod + `/containers/0/readinessProbe/failureThreshold`, "3"},
		{"Deployment", pod + `/containers/0/readinessProbe/(successThreshold|timeoutSeconds)`, "1"},
		{"", `/spec/revisionHistoryLimit`, "10"},
		{"", pod + `/containers/0/terminationMessagePath`, "/dev/termination-log"},
		{"", pod + `/containers/0/terminationMessagePolicy`, "File"},
		{"", pod + `/restartPolicy`, "Always"},
		{"", pod + `/schedulerName`, "default-scheduler"},
		{"", pod + `/serviceAccount`, obj.GetName()},
		{"", pod + `/terminationGracePeriodSeconds`, "30"},
		{"", pod + `/volumes/0/configMap/defaultMode`, "420"},
	} {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if strings.HasSuffix(kind, row.kind) && value == row.value && regexp.MustCompile("^"+row.field+"$").MatchString(field) {
			return true
		}
	}
	return false
}

// The server's defaults must not weaken the comparison.
func TestServerFills(t *testing.T) {
	deployment := coreDNS(t, load(t, read(t, "testdata/cluster.yaml")))[0]
	for field, value := range map[string]string{
		"/spec/replicas":             "2",
		"/spec/revisionHistoryLimit": "11",
		"/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem": "true",
	} {
		if serverFills(deployment, field, value) {
			t.Errorf("%s: %s is taken for a default", field, value)
		}
	}
}

// A generated configuration is marked with its hash; these are kubeadm's marks for the same content.
func TestGeneratedMark(t *testing.T) {
	n := load(t, read(t, golden, "node/default/input.yaml"))
	n.Hostname, n.Name = "cp-1", "cp-1"
	kubelet, err := KubeletConfig(n)
	if err != nil {
		t.Fatal(err)
	}
	const (
		kubeletHash = "sha256:26488e9fc7c5cb5fdda9996cda2e6651a9af5febce07ea02de11bd3ef3f49e9c"
		proxyHash   = "sha256:74a9acb745afb2aa5e89474839e8f118ab19bfb541e82c69e32829cd41f74015"
	)
	if got := kubelet[0].GetAnnotations()[configHashAnnotation]; got != kubeletHash {
		t.Errorf("kubelet-config: %s", got)
	}
	if got := kubeProxy(t, n)[4].GetAnnotations()[configHashAnnotation]; got != proxyHash {
		t.Errorf("kube-proxy: %s", got)
	}
	given := load(t, read(t, "testdata/cluster.yaml"))
	kubelet, err = KubeletConfig(given)
	if err != nil {
		t.Fatal(err)
	}
	if a := append(kubelet, kubeProxy(t, given)...); slices.ContainsFunc(a, func(o Object) bool { return len(o.GetAnnotations()) > 0 }) {
		t.Error("a configuration that the user wrote is marked as generated")
	}
}

func TestStages(t *testing.T) {
	n := load(t, read(t, golden, "node/default/input.yaml"))
	for _, objs := range [][]Object{coreDNS(t, n), kubeProxy(t, n)} {
		stages := Stages(objs)
		if len(stages[0]) != 0 || len(stages[1]) != 5 || len(stages[2]) != 1 {
			t.Errorf("%d, %d and %d objects", len(stages[0]), len(stages[1]), len(stages[2]))
		}
	}
}

func TestCoreDNSPatched(t *testing.T) {
	n := load(t, read(t, golden, "node/default/input.yaml"))
	patches, err := config.ParsePatches([]config.PatchFile{
		{Name: "corednsdeployment.yaml", Data: []byte("spec: {replicas: 5}")},
		{Name: "kube-apiserver.yaml", Data: []byte("metadata: {labels: {a: b}}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	objs, err := CoreDNS(n, patches)
	if err != nil {
		t.Fatal(err)
	}
	data, err := Encode(objs[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte("replicas: 5")) || bytes.Contains(data, []byte("a: b")) {
		t.Errorf("got\n%s", data)
	}
}

// TestFirstStart: a controller manager without a garbage collector would leave the Role in the cluster.
func TestFirstStart(t *testing.T) {
	n := load(t, read(t, golden, "node/default/input.yaml"))
	objs := FirstStart(n)
	for _, obj := range objs[:2] {
		if owners := obj.GetOwnerReferences(); len(owners) != 1 || obj.GetName() != "slipway:first-leases" {
			t.Errorf("%s has the owners %v", obj.GetName(), owners)
		}
	}
	var names []string
	for _, obj := range objs[2:] {
		names = append(names, obj.GetName())
	}
	// These belong to others, or aren't there by default in every supported version.
	names = append(names, "coredns", "default", "kube-proxy", "device-taint-eviction-controller",
		"kube-apiserver-serving-clustertrustbundle-publisher", "podcertificaterequestcleaner", "storage-version-migrator-controller")
	slices.Sort(names)
	if diff := cmp.Diff(strings.Fields(string(read(t, golden, "kube-system-serviceaccounts.txt"))), names); diff != "" {
		t.Errorf("service accounts (-kubeadm's cluster +got):\n%s", diff)
	}
	for _, name := range []string{"controllers", "use-service-account-credentials"} {
		n.Cluster.ControllerManager.ExtraArgs = []config.Arg{{Name: name, Value: "x"}}
		if objs := FirstStart(n); objs != nil {
			t.Errorf("with --%s: %d objects", name, len(objs))
		}
	}
}

func TestBootstrapTokenSecret(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	usages, groups := []string{"signing", "authentication"}, []string{nodeTokenGroup, "system:bootstrappers:a"}
	secret := config.NewSecret("0123456789abcdef")
	for _, tt := range []struct {
		token config.Token
		want  map[string]string
	}{
		{config.Token{ID: "abcdef", Secret: secret, TTL: 24 * time.Hour, Usages: usages, Groups: groups, Description: "d"}, map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": "2026-01-03T02:04:05Z", "description": "d",
			"usage-bootstrap-signing": "true", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": nodeTokenGroup + ",system:bootstrappers:a",
		}},
		{config.Token{ID: "abcdef", Secret: secret, Expires: now, TTL: time.Hour}, map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": "2026-01-02T02:04:05Z",
		}},
		{config.Token{ID: "abcdef", Secret: secret}, map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef"}},
		{CertsOwner("abcdef", secret), map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": "2026-01-02T04:04:05Z",
			"description": "Proxy for managing TTL for the kubeadm-certs secret",
		}},
	} {
		s := BootstrapTokenSecret(tt.token, now)
		got := map[string]string{}
		for key, value := range s.Data {
			got[key] = string(value)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Error(diff)
		}
		if s.Name != "bootstrap-token-abcdef" || s.Namespace != "kube-system" || s.Type != "bootstrap.kubernetes.io/token" {
			t.Errorf("%s/%s of type %s", s.Namespace, s.Name, s.Type)
		}
	}
}

func TestTokenServes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := config.Token{ID: "abcdef", TTL: time.Hour, Usages: []string{"signing"}, Groups: []string{"a"}}
	forever := asked
	forever.TTL = 0
	for _, tt := range []struct {
		name   string
		stored config.Token
		asked  config.Token
		at     time.Time
		want   bool
	}{
		{"fresh", asked, asked, now, true},
		{"expired", asked, asked, now.Add(time.Hour), false},
		{"other usages", config.Token{TTL: time.Hour, Usages: []string{"authentication"}, Groups: []string{"a"}}, asked, now, false},
		{"other groups", config.Token{TTL: time.Hour, Usages: []string{"signing"}, Groups: []string{"b"}}, asked, now, false},
		{"the owner of shared certificates", CertsOwner("abcdef", config.Secret{}), asked, now, false},
		{"never expires", forever, asked, now.AddDate(9, 0, 0), true},
		{"should never expire", asked, forever, now, false},
	} {
		tt.stored.ID, tt.stored.Secret = "abcdef", config.NewSecret("0123456789abcdef")
		have, err := TokenOf(BootstrapTokenSecret(tt.stored, now).Data)
		if got := TokenServes(have, tt.asked, tt.at); got != tt.want || err != nil {
			t.Errorf("%s: %t, %v", tt.name, got, err)
		}
	}
}

func TestTokenOf(t *testing.T) {
	want := config.Token{ID: "abcdef", Secret: config.NewSecret("0123456789abcdef"), Usages: []string{"signing"}, TTL: time.Hour}
	data := BootstrapTokenSecret(want, time.Unix(0, 0)).Data
	got, err := TokenOf(data)
	if err != nil || got.Secret != want.Secret || !got.Expires.Equal(time.Unix(3600, 0)) || len(got.Groups) != 0 {
		t.Errorf("%+v %v", got, err)
	}
	data["expiration"] = []byte("tomorrow")
	_, err = TokenOf(data)
	fact.Error(t, err, "expiration")
}
