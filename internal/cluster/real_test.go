// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func TestEnsureTwiceWritesOnce(t *testing.T) {
	a := newAPI(t)
	r := a.client(t)
	var objs []Object
	for i := range 20 {
		objs = append(objs, configMap(fmt.Sprintf("c%d", i), map[string]string{"k": "v"}))
	}
	objs = append(objs, adminBinding(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "s"},
		Type:       "bootstrap.kubernetes.io/token", StringData: map[string]string{"token-id": "abcdef"},
	})
	for range 2 {
		if err := r.Ensure(t.Context(), objs...); err != nil {
			t.Fatal(err)
		}
		if got := a.written(); got != len(objs) {
			t.Errorf("%d writes, want %d", got, len(objs))
		}
	}
}

// TestPrecreate uses the rights of super-admin.conf, because nobody else has any yet. It leaves existing objects as they are.
func TestPrecreate(t *testing.T) {
	a := newAPI(t)
	a.authorizes(time.Hour)
	a.faults[http.MethodPost] = []fakeapi.Fault{answers(404, "", `{"kind": "Status", "code": 404, "details": {"kind": "namespaces"}}`)}
	a.put(t, configMap("there", map[string]string{"k": "theirs"}))
	err := a.client(t).Precreate(t.Context(), configMap("there", map[string]string{"k": "ours"}), configMap("missing", nil))
	there := a.Objects()["/api/v1/namespaces/kube-system/configmaps/there"]
	if err != nil || !a.Has("/api/v1/namespaces/kube-system/configmaps/missing") || there["data"].(map[string]any)["k"] != "theirs" {
		t.Errorf("%v; %v", err, there)
	}
	r := a.client(t)
	r.options.SuperAdmin = filepath.Join(t.TempDir(), "missing.conf")
	if err := r.Precreate(t.Context(), configMap("other", nil)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without super-admin.conf: %v", err)
	}
}

// TestEnsureUpdatesOnlyItsOwnFields: others write to the same objects, such as signatures to cluster-info, or the server its own
// fields.
func TestEnsureUpdatesOnlyItsOwnFields(t *testing.T) {
	a := newAPI(t)
	live := configMap("cluster-info", map[string]string{"kubeconfig": "old", "jws-kubeconfig-abcdef": "signature"})
	live.Labels = map[string]string{"theirs": "yes", "ours": "old"}
	a.put(t, live)
	r := a.client(t)
	ours := configMap("cluster-info", map[string]string{"kubeconfig": "new"})
	ours.Labels = map[string]string{"ours": "new"}
	if err := r.Ensure(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	got := configMap("cluster-info", map[string]string{"stale": "gone after Get"})
	if found, err := r.Get(t.Context(), got); !found || err != nil {
		t.Fatal(found, err)
	}
	want := map[string]string{"kubeconfig": "new", "jws-kubeconfig-abcdef": "signature"}
	if diff := cmp.Diff(want, got.Data); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"theirs": "yes", "ours": "new"}, got.Labels); diff != "" {
		t.Error(diff)
	}
	if got.UID == "" || got.Kind != "ConfigMap" {
		t.Errorf("uid %q, kind %q", got.UID, got.Kind)
	}
}

