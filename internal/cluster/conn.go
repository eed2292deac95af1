// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// answerTime bounds one request, so that one that hangs can be tried again.
const answerTime = 10 * time.Second

// conn speaks to the API as the user of one kubeconfig. It makes each request
// once: how often to try is retry's to decide, which is why client-go's own
// clients, which try up to ten times by themselves, are not used.
type conn struct {
	client     *http.Client
	base       *url.URL
	user       *url.Userinfo // of the server's URL; nothing shows it, as a URL would
	kubeconfig string        // path, for errors
	clientCert []byte        // PEM, for errors
	answerTime time.Duration
}

// dial prepares a connection; nothing is sent yet. endpoint replaces the
// kubeconfig's server if it is set.
func dial(path string, kubeconfig []byte, endpoint string) (*conn, error) {
	cfg, err := restConfig(path, kubeconfig)
	if err != nil {
		return nil, errors.Wrapf(err, "read kubeconfig %s", path)
	}
	cfg.UserAgent = "slipway"
	if endpoint != "" {
		cfg.Host = "https://" + endpoint
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // it is this host
	}
	base, _, err := rest.DefaultServerURL(cfg.Host, "", schema.GroupVersion{}, true)
	if err != nil { // which repeats the URL, and a password in it
		return nil, errors.Errorf("kubeconfig %s: the server is not a URL such as https://10.0.0.1:6443", path)
	}
	user := base.User
	base.User = nil
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, errors.Wrapf(err, "kubeconfig %s: prepare the connection", path)
	}
	return &conn{client: client, base: base, user: user, kubeconfig: path, clientCert: cfg.CertData, answerTime: answerTime}, nil
}

// request is one HTTP request to the API.
type request struct {
	method, path string
	query        url.Values
	contentType  string // of body
	body         any    // encoded as JSON; nil for none
}

// do sends the request once and returns the answer's body. An answer other
// than 2xx is a *StatusError of apimachinery, no answer a noAnswerError.
func (c *conn) do(ctx context.Context, r request) ([]byte, error) {
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, c.answerTime)
	defer cancel()
	resp, err := c.client.Do(req.WithContext(limited))
	if err != nil {
		return nil, c.noAnswer(ctx, limited, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.noAnswer(ctx, limited, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, statusError(resp, data)
	}
	return data, nil
}

func (c *conn) newRequest(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, errors.Wrap(err, "encode")
		}
		body = bytes.NewReader(data)
	}
	target := c.base.JoinPath(r.path)
	target.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if c.user != nil {
		password, _ := c.user.Password()
		req.SetBasicAuth(c.user.Username(), password)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", r.contentType)
	}
	return req, nil
}

// noAnswer says plainly when it was the limit of this one request that ended
// it.
func (c *conn) noAnswer(ctx, limited context.Context, err error) error {
	if limited.Err() != nil && ctx.Err() == nil {
		err = errors.Errorf("no answer from %s within %s", c.base.Host, c.answerTime)
	}
	return noAnswerError{err}
}

// statusError reads the Status that the API answers with, or makes one from
// what something else (a proxy, a health endpoint, the rate limiter) said.
func statusError(resp *http.Response, body []byte) error {
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err == nil && status.Kind == "Status" && status.Code != 0 {
		if seconds > 0 {
			if status.Details == nil {
				status.Details = &metav1.StatusDetails{}
			}
			status.Details.RetryAfterSeconds = int32(seconds)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	err := apierrors.NewGenericServerResponse(resp.StatusCode, resp.Request.Method, schema.GroupResource{}, "", "", seconds, true)
	err.ErrStatus.Message = strings.TrimSuffix(resp.Status+": "+excerpt(string(body)), ": ")
	return err
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

// isNotFound tells whether the API, and not something in front of it, says
// that there is no such object.
func isNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}
