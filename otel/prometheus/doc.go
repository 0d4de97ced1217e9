// Package prometheus tests the alert rules and the dashboard of package redlatchotel with a
// Prometheus. It is a module of its own, so that users of redlatchotel do not depend on its
// exporter.
package prometheus