// TestFaultsThatPass lets each verb meet each fault once. The call must still succeed, with its work done exactly once.
func TestFaultsThatPass(t *testing.T) {
	faults := map[string]fakeapi.Fault{
		"409 conflict":          fakeapi.Conflict,
		"429":                   answers(429, "", "slow down"),
		"500":                   answers(500, "", "boom"),
		"504":                   answers(504, "", "<html>gateway"),
		"hang":                  fakeapi.Hang,
		"connection reset":      fakeapi.Reset,
		"done, but answer lost": fakeapi.LoseAnswer,
		"done, but half answer": cutsAnswer,
	}
	ctx := context.Background()
	calls := []struct {
		name, method string
		before       Object
		call         func(r *Real) error
		writes       int
	}{
		{"create", http.MethodPost, nil, func(r *Real) error {
			return r.Ensure(ctx, configMap("c", map[string]string{"k": "v"}))
		}, 1},
		{"compare", http.MethodGet, configMap("c", map[string]string{"k": "v"}), func(r *Real) error {
			return r.Ensure(ctx, configMap("c", map[string]string{"k": "v"}))
		}, 0},
		{"update", http.MethodPut, configMap("c", map[string]string{"k": "old"}), func(r *Real) error {
			return r.Ensure(ctx, configMap("c", map[string]string{"k": "v"}))
		}, 1},
		{"read and update", http.MethodPut, configMap("c", map[string]string{"k": "old"}), func(r *Real) error {
			return setKey(ctx, r)
		}, 1},
		{"get", http.MethodGet, configMap("c", map[string]string{"k": "v"}), func(r *Real) error {
			found, err := r.Get(ctx, configMap("c", nil))
			if err == nil && !found {
				return errors.New("not found")
			}
			return err
		}, 0},
		{"list", http.MethodGet, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "c"}, Type: "a",
		}, func(r *Real) error {
			list, err := r.Secrets(ctx, "kube-system", "type=a")
			if err == nil && len(list) != 1 {
				return fmt.Errorf("%d Secrets", len(list))
			}
			return err
		}, 0},
		{"delete", http.MethodDelete, configMap("c", nil), func(r *Real) error {
			return r.EnsureAbsent(ctx, configMap("c", nil))
		}, 1},
		{"mark", http.MethodPatch, NewNode("c"), func(r *Real) error {
			return r.MarkNode(ctx, "c", Mark{Taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}})
		}, 1},
	}
	for _, c := range calls {
		for name, f := range faults {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				a := newAPI(t)
				if c.before != nil {
					a.put(t, c.before)
				}
				a.faults[c.method] = []fakeapi.Fault{f}
				client := a.client
				if name == "hang" {
					client = a.impatient
				}
				if err := c.call(client(t)); err != nil {
					t.Fatal(err)
				}
				if got := a.written(); got != c.writes {
					t.Errorf("%d writes, want %d:\n%s", got, c.writes, strings.Join(a.seen(), "\n"))
				}
			})
		}
	}
}

func TestRetryAfterIsHeeded(t *testing.T) {
	for _, code := range []int{429, 503} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.faults[http.MethodPost] = []fakeapi.Fault{answers(code, "Retry-After: 1", "slow down")}
			start := time.Now()
			if err := a.client(t).Ensure(t.Context(), configMap("c", nil)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < time.Second {
				t.Errorf("came back after %s", took)
			}
		})
	}
}

func TestFaultsThatDoNotPass(t *testing.T) {
	tests := []struct {
		name   string
		fault  fakeapi.Fault
		method string
		want   []string
	}{
		{"401", answers(401, "", "Unauthorized"), http.MethodPost,
			[]string{"create ConfigMap kube-system/c: 401 Unauthorized", "admin.conf", "slipway certs check-expiration"}},
		{"403", fakeapi.Forbidden, http.MethodPost,
			[]string{"create ConfigMap kube-system/c: ", "no rule", "admin.conf"}},
		{"403 by something else", answers(403, "", "<html> blocked\n by proxy"), http.MethodPost,
			[]string{"create ConfigMap kube-system/c: 403 Forbidden: <html> blocked", "by proxy"}},
		{"422", fakeapi.Refuse(apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "c",
			field.ErrorList{field.Required(field.NewPath("data"), "must be there")})), http.MethodPost, []string{"create ConfigMap kube-system/c: ", "data: Required value: must be"}},
		{"404 by something else", answers(404, "", "page not found"), http.MethodPost,
			[]string{"create ConfigMap kube-system/c: 404 Not Found: page not"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t)
			a.faults[tt.method] = []fakeapi.Fault{tt.fault}
			err := a.client(t).Ensure(t.Context(), configMap("c", map[string]string{"k": "v"}))
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, fault.Of(err).String(), tt.want...)
			posts := slices.DeleteFunc(a.seen(), func(r string) bool { return !strings.HasPrefix(r, "POST") })
			if len(posts) != 1 {
				t.Errorf("tried again: %v", posts)
			}
		})
	}
}

