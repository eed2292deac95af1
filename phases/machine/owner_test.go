// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	blank "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestPrepareKeepsHotfixes: a program somebody put over the bundle's stays, and nothing changes before that's said.
func TestPrepareKeepsHotfixes(t *testing.T) {
	for name, refused := range map[string]bool{
		"kubelet": true, "containerd": true, "containerd-shim-runc-v2": true, "runc": true, "kubectl": false, "bridge": false,
	} {
		path := "/usr/local/bin/" + name
		if name == "bridge" {
			path = "/opt/cni/bin/" + name
		}
		for _, version := range []string{"v1.37.2", "v1.37.3"} {
			h, root := newBareHost(t)
			h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
			fixture.Put(t, root, path, "a hotfix") // in place, as cp does it
			h.Has.Swap = []string{"/swapfile"}
			h.Jobs = nil
			said, err := h.prepare(t, &Prepare{Bundle: testBundle(t, version), Alone: true})
			if got := fixture.Get(t, root, path); got != "a hotfix" {
				t.Errorf("%s is %q", path, got)
			}
			if !refused {
				fact.Error(t, err)
				phasetest.Once(t, said, phasetest.Line{"Using", path})
				continue
			}
			fact.Error(t, err, "[ERROR Programs]", path, "--skip-phases=programs")
			if len(h.Orders()) > 0 {
				t.Errorf("%s: it was refused after %q", name, h.Orders())
			}
		}
	}
}

// TestPrepareNamesCollisionsFirst: foreign programs are found before swap and parameters change, unless programs are skipped.
func TestPrepareNamesCollisionsFirst(t *testing.T) {
	h, root := newBareHost(t)
	fixture.Put(t, root, "/usr/local/bin/kubelet", "somebody's")
	fixture.Put(t, root, "/usr/sbin/runc", "somebody's")
	phasetest.Fatal(t, os.Symlink("../../sbin/runc", filepath.Join(root, "/usr/local/bin/runc")))
	before := hostTree(t, root)
	_, err := h.prepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	fact.Error(t, err, "[ERROR Programs]", "/usr/local/bin/kubelet", "/usr/local/bin/runc")
	if diff := cmp.Diff(before, hostTree(t, root)); diff != "" || len(h.Orders()) > 0 {
		t.Errorf("something was done: %q\n%s", h.Orders(), diff)
	}
}

// TestPrepareWithContainerdOfItsGuide: containerd's own guide puts its unit where a bundle does. It stays the operator's.
func TestPrepareWithContainerdOfItsGuide(t *testing.T) {
	h, root := newBareHost(t)
	h.installsContainerd(t, root, unitDir+"/"+containerd.Unit)
	state := h.Has.Units[containerd.Unit]
	state.Replaced = true // by an update
	h.Has.Units[containerd.Unit] = state
	if err := os.Chmod(filepath.Join(root, containerd.DataDir), 0o711); err != nil {
		t.Fatal(err)
	}
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	for _, path := range []string{containerd.ConfigPath, containerd.ProxyPath, containerd.ProxyEnvPath, "/usr/local/bin/containerd", "/usr/local/bin/runc"} {
		if _, err := h.Lstat(path); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if info, err := h.Lstat(containerd.DataDir); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("%s: %v, %v", containerd.DataDir, info.Mode(), err)
	}
	if orders := h.Orders(); slices.ContainsFunc(orders, func(o string) bool { return strings.HasSuffix(o, containerd.Unit) }) {
		t.Errorf("the operator's runtime was touched: %q", orders)
	}
}

