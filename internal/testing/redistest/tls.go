package redistest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// StartTLS is like [StartTCP] with a port that speaks TLS only. It also returns what verifies the
// certificate of the server. If redis-server was built without TLS, the test is skipped.
func StartTLS(tb testing.TB) (*Server, *x509.CertPool) {
	tb.Helper()
	MustBeInstalled(tb)
	file, authorities := newCertificate(tb)
	options := []string{
		"--tls-cert-file", file, "--tls-key-file", file, "--tls-ca-cert-file", file, "--tls-auth-clients", "no",
	}
	s := mustOpen(tb, Binary(), tlsPort, options)
	tb.Cleanup(s.close)
	return s, authorities
}

// newCertificate returns a file with a certificate for 127.0.0.1, which has signed itself, and its
// key.
func newCertificate(tb testing.TB) (file string, authorities *x509.CertPool) {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal("redistest: ", err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	var text bytes.Buffer
	must(pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	must(pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	file = filepath.Join(tb.TempDir(), "server.pem")
	must(os.WriteFile(file, text.Bytes(), 0o600))
	authorities = x509.NewCertPool()
	authorities.AppendCertsFromPEM(text.Bytes())
	return file, authorities
}
