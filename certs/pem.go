// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Types of PEM blocks (RFC 7468 and OpenSSL).
const (
	blockCertificate  = "CERTIFICATE"
	blockRSAKey       = "RSA PRIVATE KEY"
	blockECKey        = "EC PRIVATE KEY"
	blockKey          = "PRIVATE KEY"
	blockPublicKey    = "PUBLIC KEY"
	blockRSAPublicKey = "RSA PUBLIC KEY"
)

func EncodeCerts(list ...*x509.Certificate) []byte {
	var out []byte
	for _, cert := range list {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
	}
	return out
}

// EncodeKey returns a private key as PEM, in OpenSSL's traditional form for its type, or else as PKCS #8.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	block := &pem.Block{}
	var err error
	switch key := key.(type) {
	case *rsa.PrivateKey:
		block.Type, block.Bytes = blockRSAKey, x509.MarshalPKCS1PrivateKey(key)
	case *ecdsa.PrivateKey:
		block.Type = blockECKey
		block.Bytes, err = x509.MarshalECPrivateKey(key)
	default:
		block.Type = blockKey
		block.Bytes, err = x509.MarshalPKCS8PrivateKey(key)
	}
	if err != nil {
		return nil, errors.Wrap(err, "encoding the private key")
	}
	return pem.EncodeToMemory(block), nil
}

func EncodePublicKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, errors.Wrap(err, "encoding the public key")
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockPublicKey, Bytes: der}), nil
}

// ParsePair reads a certificate file and a key file. The key is nil if it's kept elsewhere. Check reports whether the two match.
func ParsePair(cert, key []byte) (Pair, error) {
	bundle, err := ParseCerts(cert)
	if err != nil {
		return Pair{}, errors.Wrap(err, "the certificate")
	}
	pair := Pair{Cert: bundle[0], More: bundle[1:]}
	if key == nil {
		return pair, nil
	}
	pair.Key, err = ParseKey(key)
	return pair, errors.Wrap(err, "the private key")
}

// ParseCerts reads the certificates of a PEM file, at least one. Errors don't quote the file.
func ParseCerts(data []byte) ([]*x509.Certificate, error) {
	blocks, err := readPEM(data)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(blocks, func(b *pem.Block) bool { return strings.HasSuffix(b.Type, blockKey) }) {
		// Certificates are public: everyone can read them, also in ConfigMaps.
		return nil, errors.New("the file also holds a private key, but a certificate file is public: " +
			"remove the key, and assume that others know it")
	}
	return certificatesIn(blocks)
}

// ParseChain reads a PEM file that may also hold a key, like the kubelet's: first its own certificate, then intermediate CAs.
func ParseChain(data []byte) ([]*x509.Certificate, error) {
	blocks, err := readPEM(data)
	if err != nil {
		return nil, err
	}
	return certificatesIn(blocks)
}

func certificatesIn(blocks []*pem.Block) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for _, block := range blocks {
		if block.Type != blockCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.Errorf("certificate %d of the file is malformed: %v", len(list)+1, err)
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("the file holds no certificate in PEM form")
	}
	return list, nil
}

// ParseKey reads the private key of a PEM file: PKCS #1, SEC 1 or PKCS #8, not encrypted. Errors don't quote the file.
func ParseKey(data []byte) (crypto.Signer, error) {
	blocks, err := readPEM(data)
	if err != nil {
		return nil, err
	}
	var found *pem.Block
	for _, block := range blocks {
		if !strings.HasSuffix(block.Type, blockKey) {
			continue
		}
		if found != nil {
			return nil, errors.New("the file holds more than one private key; keep only the one in use")
		}
		found = block
	}
	if found == nil {
		return nil, errors.New("the file holds no private key in PEM form")
	}
	if found.Type == "ENCRYPTED "+blockKey || found.Headers["DEK-Info"] != "" {
		return nil, errors.New("the key is encrypted with a passphrase, which the components of the " +
			"control plane cannot ask for; store it decrypted, readable by root only")
	}
	return decodeKey(found)
}

// decodeKey drops the decoders' errors, which may quote a part of the key.
func decodeKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case blockRSAKey:
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case blockECKey:
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case blockKey:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, errors.New("the type of the key is not supported; use RSA or ECDSA (P-256, P-384)")
	}
	if err != nil {
		return nil, errors.Errorf("the block %q is damaged, or its type is not supported", block.Type)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign; use RSA or ECDSA (P-256, P-384)")
	}
	return signer, nil
}

// parsePublicKeys reads the public keys of a PEM file, at least one.
func parsePublicKeys(data []byte) ([]crypto.PublicKey, error) {
	blocks, err := readPEM(data)
	if err != nil {
		return nil, err
	}
	var list []crypto.PublicKey
	for _, block := range blocks {
		var key crypto.PublicKey
		var err error
		switch block.Type {
		case blockPublicKey:
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case blockRSAPublicKey:
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, errors.Errorf("public key %d of the file is malformed: %v", len(list)+1, err)
		}
		list = append(list, key)
	}
	if len(list) == 0 {
		return nil, errors.New("the file holds no public key in PEM form")
	}
	return list, nil
}

// readPEM returns every block of a PEM file. Text around blocks is allowed (RFC 7468, section 2), a truncated or damaged block
// isn't: ignoring it could drop a CA still in use.
func readPEM(data []byte) ([]*pem.Block, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("the file is empty")
	}
	begun := bytes.Count(data, []byte("-----BEGIN "))
	var blocks []*pem.Block
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		blocks = append(blocks, block)
	}
	switch {
	case begun == 0:
		return nil, errors.New("the file is not in PEM form")
	case len(blocks) != begun:
		return nil, errors.Errorf("PEM blocks that are truncated or damaged: %d of %d", begun-len(blocks), begun)
	}
	return blocks, nil
}

// FirstCert reads the first certificate of a PEM file that may also hold a private key, like the kubelet's.
func FirstCert(data []byte) (*x509.Certificate, error) {
	chain, err := ParseChain(data)
	if err != nil {
		return nil, err
	}
	return chain[0], nil
}