// TestPrepareLeavesDirectoryModes as the operator or the distribution has set them.
func TestPrepareLeavesDirectoryModes(t *testing.T) {
	h, root := newBareHost(t)
	dirs := map[string]os.FileMode{
		programDir: 0o775 | os.ModeSetgid, cniDir: 0o777, "/etc/sysctl.d": 0o775, "/var/lib/slipway": 0o770, containerd.ConfDir: 0o770,
		"/etc/systemd/system/kubelet.service.d": 0o775,
	}
	for dir, mode := range dirs {
		path := filepath.Join(root, dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2")})
	for dir, want := range dirs {
		if info, err := h.Lstat(dir); err != nil || info.Mode()&^os.ModeDir != want {
			t.Errorf("%s: %v, want %v; %v", dir, info.Mode(), want, err)
		}
	}
}

// TestPrepareRefusesOlderPrograms: an older bundle has a valid signature, too.
func TestPrepareRefusesOlderPrograms(t *testing.T) {
	for name, tt := range map[string]struct {
		here, bundle string
		node         bool
		allow        bool
		refused      bool
	}{
		"an older bundle":          {here: "v1.37.2", bundle: "v1.37.1", node: true, refused: true},
		"a much older one":         {here: "v1.37.2", bundle: "v1.36.12", node: true, refused: true},
		"a prerelease":             {here: "v1.37.2", bundle: "v1.37.2-rc.0", node: true, refused: true},
		"a newer one":              {here: "v1.37.2", bundle: "v1.37.10", node: true},
		"allowed":                  {here: "v1.37.2", bundle: "v1.37.1", node: true, allow: true},
		"on a host without a node": {here: "v1.37.2", bundle: "v1.37.1"},
	} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			h.mustPrepare(t, &Prepare{Bundle: testBundle(t, tt.here)})
			if tt.node {
				fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
				fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:v1.38.0'}]}\n")
			}
			p := &Prepare{Bundle: testBundle(t, tt.bundle), Alone: true, AllowDowngrade: tt.allow}
			_, err := h.prepare(t, p)
			want := tt.bundle
			if tt.refused {
				want = tt.here
				fact.Error(t, err, "[ERROR Programs]", "/usr/local/bin/kubelet", "/usr/local/bin/containerd", "/usr/local/bin/runc", tt.here, tt.bundle, "--allow-downgrade")
				err = h.phase(t, p, "programs")
				fact.Error(t, err, "/usr/local/bin/containerd", tt.bundle)
				fact.In(t, fault.Remedy(err), "--allow-downgrade")
			} else {
				fact.Error(t, err)
			}
			if got := fixture.Get(t, root, "/usr/local/bin/kubelet"); got != "kubelet "+want {
				t.Errorf("the kubelet is %q", got)
			}
		})
	}
}

// TestPrepareRefusesOlderKubelets: a node may run a package's kubelet, which the bundle's would replace.
func TestPrepareRefusesOlderKubelets(t *testing.T) {
	for name, tt := range map[string]struct {
		here    string
		node    bool
		allow   bool
		brought bool // the bundle's is there as well, but doesn't start
		want    string
	}{
		"a newer patch release":         {here: "v1.37.3", node: true},
		"of a newer patch release, too": {here: "v1.37.3", node: true, brought: true},
		"not to be told":                {here: "newest", node: true},
		"an older one":                  {here: "v1.37.1", node: true, want: "v1.37.2"},
		"allowed":                       {here: "v1.37.3", node: true, allow: true, want: "v1.37.2"},
		"on a host without a node":      {here: "v1.37.3", want: "v1.37.2"},
	} {
		t.Run(name, func(t *testing.T) {
			const packaged = "/usr/bin/kubelet"
			h, root := newBareHost(t)
			p := &Prepare{Bundle: testBundle(t, "v1.37.2"), Alone: true, AllowDowngrade: tt.allow}
			if tt.brought {
				h.mustPrepare(t, p)
				phasetest.Fatal(t, os.Remove(filepath.Join(root, kubeletconfig.DropInPath)))
			}
			_ = os.Remove(filepath.Join(root, unitDir+"/"+node.KubeletUnit))
			h.Has.Units[node.KubeletUnit] = host.UnitState{
				LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled", Fragment: "/usr/lib/systemd/system/kubelet.service", Program: packaged,
			}
			fixture.Put(t, root, packaged, "kubelet "+tt.here)
			if tt.node {
				fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
				fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:v1.37.3'}]}\n")
			}
			_, err := h.prepare(t, p)
			_, missing := h.Lstat(kubeletconfig.DropInPath)
			if tt.want == "" {
				fact.Error(t, err, "[ERROR Programs]", packaged, tt.here, "v1.37.2", "--allow-downgrade")
				fact.Error(t, h.phase(t, p, "programs"), packaged)
				if missing == nil {
					t.Error("the bundle's kubelet starts")
				}
				return
			}
			fact.Error(t, err)
			if got := fixture.Get(t, root, "/usr/local/bin/kubelet"); got != "kubelet "+tt.want || missing != nil {
				t.Errorf("the kubelet is %q; %v", got, missing)
			}
		})
	}
}

