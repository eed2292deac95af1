// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/x509"
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

// answerTimeout bounds one request, so that a hanging request can be tried again.
const answerTimeout = 20 * time.Second

// conn talks to the API as one kubeconfig's user. It makes each request once: the caller chooses the retry policy, because it
// knows which checks to repeat first.
type conn struct {
	client        *rest.RESTClient
	host          string            // host:port of the server
	kubeconfig    string            // path, for errors
	clientCert    *x509.Certificate // for errors; nil if there's none
	answerTimeout time.Duration
	validating    bool // have the server check writes and drop them
}

// dial prepares a connection, but sends nothing yet. endpoint, if set, replaces the kubeconfig's server, and serverName the name its
// certificate is checked for.
func dial(path string, kubeconfig []byte, endpoint, serverName string) (*conn, error) {
	cfg, err := restConfig(path, kubeconfig)
	if err != nil {
		return nil, errors.Wrapf(err, "read kubeconfig %s", path)
	}
	if endpoint != "" {
		cfg.Host = "https://" + endpoint
		cfg.ServerName = serverName
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // it's this host
	}
	base, _, err := rest.DefaultServerURL(cfg.Host, "", schema.GroupVersion{}, true)
	if err != nil { // err repeats the URL, with any password in it
		return nil, errors.Errorf("kubeconfig %s: the server is not a URL such as https://10.0.0.1:6443", path)
	}
	moveUser(base, cfg)
	cfg.Host = base.String()
	cfg.UserAgent = "slipway"
	cfg.QPS = -1 // no throttling
	cfg.WarningHandler = rest.NoWarnings{}
	// Required, but unused: callers read and write bodies as JSON.
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, errors.Wrapf(err, "kubeconfig %s: prepare the connection", path)
	}
	client.Client = within(client.Client)
	return &conn{client: client, host: base.Host, kubeconfig: path, clientCert: clientCert(cfg), answerTimeout: answerTimeout}, nil
}

// within returns a client that doesn't follow redirects to other hosts. The transport adds the credentials to every request, and
// a node, whose answers the API server relays, could ask for them.
func within(client *http.Client) *http.Client {
	c := *client
	c.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		const most = 5
		if from := via[0].URL; len(via) > most || to.URL.Scheme != from.Scheme || to.URL.Host != from.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &c
}

// moveUser takes the user out of the server's URL, which errors and logs show. This user takes precedence over the kubeconfig's token.
func moveUser(server *url.URL, cfg *rest.Config) {
	if server.User == nil {
		return
	}
	cfg.Username = server.User.Username()
	cfg.Password, _ = server.User.Password()
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
	server.User = nil
}

func (c *conn) at(verb string, k kind, namespace string) *rest.Request {
	return c.client.Verb(verb).AbsPath(k.root()).NamespaceIfScoped(namespace, k.namespaced).Resource(k.plural)
}

func (c *conn) object(verb string, r ref) *rest.Request {
	return c.at(verb, r.kind, r.namespace).Name(r.name)
}

// send is do with a JSON body.
func (c *conn) send(ctx context.Context, r *rest.Request, contentType string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return errors.Wrap(err, "encode")
	}
	if c.validating { // unknown fields are refused, as with `kubectl apply`
		r.Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict)
	}
	_, err = c.do(ctx, r.SetHeader("Content-Type", contentType).Body(data))
	return err
}

// do makes the request once and returns the answer's body. For an answer that isn't a success, the error is apimachinery's
// *StatusError; if there's no answer, it's a noAnswerError.
func (c *conn) do(ctx context.Context, r *rest.Request) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	data, err := r.SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(limited)
	var refused *apierrors.StatusError
	switch {
	case err == nil:
		return data, nil
	case errors.As(err, &refused):
		return nil, statusError(refused, data)
	case limited.Err() != nil && ctx.Err() == nil:
		err = errors.Errorf("no answer from %s within %s", c.host, c.answerTimeout)
	}
	return nil, noAnswerError{err}
}

// statusError reads the Status in an answer's body. If the answer comes from something else (a proxy, a health endpoint, the rate
// limiter), it uses client-go's error, with the answer's text as the message.
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

// excerpt shortens an answer to one line. A health endpoint's answer lists all of its checks; only the failing ones matter.
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

// isNotFound reports whether the API itself, rather than something in front of it, denies the object's existence.
func isNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}
