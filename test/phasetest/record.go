// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/schema"
)

// OnEtcd records an action of the plan or of the membership.
func (r *Record) OnEtcd(a etcd.Action) { r.Add(fmt.Sprintf("%s %s %s", a.Verb, a.Name, a.PeerURL)) }

// Titles returns the entries without content, which an assumed plan doesn't know.
func (r *Record) Titles() []string {
	var list []string
	for _, e := range r.InOrder() {
		title, _, _ := strings.Cut(e, "\n")
		list = append(list, title)
	}
	return list
}

// Record is the text of a run's real or planned actions: an entry for each action and, in a serial run, for each phase begun.
type Record struct {
	mu      sync.Mutex
	Entries []string
	Host    []host.Action
}

func (r *Record) Add(entry string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Entries = append(r.Entries, entry)
}

// OnHost records an action of the overlay or of the recorder.
func (r *Record) OnHost(a host.Action) {
	r.Add(fmt.Sprintf("%s secret=%v created=%v\n%s", a, a.Secret, a.Created, shown(a.Data)))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Host = append(r.Host, a)
}

// newCluster is the random ID of an etcd cluster in a journal.
var newCluster = regexp.MustCompile(`(?m)^cluster: .*\n`)

// shown returns a file's content without random parts.
func shown(data []byte) string {
	block, _ := pem.Decode(data)
	if block == nil {
		return newCluster.ReplaceAllString(string(data), "")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return block.Type
	}
	return fmt.Sprint(cert.Subject, cert.Issuer, cert.DNSNames, cert.IPAddresses, cert.ExtKeyUsage, cert.KeyUsage,
		cert.PublicKeyAlgorithm, cert.NotAfter.Sub(cert.NotBefore))
}

func (r *Record) Intended(a cluster.Action) {
	verb := a.Verb
	if verb == cluster.VerbPrecreate { // the server doesn't know why
		verb = cluster.VerbEnsure
	}
	entry := fmt.Sprintf("%s %s", verb, filepath.Join(a.Kind, a.Namespace, a.Name))
	switch obj := a.Object.(type) {
	case nil:
	case *corev1.Node:
		entry += "\n" + encode(map[string]any{"labels": obj.Labels, "annotations": obj.Annotations, "taints": obj.Spec.Taints})
	default:
		entry += "\n" + encode(obj)
	}
	r.Add(entry)
}

// Witnessed makes no fault: it only records changes received by the server.
func (r *Record) Witnessed(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	serve(answer, req)
	if req.Method != http.MethodGet && answer.Code < 300 {
		r.Add(written(req, body))
	}
	for name := range answer.Header() {
		w.Header().Set(name, answer.Header().Get(name))
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// written describes a request in the words of Intended.
func written(req *http.Request, body []byte) string {
	var obj map[string]any
	if err := json.Unmarshal(body, &obj); err != nil {
		return req.Method + " " + req.URL.Path
	}
	part := func(of map[string]any, name string) map[string]any { m, _ := of[name].(map[string]any); return m }
	meta := part(obj, "metadata")
	if req.Method == http.MethodPatch {
		return "mark Node/" + filepath.Base(req.URL.Path) + "\n" + encode(map[string]any{
			"labels": meta["labels"], "annotations": meta["annotations"], "taints": part(obj, "spec")["taints"]})
	}
	namespace, _ := meta["namespace"].(string)
	return "ensure " + filepath.Join(fmt.Sprint(obj["kind"]), namespace, fmt.Sprint(meta["name"])) + "\n" + encode(obj)
}

var (
	caData    = regexp.MustCompile(`certificate-authority-data: [A-Za-z0-9+/=]+`)
	signature = regexp.MustCompile(`eyJ[\w-]+\.\.[\w-]+`) // of data that includes a CA
)

// encode encodes an object without secret, random and unset values.
func encode(obj any) string {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		panic(err)
	}
	if fields["kind"] == "Secret" {
		values, _ := fields["data"].(map[string]any)
		if values == nil {
			values, _ = fields["stringData"].(map[string]any)
		}
		for name := range values {
			values[name] = "secret"
		}
		fields["data"] = values
		delete(fields, "stringData")
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		if owners, ok := meta["ownerReferences"].([]any); ok && len(owners) == 1 {
			owners[0].(map[string]any)["uid"] = "of the owner" // given by the server
		}
	}
	delete(fields, "status")
	data, err = yaml.Marshal(prune(fields))
	if err != nil {
		panic(err)
	}
	return signature.ReplaceAllString(caData.ReplaceAllString(string(data), "a CA"), "a signature")
}

func prune(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if v[name] = prune(member); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	}
	return value
}

// InOrder returns the entries of a serial run. Pulls and objects are sorted, because they're done side by side within a phase.
func (r *Record) InOrder() []string {
	list := slices.Clone(r.Entries)
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && sideBySide(list[from]) && sideBySide(list[to]) {
			to++
		}
		slices.Sort(list[from:to])
		from = to
	}
	return list
}

func sideBySide(entry string) bool {
	return strings.HasPrefix(entry, "pull image") || strings.HasPrefix(entry, "ensure ")
}

func (r *Record) AsSet() []string {
	list := slices.DeleteFunc(slices.Clone(r.Entries), func(e string) bool { return strings.HasPrefix(e, "phase ") })
	slices.Sort(list)
	return list
}

// Predict returns the files and directories that will exist after the actions.
func (r *Record) Predict(before map[string]fs.FileMode) map[string]fs.FileMode {
	after := map[string]fs.FileMode{}
	for path, mode := range before {
		after[path] = mode
	}
	for _, a := range r.Host {
		switch a.Verb {
		case host.Write:
			after[a.Path] = a.Mode
		case host.Mkdir:
			after[a.Path] = a.Mode | fs.ModeDir
		case host.Chmod:
			after[a.Path] = after[a.Path].Type() | a.Mode
		case host.Remove:
			delete(after, a.Path)
		}
	}
	return after
}

// PhaseUI records which phases begin.
type PhaseUI struct {
	ui.UI
	Record *Record
}

func (p PhaseUI) Start(phase string) (ui.UI, func(error)) {
	p.Record.Add("phase " + phase)
	in, end := p.UI.Start(phase)
	return PhaseUI{in, p.Record}, end
}

var eventsSchema = sync.OnceValues(schema.Events)

// CheckEvents checks the output against the documented schema.
func CheckEvents(t *testing.T, said []byte) {
	t.Helper()
	s, err := eventsSchema()
	if err != nil {
		t.Fatal(err)
	}
	count, err := s.CheckLines(said)
	if err != nil || count < 20 {
		t.Errorf("%d events: %v", count, err)
	}
	before, _, _ := bytes.Cut(said, []byte(`"event":"result"`))
	if bytes.Contains(before, []byte("0123456789abcdef")) || bytes.Contains(before, []byte("PRIVATE KEY")) {
		t.Errorf("an event other than the result has a secret:\n%s", before)
	}
}