// TestPrepareKeepsMatchingKubelet: nobody needs to know the cluster's version if a package's kubelet already has the bundle's.
func TestPrepareKeepsMatchingKubelet(t *testing.T) {
	const packaged = "/usr/bin/kubelet"
	h, root := newBareHost(t)
	h.Has.Units[node.KubeletUnit] = host.UnitState{
		LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled", Fragment: "/usr/lib/systemd/system/kubelet.service", Program: packaged,
	}
	fixture.Put(t, root, packaged, "kubelet v1.37.2")
	fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
	fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: x}]}\n")
	h.mustPrepare(t, &Prepare{Bundle: testBundle(t, "v1.37.2"), Alone: true})
	if _, err := h.Lstat(kubeletconfig.DropInPath); err == nil {
		t.Error("the bundle's kubelet starts")
	}
}

// TestPrepareLaterDropIn: a drop-in whose name sorts after the bundle's may not start another kubelet, in a run or in its plan.
func TestPrepareLaterDropIn(t *testing.T) {
	const admins, packages = "/etc/systemd/system/kubelet.service.d/", "/usr/lib/systemd/system/kubelet.service.d/"
	command := func(words string) string {
		return "[Service]\nExecStart=\nExecStart=" + words + " $KUBELET_EXTRA_ARGS\n"
	}
	for name, tt := range map[string]struct {
		path, text string
		want       []string
	}{
		"Fedora's":        {packages + "kubeadm.conf", command("/usr/bin/kubelet"), []string{packages + "kubeadm.conf", "`ln -s /dev/null " + admins + "kubeadm.conf`", "20-slipway.conf", "--skip-phases=kubelet"}},
		"systemctl's":     {admins + "override.conf", command("-/usr/bin/kubelet"), []string{admins + "override.conf", "20-slipway.conf", "/usr/bin/kubelet"}},
		"a script":        {admins + "90-own.conf", command("/opt/start"), nil},
		"an earlier one":  {packages + "10-kubeadm.conf", command("/usr/bin/kubelet"), nil},
		"other settings":  {admins + "override.conf", "[Service]\nNice=1\n", nil},
		"the bundle's":    {admins + "override.conf", command("/usr/bin/numactl -N 0 /usr/local/bin/kubelet"), nil},
		"of another unit": {"/etc/systemd/system/containerd.service.d/override.conf", command("/usr/bin/kubelet"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, root := newBareHost(t)
			h.Has.Units[node.KubeletUnit] = host.UnitState{
				LoadState: "loaded", ActiveState: "inactive", Fragment: "/usr/lib/systemd/system/kubelet.service", Program: "/usr/bin/kubelet",
			}
			fixture.Put(t, root, "/usr/lib/systemd/system/kubelet.service", command("/usr/bin/kubelet"))
			fixture.Put(t, root, "/usr/bin/kubelet", "kubelet v1.38.0")
			fixture.Put(t, root, tt.path, tt.text)
			p, env := &Prepare{Bundle: testBundle(t, "v1.37.2"), Alone: true}, h.env(&bytes.Buffer{})
			env.Host = plan.NewOverlay(h, func(host.Action) {})
			fact.Error(t, step.Run(t.Context(), env, p.Phases(), step.Options{Serial: true}), tt.want...)
			if tt.want == nil && name != "a script" { // a shell finds the package's first
				t.Setenv("PATH", "/usr/bin:/usr/local/bin")
				h.On.LookPath = func(name string) (string, error) { return "/usr/bin/" + name, nil }
				if v, err := preflight.InstalledKubelet(t.Context(), env.Host); !errors.Is(err, host.ErrNotInPlan) {
					t.Errorf("a plan takes kubelet %s for the installed one: %v", v, err)
				}
				h.On.LookPath = h.lookPath
			}
			before := hostTree(t, root)
			_, err := h.prepare(t, p)
			fact.Error(t, err, tt.want...)
			if diff := cmp.Diff(before, hostTree(t, root)); (diff == "") == (tt.want == nil) {
				t.Errorf("changed:\n%s", diff)
			}
			if enabled := slices.Contains(h.Orders(), "enable "+node.KubeletUnit); enabled == (tt.want != nil) {
				t.Errorf("did %q", h.Orders())
			}
		})
	}
}

