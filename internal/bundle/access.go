// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Access says how to reach registries. The zero value requires HTTPS with a certificate the system trusts.
type Access struct {
	CAFile    string // certificates to trust beside the system's; may be empty
	PlainHTTP bool   // allow HTTP without TLS
}

func (a Access) names() []name.Option {
	if a.PlainHTTP {
		return []name.Option{name.StrictValidation, name.Insecure}
	}
	return []name.Option{name.StrictValidation}
}

// options are for requests, with the credentials of docker or podman.
func (a Access) options(ctx context.Context) ([]remote.Option, error) {
	transport, err := a.transport()
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithJobs(2),
	}, err
}

// transport sends nothing without TLS unless allowed, not even to private addresses, where the library would fall back to HTTP.
func (a Access) transport() (http.RoundTripper, error) {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	if a.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the system's certificates")
		}
		data, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the registry's CA")
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, errors.Errorf("%s has no certificate in PEM format", a.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if a.PlainHTTP {
		return t, nil
	}
	return onlyTLS{t}, nil
}

type onlyTLS struct{ http.RoundTripper }

func (t onlyTLS) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, &noTLSError{r.URL.Host}
	}
	return t.RoundTripper.RoundTrip(r)
}

// noTLSError is its own type because the library joins it with another error in a way that hides remedies.
type noTLSError struct{ registry string }

func (e *noTLSError) Error() string {
	return fmt.Sprintf("the registry %s does not serve HTTPS with a certificate that is trusted", e.registry)
}

func withAccessRemedy(err error) error {
	if errors.As(err, new(*noTLSError)) {
		return fault.WithRemedy(err, "name its CA with --registry-ca, or allow HTTP with --plain-http")
	}
	return err
}