// TestGetBelievesOnlyTheAPI: a proxy's error page doesn't mean that the object doesn't exist.
func TestGetBelievesOnlyTheAPI(t *testing.T) {
	a := newAPI(t)
	r := a.client(t)
	if found, err := r.Get(t.Context(), configMap("c", nil)); found || err != nil {
		t.Errorf("missing object: %v, %v", found, err)
	}
	a.faults[http.MethodGet] = []fakeapi.Fault{answers(404, "", "page not found")}
	_, err := r.Get(t.Context(), configMap("c", nil))
	fact.Error(t, err, "get ConfigMap kube-system/c: 404 Not Found")
	a.faults[http.MethodGet] = []fakeapi.Fault{answers(200, "", "<html>log in</html>")}
	a.put(t, configMap("c", nil))
	_, err = r.Get(t.Context(), configMap("c", nil))
	fact.Error(t, err, "get ConfigMap kube-system/c", "decode")
}

// TestNamespaceThatIsNotThereYet: the API server creates its namespaces a moment after it begins to serve.
func TestNamespaceThatIsNotThereYet(t *testing.T) {
	const namespace = "/api/v1/namespaces/kube-system"
	a := newAPI(t)
	a.Remove(namespace)
	posts := 0
	a.hook = func(*http.Request, string) fakeapi.Fault {
		if posts++; posts == 4 {
			a.Put(namespace, map[string]any{"metadata": map[string]any{"name": "kube-system"}})
		}
		return nil
	}
	r := a.client(t)
	if err := r.Ensure(t.Context(), configMap("c", nil)); err != nil {
		t.Fatal(err)
	}

	a.Remove(namespace)
	r.options.Timeout = time.Second
	err := r.Ensure(t.Context(), configMap("d", nil))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	fact.Error(t, err, `create ConfigMap kube-system/d: namespaces "kube-system" not found`)
}

// TestInvalidBecauseItIsThere: a Service's fixed address is taken, by the Service itself.
func TestInvalidBecauseItIsThere(t *testing.T) {
	service := func() *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}}
	}
	a := newAPI(t)
	a.put(t, service())
	a.faults[http.MethodPost] = []fakeapi.Fault{fakeapi.Refuse(apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "kube-dns",
		field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs"), "10.96.0.10", "provided IP is already allocated")}))}
	if err := a.client(t).Ensure(t.Context(), service()); err != nil {
		t.Fatal(err)
	}
	if a.written() != 0 {
		t.Error("it was written")
	}
}

// TestOthersWriteMeanwhile: another client changes or deletes the object between the read and the write.
func TestOthersWriteMeanwhile(t *testing.T) {
	a := newAPI(t)
	a.put(t, configMap("c", map[string]string{"k": "old"}))
	path := "/api/v1/namespaces/kube-system/configmaps/c"
	puts := 0
	a.hook = func(r *http.Request, _ string) fakeapi.Fault {
		if r.Method != http.MethodPut {
			return nil
		}
		switch puts++; puts {
		case 1:
			a.put(t, configMap("c", map[string]string{"k": "old", "theirs": "kept"}))
		case 2:
			a.Remove(path)
		}
		return nil
	}
	r := a.client(t)
	if err := r.Ensure(t.Context(), configMap("c", map[string]string{"k": "v"})); err != nil {
		t.Fatal(err)
	}
	if left := a.Objects()[path]; puts != 2 || left["data"].(map[string]any)["k"] != "v" {
		t.Errorf("%d updates, %v", puts, left)
	}
}

func TestBudget(t *testing.T) {
	a := newAPI(t)
	a.hook = func(*http.Request, string) fakeapi.Fault { return answers(500, "", "") }
	r := a.client(t)
	r.options.Timeout = 2 * time.Second
	err := r.Ensure(t.Context(), configMap("c", nil))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	fact.Error(t, err, "create ConfigMap kube-system/c: 500 Internal Server Error")
	if tries := len(a.seen()); tries < 2 || tries > 20 { // a busy machine has fewer
		t.Errorf("%d tries in 2 s", tries)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	a.hook = func(*http.Request, string) fakeapi.Fault {
		if asked++; asked == 2 {
			cancel()
		}
		return answers(500, "", "")
	}
	r.options.Timeout = time.Minute
	if err := r.EnsureAbsent(ctx, configMap("c", nil)); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "500") {
		t.Error(err)
	}
}

// TestRetryAfterBeyondTheBudget waits until the end of the budget if the server asks for more time, and says so.
func TestRetryAfterBeyondTheBudget(t *testing.T) {
	a := newAPI(t)
	a.faults[http.MethodPost] = []fakeapi.Fault{answers(429, "Retry-After: 3600", "busy")}
	r := a.client(t)
	r.options.Timeout = 1500 * time.Millisecond
	err := r.Ensure(t.Context(), configMap("c", nil))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	fact.Error(t, err, "429 Too Many Requests: busy", "tries: 1", "1h0m0s")
}

func TestHangEndsWithTheBudget(t *testing.T) {
	a := newAPI(t)
	a.faults[http.MethodPost] = slices.Repeat([]fakeapi.Fault{fakeapi.Hang}, 100)
	r := a.impatient(t)
	r.options.Timeout = 1500 * time.Millisecond
	err := r.Ensure(t.Context(), configMap("c", nil))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	fact.Error(t, err, "no answer", "127.0.0.1")
}

// TestSideBySide: an object that can't be written ends the call. Independent objects are written in parallel, but not all at
// once.
func TestSideBySide(t *testing.T) {
	a := newAPI(t)
	running, most := 0, 0
	slow := func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
		a.mu.Lock()
		running++
		most = max(most, running)
		a.mu.Unlock()
		time.Sleep(20 * time.Millisecond) // as long as a write may take, so that others begin meanwhile
		a.mu.Lock()
		running--
		a.mu.Unlock()
		serve(w, r)
	}
	a.faults[http.MethodPost] = slices.Repeat([]fakeapi.Fault{slow}, 40)
	var objs []Object
	for i := range 40 {
		objs = append(objs, configMap(fmt.Sprint("c", i), nil))
	}
	if err := a.client(t).Ensure(t.Context(), objs...); err != nil {
		t.Fatal(err)
	}
	if most < 2 || most > sideBySide {
		t.Errorf("%d at the same time", most)
	}
}