// TestPrepareRunningKubelet: a rerun restarts a kubelet from elsewhere if systemd would start the bundle's by now.
func TestPrepareRunningKubelet(t *testing.T) {
	for running, want := range map[string][]string{
		"/usr/bin/kubelet\x00--v=2": {"restart kubelet.service"}, "/usr/local/bin/kubelet\x00--v=2": nil, "/bin/sh\x00/opt/start": nil,
	} {
		h, root := newBareHost(t)
		p := &Prepare{Bundle: testBundle(t, "v1.37.2"), Alone: true}
		h.mustPrepare(t, p)
		fixture.Put(t, root, "/etc/kubernetes/kubelet.conf", "x")
		fixture.Put(t, root, "/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{image: 'registry.k8s.io/kube-apiserver:v1.37.2'}]}\n")
		fixture.Put(t, root, "/proc/77/cmdline", running)
		state := h.Has.Units[node.KubeletUnit]
		state.ActiveState, state.MainPID = "active", 77
		h.Has.Units[node.KubeletUnit], h.Jobs = state, nil
		h.mustPrepare(t, p)
		if did := h.Orders(); !slices.Equal(did, want) {
			t.Errorf("%q: did %q, want %q", running, did, want)
		}
	}
}

// TestPrepareHidesProxies: every user may read systemd's view of a unit, and a proxy may have a password.
func TestPrepareHidesProxies(t *testing.T) {
	const proxy = "http://user:secret@proxy.example:3128"
	h, root := newBareHost(t)
	h.Has.Environ = []string{"https_proxy=" + proxy}
	p := &Prepare{Bundle: testBundle(t, "v1.37.2")}
	check := func() {
		t.Helper()
		if text := fixture.Get(t, root, containerd.ProxyPath); strings.Contains(text, "secret") || !strings.Contains(text, "EnvironmentFile="+containerd.ProxyEnvPath) {
			t.Errorf("%s is %q", containerd.ProxyPath, text)
		}
		if text := fixture.Get(t, root, containerd.ProxyEnvPath); text != `HTTPS_PROXY="`+proxy+"\"\n" {
			t.Errorf("%s is %q", containerd.ProxyEnvPath, text)
		}
		if info, err := h.Lstat(containerd.ProxyEnvPath); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	said := h.mustPrepare(t, p)
	if check(); strings.Contains(said, "secret") {
		t.Errorf("it said:\n%s", said)
	}

	// If an operator's drop-in sets proxies, which a file's would override, ours stays away.
	own, ownRoot := newBareHost(t)
	fixture.Put(t, ownRoot, filepath.Dir(containerd.ProxyPath)+"/proxy.conf", "[Service]\nEnvironment=\"https_proxy=http://mine\"\n")
	phasetest.Once(t, own.mustPrepare(t, p), phasetest.Line{"proxies", "/containerd.service.d/proxy.conf"})
	if _, err := own.Lstat(containerd.ProxyPath); err == nil {
		t.Errorf("%s was written", containerd.ProxyPath)
	}

	// An earlier release's drop-in is replaced, even by a run without a proxy.
	phasetest.Fatal(t, h.Remove(containerd.ProxyEnvPath))
	_, err := h.WriteFile(containerd.ProxyPath, []byte("[Service]\nEnvironment=\"HTTPS_PROXY="+proxy+"\"\n"), 0o600)
	phasetest.Fatal(t, err)
	h.Has.Environ, h.Jobs = nil, nil
	h.mustPrepare(t, p)
	check()
	if !slices.Contains(h.Orders(), "restart "+containerd.Unit) {
		t.Errorf("containerd runs on with what was replaced: %q", h.Orders())
	}

	_, err = h.resetHost(t)
	fact.Error(t, err)
	for _, path := range []string{containerd.ProxyPath, containerd.ProxyEnvPath} {
		if _, err := h.Lstat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
}

func (h *bareHost) phase(t *testing.T, p *Prepare, name string) error {
	t.Helper()
	for _, phase := range p.Phases() {
		if phase.Name == name {
			return step.Run(t.Context(), h.env(&bytes.Buffer{}), []step.Phase{phase.Needing()}, step.Options{Serial: true})
		}
	}
	t.Fatalf("there is no phase %s", name)
	return nil
}

// TestPrepareKeepsImages: somebody else's image with a bundled name stays, even after host reset. An earlier bundle's doesn't.
func TestPrepareKeepsImages(t *testing.T) {
	const name = "registry.k8s.io/pause:3.10.2"
	b := imageBundle(t, name)
	for label, tt := range map[string]struct {
		id      string
		record  prepared
		imports bool
		cut     bool // the power failed during its import
	}{
		"somebody else's":        {id: "sha256:theirs"},
		"an earlier bundle's":    {id: "sha256:old", imports: true, record: prepared{Imported: []string{name}, ImageIDs: map[string][]string{name: {"sha256:old"}}}},
		"an earlier release's":   {id: "sha256:old", imports: true, record: prepared{Imported: []string{name}}},
		"given to another one":   {id: "sha256:theirs", record: prepared{Imported: []string{name}, ImageIDs: map[string][]string{name: {"sha256:old"}}}},
		"the bundle's, as it is": {id: (&Prepare{Bundle: b}).bundled()[name]},
		"lost in a power cut":    {id: (&Prepare{Bundle: b}).bundled()[name], imports: true, cut: true},
	} {
		t.Run(label, func(t *testing.T) {
			h, root := newBareHost(t)
			h.installsContainerd(t, root, "/usr/lib/systemd/system/containerd.service")
			h.Has.Images = []host.Image{{Names: []string{name}, ID: tt.id, Pinned: true}}
			if tt.cut {
				h.Has.Unsettled = []string{name}
			}
			p := &Prepare{Bundle: b}
			phasetest.Fatal(t, p.note(h.env(&bytes.Buffer{}), func(r *prepared) {
				r.Imported, r.Images, r.ImageIDs = tt.record.Imported, tt.record.Imported, tt.record.ImageIDs
			}))
			said := h.mustPrepare(t, p)
			if got := h.Did("import"); slices.Contains(got, name) != tt.imports {
				t.Errorf("imported %q", got)
			}
			if strings.HasSuffix(tt.id, "theirs") {
				phasetest.Once(t, said, phasetest.Line{"[WARNING]", name, tt.id})
			}
			if tt.imports {
				return
			}
			fixture.Put(t, root, "/run/containerd/containerd.sock", "")
			_, err := h.resetHost(t)
			fact.Error(t, err)
			if got := h.Did("remove"); slices.Contains(got, name) {
				t.Errorf("removed %q", got)
			}
		})
	}
}

func imageBundle(t *testing.T, image string) *bundle.Bundle {
	t.Helper()
	dir := t.TempDir()
	tag, err := name.NewTag(image)
	phasetest.Fatal(t, err)
	content, err := mutate.ConfigFile(blank.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}}})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, tarball.WriteToFile(filepath.Join(dir, "image.tar"), tag, content))
	list := "apiVersion: slipway.bundle/v1\nkind: BundleParts\nkubernetesVersion: v1.37.2\nos: linux\narchitecture: amd64\nparts:\n" +
		"- {name: '" + image + "', type: image, version: 3.10.2, source: test, license: Apache-2.0, file: image.tar}\n"
	phasetest.Fatal(t, os.WriteFile(filepath.Join(dir, "bundle.yaml"), []byte(list), 0o600))
	parts, err := bundle.ReadList(dir)
	phasetest.Fatal(t, err)
	out := filepath.Join(dir, "bundle.tar")
	phasetest.Fatal(t, (bundle.Create{List: parts, Output: out, Say: func(string, ...any) {}}).Run(t.Context()))
	return openBundle(t, out)
}

func TestVersionIn(t *testing.T) {
	for text, want := range map[string]string{
		"Kubernetes v1.37.2": "1.37.2",
		"containerd github.com/containerd/containerd/v2 2.2.0+unknown ":                            "2.2.0",
		"containerd github.com/containerd/containerd/v2 v2.3.0-rc.1 1c4457e00facac03ce1d75f7b6777": "2.3.0-rc.1",
		"runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev":                     "1.1.5",
		"1.1.12-0ubuntu2~22.04.1": "1.1.12-0ubuntu2",
		"7":                       "<nil>",
		"":                        "<nil>",
	} {
		if got := fmt.Sprint(versionIn(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
