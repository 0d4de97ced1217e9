//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestServersMayAskForACertificate: the command shows the one of -cert. SSL_CERT_FILE names the
// authority that has signed that of the server.
func TestServersMayAskForACertificate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "darwin" {
		t.Skip("SSL_CERT_FILE does not work here")
	}
	pair, authorities, file := newCertificate(t)
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.StartTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities}))
	t.Cleanup(m.Close)
	url := "rediss://" + m.Addr()
	command := func(url string, args ...string) *program {
		cmd := redlatchCmd(t, url, args...)
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+file)
		return start(t, cmd)
	}
	for name, args := range map[string][]string{
		"status": {"k"}, "list": nil, "unlock": {"-f", "k"}, "run": {"-try", "k", "--", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			without := command(url, append([]string{name}, args...)...)
			locktest.Eventually(t, name, func() bool { return command(url, append([]string{name, "-cert", file}, args...)...).code() == 0 })
			require.Equal(t, exitUnavailable, without.code())
		})
	}
	key := filepath.Join(t.TempDir(), "key")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, text, 0o600))
	locktest.Eventually(t, "a file for each", func() bool { return command(url, "status", "-cert", file, "-cert-key", key, "k").code() == 0 })
	for reason, p := range map[string]*program{
		"URL 1 of REDIS_URL does not begin with rediss": command("redis://"+m.Addr(), "status", "-cert", file, "k"),
		"-cert-key needs -cert":                         command(url, "status", "-cert-key", key, "k"),
		"-cert: open nowhere: ":                         command(url, "status", "-cert", "nowhere", "k"),
	} {
		require.Equal(t, exitUsage, p.code())
		require.Contains(t, p.errors(), reason)
	}
}

// newCertificate returns a certificate for 127.0.0.1 that has signed itself, and a file with it and
// its key.
func newCertificate(t *testing.T) (pair tls.Certificate, authorities *x509.CertPool, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	file = filepath.Join(t.TempDir(), "cert.pem")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	pair, err = tls.X509KeyPair(text, text)
	require.NoError(t, err)
	authorities = x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(text))
	return pair, authorities, file
}