func TestNotSendable(t *testing.T) {
	tests := []struct {
		obj  Object
		want []string
	}{
		{&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}, []string{"kind Event"}},
		{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, []string{"ConfigMap b", "namespace"}},
		{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}}, []string{"ConfigMap", "a name"}},
		{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}, []string{"Node a/b", "no namespace"}},
		{&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}, []string{"Secret", "*corev1.Secret"}},
		{&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1beta1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}, []string{`kind Deployment, apiVersion "apps/v1beta1"`}},
	}
	r := New(Options{ReadFile: func(string) ([]byte, error) { t.Error("kubeconfig was read"); return nil, nil }})
	for _, tt := range tests {
		fact.Error(t, r.Ensure(t.Context(), tt.obj), tt.want...)
	}
}

func TestKubeconfigTrouble(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.conf")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		broken:                             "kubeconfig " + broken,
		filepath.Join(dir, "missing.conf"): dir + "/missing.conf",
	} {
		r := New(Options{Kubeconfig: path, ReadFile: os.ReadFile, Timeout: time.Second})
		err := r.Ready(t.Context())
		fact.Error(t, err, want)
		if errors.Is(err, os.ErrNotExist) != (path != broken) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEndpointOverride: the load balancer in the kubeconfig may not work yet.
func TestEndpointOverride(t *testing.T) {
	a := newAPI(t)
	r := a.client(t)
	r.admin = nil
	r.options.Kubeconfig = a.kubeconfig(t, "admin")
	data, err := os.ReadFile(r.options.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	r.options.ReadFile = func(string) ([]byte, error) {
		return []byte(strings.Replace(string(data), a.URL, "https://lb.invalid:6443", 1)), nil
	}
	r.options.Timeout = 2 * time.Second
	r.options.Endpoint = a.Listener.Addr().String()
	if err := r.Ensure(t.Context(), configMap("c", nil)); err != nil {
		t.Error(err)
	}
	r.admin.client.Client.CloseIdleConnections()
}
