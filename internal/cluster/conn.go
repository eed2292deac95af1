// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// answerTime bounds one request, so that one that hangs can be tried again.
const answerTime = 10 * time.Second

// conn talks to the API as the user of one kubeconfig. It makes each request
// once: how often to try is up to the policy of the caller, which knows what
// has to be looked at again first.
type conn struct {
	client     *rest.RESTClient
	host       string // host:port of the server
	kubeconfig string // path, for errors
	clientCert []byte // PEM, for errors
	answerTime time.Duration
}

// dial prepares a connection; nothing is sent yet. endpoint replaces the
// kubeconfig's server if it is set.
func dial(path string, kubeconfig []byte, endpoint string) (*conn, error) {
	cfg, err := restConfig(path, kubeconfig)
	if err != nil {
		return nil, errors.Wrapf(err, "read kubeconfig %s", path)
	}
	if endpoint != "" {
		cfg.Host = "https://" + endpoint
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // it is this host
	}
	base, _, err := rest.DefaultServerURL(cfg.Host, "", schema.GroupVersion{}, true)
	if err != nil { // which repeats the URL, and a password in it
		return nil, errors.Errorf("kubeconfig %s: the server is not a URL such as https://10.0.0.1:6443", path)
	}
	moveUser(base, cfg)
	cfg.Host = base.String()
	cfg.UserAgent = "slipway"
	cfg.QPS = -1 // no throttling
	cfg.WarningHandler = rest.NoWarnings{}
	// Needed, but not used: bodies are read and written as JSON by the caller.
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, errors.Wrapf(err, "kubeconfig %s: prepare the connection", path)
	}
	return &conn{client: client, host: base.Host, kubeconfig: path, clientCert: clientCert(cfg), answerTime: answerTime}, nil
}

// moveUser takes the user out of the server's URL, which errors and logs show.
// It counts more than the kubeconfig's token.
func moveUser(server *url.URL, cfg *rest.Config) {
	if server.User == nil {
		return
	}
	cfg.Username = server.User.Username()
	cfg.Password, _ = server.User.Password()
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
	server.User = nil
}

// at begins a request to the objects of a kind.
func (c *conn) at(verb string, k kind, namespace string) *rest.Request {
	return c.client.Verb(verb).AbsPath(k.root()).NamespaceIfScoped(namespace, k.namespaced).Resource(k.plural)
}

// object begins a request to one object.
func (c *conn) object(verb string, r ref) *rest.Request {
	return c.at(verb, r.kind, r.namespace).Name(r.name)
}

// send is do with a body.
func (c *conn) send(ctx context.Context, r *rest.Request, contentType string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return errors.Wrap(err, "encode")
	}
	_, err = c.do(ctx, r.SetHeader("Content-Type", contentType).Body(data))
	return err
}

// do makes the request once and returns the body of the answer. If the answer
// is not a success, the error is a *StatusError of apimachinery; if there is
// none, it is a noAnswerError.
func (c *conn) do(ctx context.Context, r *rest.Request) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, c.answerTime)
	defer cancel()
	data, err := r.SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(limited)
	var refused *apierrors.StatusError
	switch {
	case err == nil:
		return data, nil
	case errors.As(err, &refused):
		return nil, statusError(refused, data)
	case limited.Err() != nil && ctx.Err() == nil:
		err = errors.Errorf("no answer from %s within %s", c.host, c.answerTime)
	}
	return nil, noAnswerError{err}
}

// statusError reads the Status in the body of an answer. If something else
// answered (a proxy, a health endpoint, the rate limiter), it takes client-go's
// error for that, with the answer's text as the message.
func statusError(err *apierrors.StatusError, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" || status.Code == 0 {
		text := http.StatusText(int(err.ErrStatus.Code)) + ": " + excerpt(string(body))
		err.ErrStatus.Message = strconv.Itoa(int(err.ErrStatus.Code)) + " " + strings.TrimSuffix(text, ": ")
		return err
	}
	if asked := err.ErrStatus.Details.RetryAfterSeconds; asked > 0 {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		status.Details.RetryAfterSeconds = asked
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// excerpt shortens an answer to one line. A health endpoint's answer lists all
// of its checks, of which only those that fail are of interest.
func excerpt(body string) string {
	var failing []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failing = append(failing, strings.TrimSpace(line[len("[-]"):]))
		}
	}
	if len(failing) > 0 {
		return strings.Join(failing, ", ")
	}
	line := strings.Join(strings.Fields(body), " ")
	const longest = 200
	if len(line) > longest {
		line = strings.ToValidUTF8(line[:longest], "") + "…"
	}
	return line
}

// isNotFound reports whether the API itself, and not something in front of it,
// says that there is no such object.
func isNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}
